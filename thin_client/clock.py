"""The client's clock. Leases are counted on it, so it goes on while the machine is suspended."""

from __future__ import annotations

import time

_CLOCK = getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC)


def wall_s() -> float:
    """Seconds since 1970."""
    return time.clock_gettime(time.CLOCK_REALTIME)


def now_ns() -> int:
    """Monotonic nanoseconds, suspended time included."""
    return time.clock_gettime_ns(_CLOCK)
