"""How long an answer waits for further messages under load, so that fewer answers carry them. Pure.

An answer costs several times as much as a message in it. While messages are frequent, a short wait
lets each answer carry more of them; while they are rare, it would only delay them. So an answer
waits if the messages expected meanwhile are worth it:

1. at least ``worth`` of them, and no fewer than are already there: a backlog needs no wait;
2. with room for them in the answer.

Messages are expected at their rate of late: each one counts for 1/e after 50 ms.
"""

from __future__ import annotations

from math import exp

_MEMORY_NS = 50_000_000


class BatchWait:
    """Decides on one stream of messages. Times are those of ``now_ns``."""

    def __init__(self, wait_ms: int, *, worth: int) -> None:
        """Wait for *wait_ms* each time (0: never) if at least *worth* messages are expected."""
        self.wait_ns = wait_ms * 1_000_000
        #: Number of waits so far.
        self.waits = 0
        self._worth = worth
        self._recent = 0.0  # messages within the memory, weighted by age
        self._at_ns = 0

    @property
    def is_busy(self) -> bool:
        """False if ``begin`` would return 0 in any case. Cheap, where *ready* is not."""
        return self._recent * self.wait_ns >= self._worth * _MEMORY_NS

    def came(self, messages: int, now_ns: int) -> None:
        """Count *messages* that came now."""
        if self.wait_ns:
            self._recent = self._recent_at(now_ns) + messages
            self._at_ns = now_ns

    def begin(self, now_ns: int, *, ready: int, room: int) -> int:
        """Return for how many ns an answer waits from now on, 0 if it does not.

        Args:
            now_ns: the time
            ready: messages that it can already carry
            room: most messages that it can carry
        """
        least = max(self._worth, ready)
        if not self.is_busy or room < ready + least:
            return 0
        if self._recent_at(now_ns) * self.wait_ns < least * _MEMORY_NS:
            return 0
        self.waits += 1
        return self.wait_ns

    def _recent_at(self, now_ns: int) -> float:
        return self._recent * exp(min(0, self._at_ns - now_ns) / _MEMORY_NS)
