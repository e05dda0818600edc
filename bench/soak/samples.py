"""Resource samples of processes, from Linux's ``/proc``."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

_PROC = Path("/proc")
#: Figures of a sample; memory in MB.
FIGURES = ("resident_mb", "anonymous_mb", "unshared_mb", "files", "stray", "sockets", "threads")
_DELETED = " (deleted)"


@dataclass(frozen=True, slots=True)
class Sample:
    """One sample of one process, *at_s* into the run.

    Resident is all memory of the process: *anonymous* is what it allocated, and can leak; the rest
    are pages of mapped files. *Unshared* would be free without the process. Of descriptors, *files*
    are files and folders, *sockets* all others, including pipes. *Stray* descriptors are those of
    deleted files, and all but one of each other file: how many different files a broker has open
    depends on its log, but these two would be left behind.
    """

    at_s: float
    resident_mb: float
    anonymous_mb: float
    unshared_mb: float
    files: int
    stray: int
    sockets: int
    threads: int


def sample(pid: int, *, at_s: float) -> Sample:
    """Sample *pid*. Raises OSError after its end."""
    folder = _PROC / str(pid)
    status = _kilobytes((folder / "status").read_text())
    rollup = _kilobytes((folder / "smaps_rollup").read_text())
    opened = [_target(link) for link in (folder / "fd").iterdir()]
    files = [target for target in opened if target.startswith("/")]
    there = {target for target in files if not target.endswith(_DELETED)}
    return Sample(
        at_s=round(at_s, 1),
        resident_mb=_megabytes(status["VmRSS"]),
        anonymous_mb=_megabytes(status["RssAnon"]),
        unshared_mb=_megabytes(rollup["Private_Clean"] + rollup["Private_Dirty"]),
        files=len(files),
        stray=len(files) - len(there),
        sockets=sum(map(bool, opened)) - len(files),
        threads=status["Threads"],
    )


def by_process(pids: Mapping[str, int], *, at_s: float) -> dict[str, Sample]:
    """Sample all of them once."""
    return {name: sample(pid, at_s=at_s) for name, pid in pids.items()}


def growth(samples: Sequence[Sample], figure: str) -> float:
    """Return the growth of *figure* per minute, by least squares; 0 for a single moment."""
    xs = [each.at_s / 60 for each in samples]
    ys = [float(getattr(each, figure)) for each in samples]
    middle_x, middle_y = sum(xs) / len(xs), sum(ys) / len(ys)
    weight = sum((x - middle_x) ** 2 for x in xs)
    if not weight:
        return 0.0
    return sum((x - middle_x) * (y - middle_y) for x, y in zip(xs, ys, strict=True)) / weight


def _target(link: Path) -> str:
    """Return the target of a descriptor, such as ``/data/file`` or ``socket:[1]``; empty if it was
    closed meanwhile.
    """
    try:
        return str(link.readlink())
    except FileNotFoundError:
        return ""


def _kilobytes(text: str) -> dict[str, int]:
    """Return the numbers of lines such as ``VmRSS:  1234 kB``."""
    found = {}
    for line in text.splitlines():
        name, _, rest = line.partition(":")
        words = rest.split()
        if words and words[0].isdigit():
            found[name] = int(words[0])
    return found


def _megabytes(kilobytes: int) -> float:
    return round(kilobytes * 1024 / 1e6, 3)
