"""What the connections of a process make it hold, and what it refused for that. No I/O, no clock.

Counted are bytes of requests, from the moment that their length is known until they are answered,
and bytes of answers that could not leave at once. What one connection can hold is bounded by
itself: a request (``max_frame_bytes``), 64 KiB and one read behind it, and one answer.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from proxy.errors import Overloaded

#: The limits that refuse requests, and those that end connections, by the names of their settings.
REFUSING = ("max_inflight_bytes", "max_requests_per_s_per_address", "max_waiting_pulls")
DROPPING = ("slow_request_s", "slow_reader_s", "dead_peer_s")


def _none_of(limits: tuple[str, ...]) -> Callable[[], dict[str, int]]:
    return lambda: dict.fromkeys(limits, 0)


@dataclass(slots=True, eq=False)
class Load:
    """Of one process. ``used`` and ``limit`` in bytes; ``refused`` requests and ``dropped``
    connections by the limit that they reached.
    """

    limit: int
    used: int = 0
    #: Called when there is room again, after there was none.
    on_room: Callable[[], None] | None = None
    refused: dict[str, int] = field(default_factory=_none_of(REFUSING))
    dropped: dict[str, int] = field(default_factory=_none_of(DROPPING))

    @property
    def is_over(self) -> bool:
        """Whether there is no room for more."""
        return self.used > self.limit

    def call_on_room(self, callback: Callable[[], None]) -> None:
        """Call *callback* whenever there is room again, after there was none."""
        self.on_room = callback

    def figures(self) -> dict[str, dict[str, int]]:
        """What was refused and dropped, by limit."""
        return {"refused": self.refused, "dropped": self.dropped}

    def change(self, by_bytes: int) -> None:
        """So much more is held, or with a negative number less."""
        was_over = self.used > self.limit
        self.used += by_bytes
        if was_over and self.used <= self.limit and self.on_room is not None:
            self.on_room()

    def over(self) -> Overloaded:
        """Count a request that there is no room for, and return what its client is told."""
        limit = "max_inflight_bytes"
        return self.refuse(
            limit,
            f"this proxy holds {self.used} bytes of requests and answers, more than its setting"
            f" limits.{limit} lets ({self.limit}): try again later, or at another proxy",
        )

    def refuse(self, limit: str, sentence: str) -> Overloaded:
        """Count a request that *limit* refuses, and return what its client is told."""
        self.refused[limit] += 1
        return Overloaded(limit, sentence)
