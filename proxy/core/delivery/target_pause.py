"""When a target that was found down is tried again, and with how many messages at a time. Pure.

Whoever delivers to it asks before each attempt. Found down, the target is left alone for a moment,
then one message tries it; each time it is still down the moment doubles, up to ``LONGEST_NS``. The
first answer of any kind, a failure of that message too, ends it: the target is there.
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
    """What it was found down by, last."""
    again_ns: int = 0
    """Not before then is it tried."""
    _pause_ns: int = 0

    def places(self, wanted: int, *, under_way: int, now_ns: int) -> int:
        """How many of *wanted* attempts may begin now, beside those *under way*."""
        if self.down_since_ns is None:
            return wanted
        return 0 if under_way or now_ns < self.again_ns else min(wanted, 1)

    def found_down(self, reason: str, *, began_ns: int, now_ns: int) -> bool:
        """An attempt that began then did not reach it; True if nobody knew that it is down.

        Those that were under way beside the first one to find out say nothing new.
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
        """An attempt that began then got an answer; True if the target was down until now.

        One that began before it was found down says nothing of now.
        """
        if self.down_since_ns is None or began_ns < self.down_since_ns:
            return False
        self.down_since_ns, self.reason = None, ""
        self.again_ns = self._pause_ns = 0
        return True
