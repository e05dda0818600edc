"""The two clocks. Shells read them and hand the time to the pure parts.

They are the machine's unless ``use_clocks`` was told of others, as a simulation does.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial

# CLOCK_BOOTTIME goes on while the machine is suspended; a lock must not outlive a suspend.
_CLOCK = getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC)

_monotonic_ns: Callable[[], int] = partial(time.clock_gettime_ns, _CLOCK)
_wall_ns: Callable[[], int] = time.time_ns


def now_ns() -> int:
    """Monotonic nanoseconds, suspended time included, the same in all processes of a machine."""
    return _monotonic_ns()


def wall_ms() -> int:
    """Milliseconds since 1970: for time stamps that people and other machines read."""
    return _wall_ns() // 1_000_000


def wall_ns() -> int:
    """Nanoseconds since 1970."""
    return _wall_ns()


@contextmanager
def use_clocks(monotonic_ns: Callable[[], int], wall_ns: Callable[[], int]) -> Iterator[None]:
    """Read these clocks instead of the machine's, in all of the interpreter, until the end."""
    global _monotonic_ns, _wall_ns
    before = _monotonic_ns, _wall_ns
    _monotonic_ns, _wall_ns = monotonic_ns, wall_ns
    try:
        yield
    finally:
        _monotonic_ns, _wall_ns = before
