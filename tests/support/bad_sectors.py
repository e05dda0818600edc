"""A disk with a bad sector: reads that touch it fail, and all others succeed."""

from __future__ import annotations

import errno
import os
from pathlib import Path

import pytest


def break_sector(patch: pytest.MonkeyPatch, path: Path, start: int, end: int) -> None:
    """Let reads of the bytes from *start* to *end* of *path* fail until *patch* is undone."""
    broken = path.stat().st_ino
    pread = os.pread

    def read(descriptor: int, size: int, position: int) -> bytes:
        data = pread(descriptor, size, position)
        touches = position < end and start < position + len(data)
        if touches and os.fstat(descriptor).st_ino == broken:
            raise OSError(errno.EIO, os.strerror(errno.EIO))
        return data

    patch.setattr(os, "pread", read)
