"""The two clocks. Shells read them and hand the time to the pure parts."""

from __future__ import annotations

import time

# CLOCK_BOOTTIME goes on while the machine is suspended; a lock must not outlive a suspend.
_CLOCK = getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC)


def now_ns() -> int:
    """Monotonic nanoseconds, suspended time included, the same in all processes of a machine."""
    return time.clock_gettime_ns(_CLOCK)


def wall_ms() -> int:
    """Milliseconds since 1970: for time stamps that people and other machines read."""
    return time.time_ns() // 1_000_000
