"""File utilities: complete reads and writes, durable folders, a bounded set of open files."""

from __future__ import annotations

import os
from collections import OrderedDict
from pathlib import Path

from broker_core.private_files import FILE_MODE


def write_at(descriptor: int, data: bytes | memoryview, position: int) -> None:
    """Write all of *data* at *position*. Raise OSError on failure, perhaps after a partial
    write.
    """
    written = os.pwrite(descriptor, data, position)
    while written < len(data):
        written += os.pwrite(descriptor, memoryview(data)[written:], position + written)


def sync_folder(folder: Path) -> None:
    """Make created, renamed and deleted entries of *folder* durable."""
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def sync_file(path: Path) -> None:
    """Make the content of *path* durable; a file deleted meanwhile needs no sync."""
    try:
        descriptor = os.open(path, os.O_RDONLY)
    except FileNotFoundError:
        return
    try:
        os.fdatasync(descriptor)
    finally:
        os.close(descriptor)


class OpenFiles:
    """Descriptors by path, opened for reading and writing; the least recently used is closed first.

    Thousands of queues have more files than a process may open. One thread only.
    """

    def __init__(self, *, limit: int = 256, read_only: bool = False) -> None:
        self._limit = limit
        self._mode = os.O_RDONLY if read_only else os.O_RDWR
        self._descriptors: OrderedDict[Path, int] = OrderedDict()

    def descriptor(self, path: Path, *, create: bool = False) -> int:
        """Return an open descriptor, valid until the next call. Raise OSError as ``os.open``."""
        descriptor = self._descriptors.get(path)
        if descriptor is None:
            flags = self._mode | (os.O_CREAT if create else 0)
            descriptor = os.open(path, flags, FILE_MODE)
            self._descriptors[path] = descriptor
            if len(self._descriptors) > self._limit:
                os.close(self._descriptors.popitem(last=False)[1])
        else:
            self._descriptors.move_to_end(path)
        return descriptor

    def forget(self, path: Path) -> None:
        """Close *path* if it is open, because it is about to be deleted or replaced."""
        if (descriptor := self._descriptors.pop(path, None)) is not None:
            os.close(descriptor)

    def close(self) -> None:
        """Close all descriptors."""
        while self._descriptors:
            os.close(self._descriptors.popitem()[1])
