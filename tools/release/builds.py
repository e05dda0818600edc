"""Wheel and source archive of the tracked files, with the same bytes wherever they are built.

Times come from ``SOURCE_DATE_EPOCH``, modes from git, and the source archive is written again in
the order of names without owners: setuptools copies times, owners and order of the files on disk.
"""

from __future__ import annotations

import gzip
import os
import shutil
import subprocess
import sys
import tarfile
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from io import BytesIO
from pathlib import Path
from zipfile import ZipFile

from tools.release.problem import ReleaseError

_PLAIN, _EXECUTABLE, _FOLDER = 0o644, 0o755, 0o755
_UMASK = 0o022
#: The variables that a build inherits.
_INHERITED = ("PATH", "HOME", "PYTHONPATH", "TMPDIR", "VIRTUAL_ENV")
#: Most names of different files in an error.
_NAMED = 5


@dataclass(frozen=True, slots=True)
class Distributions:
    """The two files of a release."""

    wheel: Path
    sdist: Path

    def __iter__(self) -> Iterator[Path]:
        yield self.wheel
        yield self.sdist


def epoch_of(root: Path) -> int:
    """Return ``SOURCE_DATE_EPOCH``, by default the time of the last commit, in seconds."""
    given = os.environ.get("SOURCE_DATE_EPOCH")
    return int(given or _git(root, "log", "-1", "--format=%ct"))


def tracked(root: Path) -> dict[str, int]:
    """Return the mode of each tracked file by its path, without deleted files."""
    modes: dict[str, int] = {}
    for line in filter(None, _git(root, "ls-files", "--stage", "-z").split("\0")):
        about, _, path = line.partition("\t")
        if (root / path).is_file():
            modes[path] = _EXECUTABLE if about.startswith("100755") else _PLAIN
    return modes


def is_clean(root: Path) -> bool:
    """Return whether all tracked files are as in the last commit."""
    return not _git(root, "status", "--porcelain", "--untracked-files=no")


def commit(root: Path) -> str:
    """Return the hash of the last commit."""
    return _git(root, "rev-parse", "HEAD").strip()


def _git(root: Path, *arguments: str) -> str:
    done = subprocess.run(
        ["git", *arguments], cwd=root, capture_output=True, text=True, check=False
    )
    if done.returncode:
        raise ReleaseError(f"git {arguments[0]}: {done.stderr.strip()}: run this in a clone")
    return done.stdout


def stage(root: Path, to: Path) -> None:
    """Copy the tracked files of *root* to the new folder *to*, with modes from git."""
    for path, mode in tracked(root).items():
        copy = to / path
        copy.parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(root / path, copy)
        copy.chmod(mode)
    for folder in (to, *(each for each in to.rglob("*") if each.is_dir())):
        folder.chmod(_FOLDER)


def build(
    source: Path, to: Path, *, epoch: int, environment: Mapping[str, str] | None = None
) -> Distributions:
    """Build the files of *source*, the wheel from the source archive, into the new folder *to*.

    *epoch*: times of the contents, in seconds. *environment*: further variables. Raises
    ReleaseError with the build's last lines.
    """
    kept = {name: os.environ[name] for name in _INHERITED if name in os.environ}
    done = subprocess.run(
        [*(sys.executable, "-m", "build", "--no-isolation", "--outdir", str(to)), str(source)],
        env={**kept, **(environment or {}), "SOURCE_DATE_EPOCH": str(epoch)},
        capture_output=True,
        text=True,
        umask=_UMASK,
        check=False,
    )
    if done.returncode:
        lines = (done.stdout + done.stderr).strip().splitlines()
        raise ReleaseError("the build failed: " + "\n".join(lines[-10:]))
    built = Distributions(*(_only(to, pattern) for pattern in ("*.whl", "*.tar.gz")))
    built.sdist.write_bytes(normalized(built.sdist.read_bytes(), epoch=epoch))
    return built


def _only(folder: Path, pattern: str) -> Path:
    found = list(folder.glob(pattern))
    if len(found) != 1:
        raise ReleaseError(f"{folder}: {len(found)} files {pattern}: expected 1")
    return found[0]


def normalized(archive: bytes, *, epoch: int) -> bytes:
    """Return the compressed source archive with its members in order of their names, at *epoch*,
    without owners, and with the modes of git.
    """
    plain = BytesIO()
    with (
        tarfile.open(fileobj=BytesIO(archive), mode="r:gz") as before,
        tarfile.open(fileobj=plain, mode="w", format=tarfile.PAX_FORMAT) as after,
    ):
        for member in sorted(before.getmembers(), key=lambda each: each.name):
            if not (member.isfile() or member.isdir()):
                raise ReleaseError(f"{member.name} in the source archive is no file and no folder")
            info = tarfile.TarInfo(member.name)
            info.type, info.size, info.mtime = member.type, member.size, epoch
            runs = member.isdir() or member.mode & 0o100
            info.mode = _EXECUTABLE if runs else _PLAIN
            after.addfile(info, before.extractfile(member) if member.isfile() else None)
    packed = BytesIO()
    with gzip.GzipFile(filename="", mode="wb", fileobj=packed, mtime=epoch) as file:
        file.write(plain.getvalue())
    return packed.getvalue()


def compare(first: Iterable[Path], second: Iterable[Path]) -> None:
    """Raise ReleaseError if a file of the one differs in name or in a byte from the other's."""
    for here, there in zip(first, second, strict=True):
        if here.name != there.name:
            raise ReleaseError(f"two builds of the same sources: {here.name}, then {there.name}")
        if here.read_bytes() != there.read_bytes():
            raise ReleaseError(
                f"two builds of the same sources gave different files {here.name}:"
                f" {', '.join(_differences(here, there)) or 'in order, times or modes'} differ;"
                " remove what depends on time, place or order"
            )


def _differences(here: Path, there: Path) -> list[str]:
    ours, others = contents(here), contents(there)
    names = sorted(ours.keys() | others.keys())
    return [name for name in names if ours.get(name) != others.get(name)][:_NAMED]


def contents(archive: Path) -> dict[str, bytes]:
    """Return the files in an archive by their names; any other file is its own content."""
    if archive.suffix in (".whl", ".zip", ".jar"):
        with ZipFile(archive) as wheel:
            return {each.filename: wheel.read(each) for each in wheel.infolist()}
    if archive.suffix not in (".gz", ".tgz"):
        return {archive.name: archive.read_bytes()}
    with tarfile.open(archive) as sdist:
        opened = ((each.name, sdist.extractfile(each)) for each in sdist.getmembers())
        return {name: file.read() for name, file in opened if file is not None}
