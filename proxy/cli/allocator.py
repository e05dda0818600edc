"""How a process that serves deals with freed memory."""

from __future__ import annotations

import asyncio
import ctypes
import os
import time

#: Blocks up to this come from the heap; above, each one is mapped and unmapped. Larger than any
#: frame by default.
_HEAP_BLOCK_BYTES = 16 * 1024 * 1024
#: So much freed memory at the heap's end is kept.
_KEPT_BYTES = 2 * _HEAP_BLOCK_BYTES

#: Seconds between two times that all freed memory goes back, and what part of the time that takes.
_GIVE_BACK_S, _GIVE_BACK_PART = 10.0, 1 / 1000

# Names of glibc's mallopt.
_M_TRIM_THRESHOLD, _M_MMAP_THRESHOLD = -1, -3


def keep_freed_memory() -> bool:
    """Let glibc keep up to 32 MiB that were freed; True if it does.

    Answers are megabytes, copied once or twice and freed milliseconds later. Given back to the
    system each time, every page of the next one costs a fault: with bulk readers more than half of
    a broker's and a proxy's processor time. An operator's own ``MALLOC_…`` variables count first.
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


async def give_back_now_and_then(*, rest_s: float = _GIVE_BACK_S) -> None:
    """Every *rest_s* seconds, or more rarely where it takes long, give what is free back to the
    system: what was read ahead, or packed into a large record, would stay with this process for
    ever. Ends at once where the library cannot.
    """
    try:
        trim = ctypes.CDLL(None).malloc_trim
    except (AttributeError, OSError, TypeError):
        return
    took_s = 0.0
    while True:
        await asyncio.sleep(max(rest_s, took_s / _GIVE_BACK_PART))
        began = time.perf_counter()
        trim(0)
        took_s = time.perf_counter() - began
