"""The files of the commit log: their names, allocation and discovery."""

from __future__ import annotations

import os
from dataclasses import dataclass
from itertools import zip_longest
from pathlib import Path

from broker_core.errors import StoreError
from broker_core.private_files import FILE_MODE, create
from broker_core.store.files import sync_folder


@dataclass(slots=True)
class Segment:
    """One file of the log; ``start`` is the log offset of its first byte, also its name."""

    path: Path
    start: int
    capacity: int  # in bytes

    @property
    def end(self) -> int:
        """Start of the next segment."""
        return self.start + self.capacity

    def resize(self, capacity: int) -> None:
        """Assume a length of *capacity* bytes; the file itself is unchanged."""
        self.capacity = capacity


def allocate(segment: Segment) -> int:
    """Create the file in its full length, on disk; return the descriptor. Raise OSError."""
    descriptor = os.open(segment.path, os.O_RDWR | os.O_CREAT | os.O_TRUNC, FILE_MODE)
    try:
        os.posix_fallocate(descriptor, 0, segment.capacity)
        sync_folder(segment.path.parent)
    except OSError:
        os.close(descriptor)
        segment.path.unlink()
        raise
    return descriptor


def dropped_path(path: Path) -> Path:
    """Return the path for bytes of *path* that are not part of the log."""
    return path.with_suffix(".dropped")


def copy_aside(path: Path, position: int, size: int, *, to: Path) -> None:
    """Copy *size* bytes from *position* of *path* to the file *to*. Raise OSError."""
    if not size:
        return
    with path.open("rb") as source, create(to) as target:
        source.seek(position)
        while size and (piece := source.read(min(size, 1 << 20))):
            target.write(piece)
            size -= len(piece)


def find_segments(folder: Path, segment_bytes: int) -> list[Segment]:
    """Return the segments in *folder*, ascending. Raise StoreError if one in between is missing."""
    starts = sorted(int(p.name) for p in folder.iterdir() if p.name.isdigit())
    segments = []
    for start, following in zip_longest(starts, starts[1:]):
        path = folder / f"{start:020d}"
        size = path.stat().st_size
        if following is not None and start + size < following:
            raise StoreError(
                f"commit log {folder} has a hole: {path.name} ends at {start + size}, the next"
                f" segment starts at {following}; restore the missing file"
            )
        capacity = max(size, segment_bytes) if following is None else following - start
        segments.append(Segment(path, start, capacity))
    return segments


def used_bytes(path: Path, start: int) -> int:
    """Return the number of bytes of the file from *start* to its last nonzero one."""
    size = path.stat().st_size
    step = 1 << 20
    with path.open("rb") as file:
        for end in range(size, start, -step):
            begin = max(end - step, start)
            file.seek(begin)
            if used := len(file.read(end - begin).rstrip(b"\0")):
                return begin + used - start
    return 0
