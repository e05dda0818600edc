"""Pause of a target that is down: when it is tried again, and with how many messages. Pure.

The sender asks before each attempt. A target found down is not tried for a moment, then with one
message; the pause doubles each time, up to ``LONGEST_NS``. The first answer of any kind, even a
failure of that message, ends the pause.
"""

from __future__ import annotations

from dataclasses import dataclass

SHORTEST_NS = 100_000_000
LONGEST_NS = 10_000_000_000


@dataclass(slots=True)
class TargetPause:
    """One target. Times are ns."""

    down_since_ns: int | None = None
    """When it was found down, None while it answers."""
    reason: str = ""
    """Why it was last found down."""
    again_ns: int = 0
    """Earliest time of the next attempt."""
    _pause_ns: int = 0

    def places(self, wanted: int, *, under_way: int, now_ns: int) -> int:
        """Return how many of *wanted* attempts may begin now, besides those *under way*."""
        if self.down_since_ns is None:
            return wanted
        return 0 if under_way or now_ns < self.again_ns else min(wanted, 1)

    def found_down(self, reason: str, *, began_ns: int, now_ns: int) -> bool:
        """Note that an attempt begun at *began_ns* did not reach the target. Return True if this is
        news.

        Attempts that were under way when the target was found down are ignored.
        """
        news = self.down_since_ns is None
        if not news and began_ns < self.again_ns:
            return False
        self.down_since_ns = now_ns if self.down_since_ns is None else self.down_since_ns
        self.reason = reason
        self._pause_ns = min(max(SHORTEST_NS, 2 * self._pause_ns), LONGEST_NS)
        self.again_ns = now_ns + self._pause_ns
        return news

    def answered(self, *, began_ns: int) -> bool:
        """Note that an attempt begun at *began_ns* got an answer. Return True if the target was
        down.

        Attempts that began before it was found down are ignored.
        """
        if self.down_since_ns is None or began_ns < self.down_since_ns:
            return False
        self.down_since_ns, self.reason = None, ""
        self.again_ns = self._pause_ns = 0
        return True
