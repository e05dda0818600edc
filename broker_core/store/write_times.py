"""Dates of the files of a log that were written while the wall clock was behind.

The system dates a file by the wall clock at its last write, and retention goes by these dates. A
file that was written while the clock was a week behind would expire once the clock is right again.
"""

from __future__ import annotations

import os
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path

_MS = 1_000_000


class WriteTimes:
    """The dates of files at the last look; look regularly. Blocks."""

    def __init__(self, paths: Iterable[Path]) -> None:
        """Take the dates of *paths* as they are. Raises OSError."""
        self._seen = {path: path.stat().st_mtime_ns for path in paths}

    def correct(self, paths: Iterable[Path], *, now_ms: int, tolerance_ms: int) -> None:
        """Date those of *paths* that were written since the last look as written at *now_ms*, ms
        since 1970, if their date is more than *tolerance_ms* before it.

        A later date stays: it keeps the file longer, which loses nothing. Files that have been
        deleted are left out. Raises OSError.
        """
        seen = {}
        for path in paths:
            with suppress(FileNotFoundError):
                dated_ns = path.stat().st_mtime_ns
                is_new = self._seen.get(path) != dated_ns
                if is_new and dated_ns // _MS < now_ms - tolerance_ms:
                    dated_ns = now_ms * _MS
                    _date(path, dated_ns)
                seen[path] = dated_ns
        self._seen = seen


def _date(path: Path, dated_ns: int) -> None:
    os.utime(path, ns=(dated_ns, dated_ns))
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)  # otherwise a power loss may undo it
    finally:
        os.close(descriptor)
