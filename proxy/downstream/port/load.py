"""Memory of all client connections of a process, and the requests refused for it. No I/O, no clock.

Counted are requests, from the time that their length is known until their answer, and answers that
could not be sent at once. Each connection has its own bounds: one request (``max_frame_bytes``), 64
KiB and one read after it, and one answer.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from proxy.errors import Overloaded

#: Limits that refuse requests, and limits that close connections, by setting.
REFUSING = (
    "max_inflight_bytes",
    "max_requests_per_s_per_address",
    "max_decoding_share_per_address",
    "max_waiting_pulls",
)
DROPPING = ("slow_request_s", "slow_reader_s", "dead_peer_s")


def _none_of(limits: tuple[str, ...]) -> Callable[[], dict[str, int]]:
    return lambda: dict.fromkeys(limits, 0)


@dataclass(slots=True, eq=False)
class Load:
    """Memory of one process. ``used`` and ``limit`` in bytes; ``refused`` requests and ``dropped``
    connections by limit.
    """

    limit: int
    used: int = 0
    #: Called when there is room again.
    on_room: Callable[[], None] | None = None
    refused: dict[str, int] = field(default_factory=_none_of(REFUSING))
    dropped: dict[str, int] = field(default_factory=_none_of(DROPPING))

    @property
    def is_over(self) -> bool:
        """Whether the limit is reached."""
        return self.used > self.limit

    def call_on_room(self, callback: Callable[[], None]) -> None:
        """Call *callback* whenever room becomes available again."""
        self.on_room = callback

    def figures(self) -> dict[str, dict[str, int]]:
        """Return the refused and dropped counts by limit."""
        return {"refused": self.refused, "dropped": self.dropped}

    def change(self, by_bytes: int) -> None:
        """Add *by_bytes*, which may be negative, to the held bytes."""
        was_over = self.used > self.limit
        self.used += by_bytes
        if was_over and self.used <= self.limit and self.on_room is not None:
            self.on_room()

    def over(self) -> Overloaded:
        """Count a request over the memory limit, and return its error."""
        limit = "max_inflight_bytes"
        return self.refuse(
            limit,
            f"this proxy holds {self.used} bytes of requests and answers, above its setting"
            f" limits.{limit} ({self.limit}): try again later, or at another proxy",
        )

    def refuse(self, limit: str, sentence: str) -> Overloaded:
        """Count a request refused by *limit*, and return its error."""
        self.refused[limit] += 1
        return Overloaded(limit, sentence)
