"""The monotonic clock and the wall clock, replaceable by ``use_clocks``.

Only shells read them; pure parts receive the time as an argument.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path

# CLOCK_BOOTTIME advances while the machine is suspended; a lock must not outlive a suspend.
_CLOCK = getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC)

_BOOT_ID = Path("/proc/sys/kernel/random/boot_id")

_monotonic_ns: Callable[[], int] = partial(time.clock_gettime_ns, _CLOCK)
_wall_ns: Callable[[], int] = time.time_ns


def now_ns() -> int:
    """Return monotonic nanoseconds, including suspended time; equal in a machine's processes."""
    return _monotonic_ns()


def boot_id() -> str:
    """Return the name of this boot of the machine, "" if it has none: ``now_ns`` counts from it."""
    try:
        return _BOOT_ID.read_text().strip()
    except OSError:
        return ""


def wall_ms() -> int:
    """Return milliseconds since 1970, for timestamps that people and other machines read."""
    return _wall_ns() // 1_000_000


def wall_ns() -> int:
    """Return nanoseconds since 1970."""
    return _wall_ns()


@contextmanager
def use_clocks(monotonic_ns: Callable[[], int], wall_ns: Callable[[], int]) -> Iterator[None]:
    """Use these clocks instead of the machine's, in the whole interpreter, while the context is
    open.
    """
    global _monotonic_ns, _wall_ns
    before = _monotonic_ns, _wall_ns
    _monotonic_ns, _wall_ns = monotonic_ns, wall_ns
    try:
        yield
    finally:
        _monotonic_ns, _wall_ns = before
