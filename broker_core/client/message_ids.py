"""Unique ids of messages, in the layout of RocketMQ's Java clients.

RocketMQ's tools read the creation time out of an id (to search from there), hence the layout: 4
random bytes (Java: the IP address), the process id (2 bytes), 4 random bytes (Java: a hash), the
milliseconds since the month began in local time (4), a counter (2); as 32 upper-case hex digits.
Unique while a process makes fewer than 65,536 ids per millisecond.
"""

from __future__ import annotations

import struct
from datetime import UTC, datetime

from broker_core import chance
from broker_core.clock import wall_ms

_LAYOUT = struct.Struct(">4sH4sIH")
_MONTH_MS = 28 * 24 * 3600 * 1000  # no month is shorter


class MessageIds:
    """Generator of ids. Two generators, also in forked processes, never make the same id."""

    __slots__ = ("_counter", "_last_ms", "_month_ms", "_pid", "_random")

    def __init__(self) -> None:
        self._counter = 0
        self._last_ms = 0
        self._month_ms = 0
        self._pid = -1
        self._random = b""

    def new(self) -> str:
        """Return an id that was never returned before."""
        if self._pid != (pid := chance.process_id()):  # first id, or forked
            self._pid = pid
            self._random = chance.token(8)
        # Never backwards: with a clock set back, time and counter could repeat.
        self._last_ms = now_ms = max(self._last_ms, wall_ms())
        if not 0 <= now_ms - self._month_ms < _MONTH_MS:
            self._month_ms = _month_start_ms(now_ms)
        self._counter = (self._counter + 1) & 0xFFFF
        return (
            _LAYOUT.pack(
                self._random[:4],
                self._pid & 0xFFFF,
                self._random[4:],
                now_ms - self._month_ms,
                self._counter,
            )
            .hex()
            .upper()
        )


def _month_start_ms(now_ms: int) -> int:
    local = datetime.fromtimestamp(now_ms / 1000, tz=UTC).astimezone()
    start = local.replace(day=1, hour=0, minute=0, second=0, microsecond=0, tzinfo=None)
    return int(start.timestamp() * 1000)
