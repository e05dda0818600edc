"""One pass over a queue's log for spilled messages whose turn comes. Pure.

Chains interleave, so that what one key wants stands between messages of others. A pass goes from
low to high offsets for many keys at once, and reads through what nobody wants if that costs less
than another request: a request costs as much as some hundred small records, or as 32 KiB of large
ones. A key's messages are complete, and leave the pass, when it has come past the last of them.
"""

from __future__ import annotations

import heapq
from bisect import bisect_left
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from broker_core.remoting.message import StoredMessage

#: Messages that one request asks for at most.
MAX_MESSAGES = 256
#: What one pass wants at most, beyond its first refill: what is wanted later waits for the next.
_OFFSETS, _BYTES = 2048, 16 << 20
#: Records that nobody wants and that cost less than a request.
_PASSED, _PASSED_BYTES = 128, 32 << 10


@dataclass(frozen=True, slots=True)
class Refill:
    """Spilled jobs whose turn comes: read the messages at these rising *offsets* again.

    *set_down*: it is the message of one job, which is there without it.
    """

    key: bytes
    offsets: tuple[int, ...]
    set_down: bool = False


def how_many(wanted: Sequence[Refill], record_bytes: int, *, memory_bytes: int = _BYTES) -> int:
    """How many of *wanted*, from the first, one pass serves where records have *record_bytes*, and
    *memory_bytes* are left for them: one at least.
    """
    most = min(_OFFSETS, min(_BYTES, memory_bytes) // max(1, record_bytes))
    offsets = 0
    for taken, refill in enumerate(wanted):
        offsets += len(refill.offsets)
        if taken and offsets > most:
            return taken
    return len(wanted)


class RefillRound:
    """What one pass has still to read, and what it found for those that are not complete."""

    def __init__(self, refills: Sequence[Refill]) -> None:
        self._offsets = sorted(offset for refill in refills for offset in refill.offsets)
        self._at = 0  # of ``_offsets``: the first that is not read
        self._found: dict[int, StoredMessage] = {}
        # By their last offset; the number keeps equal ones from being compared any further.
        self._open = [(refill.offsets[-1], number, refill) for number, refill in enumerate(refills)]
        heapq.heapify(self._open)

    def next_read(self, record_bytes: int) -> tuple[int, int] | None:
        """The offset to read at and how many messages from there, at most 256; None at the end.

        *record_bytes*: how long a record of this queue is, about.
        """
        offsets, at = self._offsets, self._at
        if at == len(offsets):
            return None
        far = max(1, min(_PASSED, _PASSED_BYTES // max(1, record_bytes)))
        first = last = offsets[at]
        while (
            at < len(offsets) and offsets[at] - last <= far and offsets[at] - first < MAX_MESSAGES
        ):
            last = offsets[at]
            at += 1
        return first, last - first + 1

    def was_read(
        self, messages: Iterable[StoredMessage], next_offset: int
    ) -> list[tuple[Refill, list[StoredMessage]]]:
        """The read that was due brought *messages*, and all below *next_offset* is known now.

        Returns what is complete, each with those of its messages that are still there.
        """
        before = self._at
        self._at = at = bisect_left(
            self._offsets, max(self._offsets[before] + 1, next_offset), before
        )
        asked = set(self._offsets[before:at])  # most of what was brought may be for nobody
        self._found |= {m.queue_offset: m for m in messages if m.queue_offset in asked}
        reached = self._offsets[at] if at < len(self._offsets) else None
        complete = []
        while self._open and (reached is None or self._open[0][0] < reached):
            refill = heapq.heappop(self._open)[2]
            there = (self._found.pop(offset, None) for offset in refill.offsets)
            complete.append((refill, [message for message in there if message is not None]))
        return complete
