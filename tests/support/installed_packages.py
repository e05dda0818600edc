"""Wheels of both distributions, built from the tracked files, installed where nothing else is.

Nothing is downloaded: third-party packages are those of this environment, without its editable
installation of the repository.
"""

from __future__ import annotations

import os
import subprocess
import sys
import sysconfig
import venv
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import orjson

from tools.packages.server_sources import write_sources
from tools.pins import ROOT
from tools.release import builds


@dataclass(frozen=True, slots=True)
class Installation:
    """An environment with both wheels."""

    folder: Path
    client: builds.Distributions
    server: builds.Distributions

    @property
    def python(self) -> Path:
        return self.folder / "environment/bin/python"

    def run(self, *words: object) -> subprocess.CompletedProcess[str]:
        """Run its Python in a folder with nothing in it."""
        return run(self.python, *words, folder=self.folder / "empty")


def run(*words: object, folder: Path) -> subprocess.CompletedProcess[str]:
    environment = {name: os.environ[name] for name in ("PATH", "HOME") if name in os.environ}
    return subprocess.run(
        list(map(str, words)),
        cwd=folder,
        env=environment,
        capture_output=True,
        text=True,
        timeout=600,
        check=False,
    )


def install(folder: Path, *others: Path) -> Installation:
    """Build both distributions below *folder*, and install their wheels and those in *others*."""
    sources = folder / "orderlane"
    builds.stage(ROOT, sources)
    write_sources(sources, folder / "orderlane-server")
    epoch = builds.epoch_of(ROOT)
    client, server = (
        builds.build(folder / name, folder / f"dist-{name}", epoch=epoch)
        for name in ("orderlane", "orderlane-server")
    )
    (folder / "empty").mkdir()
    environment = folder / "environment"
    venv.create(environment, symlinks=True)
    site = next(environment.glob("lib/python*/site-packages"))
    # Their .pth files do not count there, so the editable installation is not visible.
    (site / "third_party.pth").write_text(f"{sysconfig.get_path('purelib')}\n")
    pip = (sys.executable, "-m", "pip", "--python", environment / "bin/python", "install")
    wheels = (client.wheel, server.wheel, *others)
    done = run(*pip, "--quiet", "--no-index", "--no-deps", *wheels, folder=folder)
    assert done.returncode == 0, done.stderr
    return Installation(folder, client, server)


@contextmanager
def started(*words: object) -> Iterator[dict[str, str]]:
    """Run a server; yield its ready line."""
    with subprocess.Popen(
        list(map(str, words)), stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout is not None
        try:
            yield orjson.loads(process.stdout.readline())
        finally:
            process.terminate()
            process.communicate(timeout=60)
    assert process.returncode == 0
