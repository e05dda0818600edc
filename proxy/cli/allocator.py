"""Allocator settings of server processes: how freed memory is kept and returned."""

from __future__ import annotations

import asyncio
import ctypes
import os
import time
from pathlib import Path

#: Blocks up to this size come from the heap; larger ones are mapped and unmapped one by one. By
#: default no frame is larger.
_HEAP_BLOCK_BYTES = 16 * 1024 * 1024
#: Freed memory kept at the end of the heap.
_KEPT_BYTES = 2 * _HEAP_BLOCK_BYTES

#: Seconds between two returns of freed memory, and the fraction of time they may take.
_GIVE_BACK_S, _GIVE_BACK_PART = 10.0, 1 / 1000
#: The same while resident memory grows: seconds between two looks, the growth that is worth a
#: return, and the fraction of time.
_LOOK_S, _WORTH_BYTES, _URGENT_PART = 0.5, 32 * 1024 * 1024, 1 / 50
_STATM, _PAGE_BYTES = Path("/proc/self/statm"), os.sysconf("SC_PAGE_SIZE")

# Names of glibc's mallopt.
_M_TRIM_THRESHOLD, _M_MMAP_THRESHOLD = -1, -3


def keep_freed_memory() -> bool:
    """Let glibc keep up to 32 MiB of freed memory; return whether it does.

    Responses are megabytes that are freed milliseconds later. Returning them to the system each
    time makes every page of the next response fault: with bulk readers, more than half of the
    processor time of brokers and proxies. ``MALLOC_…`` variables of the operator take precedence.
    """
    if any(name.startswith(("MALLOC_TRIM", "MALLOC_MMAP")) for name in os.environ):
        return False
    try:
        mallopt = ctypes.CDLL(None).mallopt
    except (AttributeError, OSError, TypeError):
        return False  # another libc
    return bool(
        mallopt(_M_MMAP_THRESHOLD, _HEAP_BLOCK_BYTES) and mallopt(_M_TRIM_THRESHOLD, _KEPT_BYTES)
    )


async def give_back_now_and_then(
    *, rest_s: float = _GIVE_BACK_S, look_s: float = _LOOK_S, worth_bytes: int = _WORTH_BYTES
) -> None:
    """Return free memory to the system: every *rest_s* seconds, and within *look_s* seconds once
    *worth_bytes* more are resident than after the last time; less often if it takes long.

    Without this, memory used once for reading ahead or for a large record would never be returned.
    Messages of megabytes that come and go leave gaps of their size in the heap, and gigabytes of
    them in the seconds of a rest. Ends at once if the C library does not support it.
    """
    try:
        trim = ctypes.CDLL(None).malloc_trim
    except (AttributeError, OSError, TypeError):
        return
    kept_bytes, rested_s, took_s = _resident_bytes(), 0.0, 0.0
    while True:
        step_s = min(look_s, rest_s)
        await asyncio.sleep(step_s)
        rested_s += step_s
        if _resident_bytes() - kept_bytes >= worth_bytes:
            due_s = took_s / _URGENT_PART
        else:
            due_s = max(rest_s, took_s / _GIVE_BACK_PART)
        if rested_s >= due_s:
            began = time.perf_counter()
            trim(0)
            took_s = time.perf_counter() - began
            kept_bytes, rested_s = _resident_bytes(), 0.0


def _resident_bytes() -> int:
    """Return the resident memory of this process; 0 where the system does not show it."""
    try:
        return int(_STATM.read_bytes().split()[1]) * _PAGE_BYTES
    except OSError:
        return 0
