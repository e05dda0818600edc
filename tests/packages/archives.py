"""The archive of each language's client, made from the tracked files as for a release."""

from __future__ import annotations

import json
import shutil
import tarfile
import zipfile
from pathlib import Path

from testkit.processes import ROOT
from tests.packages.projects import run
from tools.release import builds

GO_MODULE = "github.com/orderlane/orderlane/thin_client/go"
VERSION = "0.1.0"


def sources(language: str, to: Path) -> Path:
    """Copy the client's tracked files into the new folder *to*; return it."""
    begin = f"thin_client/{language}/"
    for path, mode in builds.tracked(ROOT).items():
        if path.startswith(begin):
            copy = to / path.removeprefix(begin)
            copy.parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(ROOT / path, copy)
            copy.chmod(mode)
    return to


def go_proxy(folder: Path) -> Path:
    """Make the folder of a Go module proxy that has the module; return it. What the module requires
    is in Go's usual cache afterwards.
    """
    tree = sources("go", folder / "go-sources")
    run("go mod download", tree)
    place = folder / "go-proxy" / GO_MODULE / "@v"
    place.mkdir(parents=True)
    name = f"v{VERSION}"
    (place / "list").write_text(f"{name}\n")
    about = {"Version": name, "Time": "2026-01-01T00:00:00Z"}
    (place / f"{name}.info").write_text(json.dumps(about))
    shutil.copyfile(tree / "go.mod", place / f"{name}.mod")
    with zipfile.ZipFile(place / f"{name}.zip", "w", zipfile.ZIP_DEFLATED) as archive:
        for file in sorted(each for each in tree.rglob("*") if each.is_file()):
            archive.write(file, f"{GO_MODULE}@{name}/{file.relative_to(tree)}")
    return folder / "go-proxy"


def npm_tarball(folder: Path) -> Path:
    """Build the npm package; return the file."""
    tree = sources("node", folder / "node-sources")
    quiet = "--no-audit --no-fund --loglevel=error"
    run(f"npm ci --ignore-scripts {quiet}", tree)
    run("npm pack --loglevel=error", tree)
    return tree / f"orderlane-{VERSION}.tgz"


def maven_repository(folder: Path) -> Path:
    """Install the jars and the pom into a local repository of their own; return it."""
    tree = sources("java", folder / "java-sources")
    repository = folder / "m2"
    usual = Path.home() / ".m2/repository"
    if usual.is_dir():  # plugins and dependencies that were downloaded before
        shutil.copytree(usual, repository, ignore=lambda _, names: {"orderlane"} & set(names))
    words = f"-q -B -ntp -Prelease -DskipTests -Dmaven.repo.local={repository}"
    run(f"mvn {words} install", tree)
    return repository


def cpp_sources(folder: Path) -> Path:
    """Pack the sources of the C++ client; return the file."""
    tree = sources("cpp", folder / f"orderlane-cpp-{VERSION}")
    archive = folder / f"{tree.name}.tar.gz"
    with tarfile.open(archive, "w:gz") as packed:
        packed.add(tree, tree.name)
    shutil.rmtree(tree)
    return archive
