"""The installation of the Dockerfile, without Docker: its build stage, run on this machine.

This proves that the copied sources suffice and that their installation works. The base image and
the copy into the second stage are not covered.
"""

from __future__ import annotations

import fnmatch
import os
import re
import shutil
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Self

from testkit.processes import ROOT

_HOME = "/opt/orderlane"


@dataclass(frozen=True)
class Image:
    """An installation like the image's. ``last`` maps each instruction to its last use."""

    folder: Path
    last: dict[str, str]

    @classmethod
    def build(cls, folder: Path) -> Self:
        """Do the copies and commands of the build stage."""
        instructions = _instructions((ROOT / "Dockerfile").read_text())
        starts = [n for n, (word, _) in enumerate(instructions) if word == "FROM"]
        source = folder / "source"
        source.mkdir()
        for word, rest in instructions[starts[0] : starts[1]]:
            if word == "COPY":
                *names, target = rest.split()
                for name in names:
                    _copy(name, source / target)
            elif word == "RUN":
                command = rest.replace("python -m venv", f"{sys.executable} -m venv")
                command = command.replace(_HOME, str(folder / "orderlane"))
                _run(command, source)
        shutil.rmtree(source)  # as in the second stage: the installation must not need the sources
        return cls(folder / "orderlane", dict(instructions))

    @property
    def entrypoint(self) -> Path:
        """Return the command of a container."""
        return self.folder / "bin" / re.sub(r'[\[\]"]', "", self.last["ENTRYPOINT"])

    def run(self, *arguments: str, stdin: bytes = b"") -> str:
        """Return the output of a verb, which must succeed."""
        return subprocess.run(
            [self.entrypoint, *arguments],
            input=stdin,
            stdout=subprocess.PIPE,
            check=True,
            timeout=120,
            env=environment(),
            cwd=self.folder,
        ).stdout.decode()


def environment(**more: str) -> dict[str, str]:
    """Return a container's environment: nothing of this machine's Python or of the sources."""
    own = {name: os.environ[name] for name in ("PATH", "LANG") if name in os.environ}
    return {**own, "PYTHONDONTWRITEBYTECODE": "1", **more}


def _instructions(text: str) -> list[tuple[str, str]]:
    lines = [line for line in text.splitlines() if line.strip() and not line.startswith("#")]
    joined = re.sub(r"\\\n\s*", " ", "\n".join(lines)).splitlines()
    return [(word, rest) for word, _, rest in (line.partition(" ") for line in joined)]


def _copy(name: str, target: Path) -> None:
    """Copy *name*, a file or a folder, without the exclusions of ``.dockerignore``."""
    ignored = (ROOT / ".dockerignore").read_text().split()

    def leave_out(folder: str, names: list[str]) -> set[str]:
        paths = {each: (Path(folder) / each).relative_to(ROOT).as_posix() for each in names}
        return {each for each, path in paths.items() if any(_matches(path, p) for p in ignored)}

    if (ROOT / name).is_dir():
        shutil.copytree(ROOT / name, target, ignore=leave_out)
    else:
        assert not leave_out(str(ROOT), [name]), f"{name} stands in .dockerignore"
        shutil.copy(ROOT / name, target)


def _matches(path: str, pattern: str) -> bool:
    if pattern.startswith("**/"):
        return fnmatch.fnmatchcase(path.rpartition("/")[2], pattern[3:])
    return "/" not in path.removeprefix(pattern) and fnmatch.fnmatchcase(path, pattern)


def _run(command: str, folder: Path) -> None:
    options = {name: value for name, value in os.environ.items() if name.startswith("PIP_")}
    done = subprocess.run(
        ["bash", "-c", command],
        cwd=folder,
        env={**environment(), **options},
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert done.returncode == 0, f"{command}: {done.stdout[-1000:]}{done.stderr[-3000:]}"
