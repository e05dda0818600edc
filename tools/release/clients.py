"""The archives of the clients in other languages, from the tracked files and with their own tools.

Go: the zip and the files of a module proxy. Node: the package for npm. Java: the jars and the pom
as in a Maven repository. C++: its sources.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import tarfile
import zipfile
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from io import BytesIO
from pathlib import Path

from tools.pins import ROOT
from tools.release import builds
from tools.release.problem import ReleaseError
from tools.versions import release_version

GO_MODULE = "github.com/orderlane/orderlane/thin_client/go"
#: Of the module zip: its hash is that of names and contents alone.
_ZIP_TIME = (1980, 1, 1, 0, 0, 0)
_LIMIT_S = 900


@dataclass(frozen=True, slots=True)
class Archives:
    """How to build the archives of one language, by their names in a release. ``tools``: the
    commands that it needs.
    """

    language: str
    tools: tuple[str, ...]
    build: Callable[[Path, Mapping[str, str]], dict[str, Path]]

    @property
    def missing(self) -> list[str]:
        """The commands that are not installed."""
        return [each for each in self.tools if shutil.which(each) is None]


def go_module(folder: Path, environment: Mapping[str, str]) -> dict[str, Path]:
    """Return the files of the module in a module proxy, made in the new *folder*."""
    tree = _sources("go", folder / "go-sources")
    place = folder / "go-proxy" / GO_MODULE / "@v"
    place.mkdir(parents=True)
    name = f"v{release_version()}"
    about = {"Version": name, "Time": "2026-01-01T00:00:00Z"}
    written = [place / f"{name}{suffix}" for suffix in (".info", ".mod", ".zip")]
    (place / "list").write_text(f"{name}\n")
    written[0].write_text(json.dumps(about))
    shutil.copyfile(tree / "go.mod", written[1])
    with zipfile.ZipFile(written[2], "w", zipfile.ZIP_DEFLATED) as archive:
        for file in sorted(each for each in tree.rglob("*") if each.is_file()):
            member = f"{GO_MODULE}@{name}/{file.relative_to(tree)}"
            info = zipfile.ZipInfo(member, _ZIP_TIME)
            archive.writestr(info, file.read_bytes(), zipfile.ZIP_DEFLATED)
    return {f"orderlane-go-{file.name}": file for file in written}


def npm_package(folder: Path, environment: Mapping[str, str]) -> dict[str, Path]:
    """Build the package in the new *folder*; return its file."""
    tree = _sources("node", folder / "node-sources")
    _run("npm ci --ignore-scripts --no-audit --no-fund --loglevel=error", tree, environment)
    _run("npm pack --loglevel=error", tree, environment)
    name = f"orderlane-{release_version()}.tgz"
    return {name: tree / name}


def maven_artifact(folder: Path, environment: Mapping[str, str]) -> dict[str, Path]:
    """Install jars and pom into a repository in the new *folder*, ``m2``; return them."""
    tree = _sources("java", folder / "java-sources")
    repository = folder / "m2"
    usual = Path.home() / ".m2/repository"
    if usual.is_dir():  # plugins and dependencies that were downloaded before
        shutil.copytree(usual, repository, ignore=lambda _, names: {"orderlane"} & set(names))
    words = f"-q -B -ntp -Prelease -DskipTests -Dmaven.repo.local={repository}"
    _run(f"mvn {words} install", tree, environment)
    place = repository / "io/github/orderlane/orderlane-client" / release_version()
    return {file.name: file for file in sorted(place.iterdir()) if file.suffix in (".jar", ".pom")}


def cpp_sources(folder: Path, environment: Mapping[str, str]) -> dict[str, Path]:
    """Pack the sources of the client in the new *folder*; return the file."""
    tree = _sources("cpp", folder / f"orderlane-cpp-{release_version()}")
    plain = BytesIO()
    with tarfile.open(fileobj=plain, mode="w:gz") as packed:
        packed.add(tree, tree.name)
    archive = folder / f"{tree.name}.tar.gz"
    archive.write_bytes(builds.normalized(plain.getvalue(), epoch=builds.epoch_of(ROOT)))
    shutil.rmtree(tree)
    return {archive.name: archive}


ALL = (
    Archives("go", (), go_module),
    Archives("node", ("npm", "node"), npm_package),
    Archives("java", ("mvn", "javac"), maven_artifact),
    Archives("cpp", (), cpp_sources),
)


def _sources(language: str, to: Path) -> Path:
    """Copy the client's tracked files into the new folder *to*; return it."""
    begin = f"thin_client/{language}/"
    for path, mode in builds.tracked(ROOT).items():
        if path.startswith(begin):
            copy = to / path.removeprefix(begin)
            copy.parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(ROOT / path, copy)
            copy.chmod(mode)
    return to


def _run(command: str, folder: Path, environment: Mapping[str, str]) -> None:
    """Run *command* without the variables of Python and of a gateway. Raises ReleaseError with its
    last lines.
    """
    own = {
        name: value
        for name, value in os.environ.items()
        if not name.startswith(("ORDERLANE_", "PYTHON"))
    }
    done = subprocess.run(
        ["bash", "-c", command],
        cwd=folder,
        env={**own, "MAVEN_OPTS": "-Xmx256m", **environment},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=_LIMIT_S,
        check=False,
    )
    if done.returncode:
        lines = (done.stdout + done.stderr).strip().splitlines()
        raise ReleaseError(f"{command.split()[0]} failed: " + "\n".join(lines[-10:]))
