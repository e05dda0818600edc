"""The client's clock. Leases are counted on it, so it goes on while the machine is suspended.

It is the machine's unless ``use_clocks`` was told of another one, as a simulation does.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial

_CLOCK = getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC)

_machine_ns: Callable[[], int] = partial(time.clock_gettime_ns, _CLOCK)
_monotonic_ns = _machine_ns
_wall_ns: Callable[[], int] = time.time_ns


def is_real() -> bool:
    """Whether it is the machine's clock, so that threads can wait for it."""
    return _monotonic_ns is _machine_ns


def wall_s() -> float:
    """Seconds since 1970."""
    return _wall_ns() / 1e9


def now_ns() -> int:
    """Monotonic nanoseconds, suspended time included."""
    return _monotonic_ns()


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
