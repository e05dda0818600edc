"""The client's clock. It also runs while the machine is suspended, because leases expire then too.

It is the machine's clock, unless ``use_clocks`` sets another one, as simulations do.
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
    """Return whether it is the machine's clock, by which threads can wait."""
    return _monotonic_ns is _machine_ns


def wall_s() -> float:
    """Return seconds since 1970."""
    return _wall_ns() / 1e9


def now_ns() -> int:
    """Return monotonic nanoseconds, including suspended time."""
    return _monotonic_ns()


def reader() -> Callable[[], int]:
    """Return the function that ``now_ns`` calls, for loops that call it for every message."""
    return _monotonic_ns


@contextmanager
def use_clocks(monotonic_ns: Callable[[], int], wall_ns: Callable[[], int]) -> Iterator[None]:
    """Use these clocks instead of the machine's in the whole interpreter within the context."""
    global _monotonic_ns, _wall_ns
    before = _monotonic_ns, _wall_ns
    _monotonic_ns, _wall_ns = monotonic_ns, wall_ns
    try:
        yield
    finally:
        _monotonic_ns, _wall_ns = before
