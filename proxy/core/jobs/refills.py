"""One pass over a queue's log to read spilled messages again. Pure.

Chains interleave, so the messages of one key lie between those of others. A pass goes from low to
high offsets for many keys at once. It reads through unwanted messages if that costs less than
another request: a request costs as much as a few hundred small records, or as 32 KiB of large ones.
A key leaves the pass when its last wanted message has been passed.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from heapq import heapify, heappop

from broker_core.remoting.message import StoredMessage

#: Most messages per request.
MAX_MESSAGES = 256
#: Most offsets and bytes of one pass, beyond its first refill; the rest waits for the next pass.
_OFFSETS, _BYTES = 2048, 16 << 20
#: Unwanted records and bytes that cost less than a request.
_PASSED, _PASSED_BYTES = 128, 32 << 10


@dataclass(frozen=True, slots=True)
class Refill:
    """Spilled jobs whose turn comes: read the messages at these rising *offsets* again.

    *unloaded*: it is the message of one unloaded job.
    """

    key: bytes
    offsets: tuple[int, ...]
    unloaded: bool = False


def how_many(wanted: Sequence[Refill], record_bytes: int, *, memory_bytes: int = _BYTES) -> int:
    """Return how many of *wanted*, from the first, fit in one pass, at least one.

    Args:
        wanted: refills in the order of their turns.
        record_bytes: average size of a record.
        memory_bytes: memory left for the pass.
    """
    most = min(_OFFSETS, min(_BYTES, memory_bytes) // max(1, record_bytes))
    offsets = 0
    for taken, refill in enumerate(wanted):
        offsets += len(refill.offsets)
        if taken and offsets > most:
            return taken
    return len(wanted)


class RefillPass:
    """The remaining reads of one pass, and the messages found for incomplete refills."""

    def __init__(self, refills: Sequence[Refill]) -> None:
        self._offsets = sorted(offset for refill in refills for offset in refill.offsets)
        self._at = 0  # index in ``_offsets`` of the first one not yet read
        self._found: dict[int, StoredMessage] = {}
        # By last offset; the number breaks ties, so that refills are never compared.
        self._open = [(refill.offsets[-1], number, refill) for number, refill in enumerate(refills)]
        heapify(self._open)

    def next_read(self, record_bytes: int) -> tuple[int, int] | None:
        """Return the offset to read at and the number of messages, at most 256; None at the end.

        *record_bytes*: average size of a record in this queue.
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
        """Take the *messages* of the last read, which covered all offsets below *next_offset*.

        Return the refills that are complete, each with those of its messages that still exist.
        """
        before = self._at
        self._at = at = bisect_left(
            self._offsets, max(self._offsets[before] + 1, next_offset), before
        )
        asked = set(self._offsets[before:at])  # most messages read may be unwanted
        self._found |= {m.queue_offset: m for m in messages if m.queue_offset in asked}
        reached = self._offsets[at] if at < len(self._offsets) else None
        complete = []
        while self._open and (reached is None or self._open[0][0] < reached):
            refill = heappop(self._open)[2]
            there = (self._found.pop(offset, None) for offset in refill.offsets)
            complete.append((refill, [message for message in there if message is not None]))
        return complete

    def met_damage(self, next_offset: int) -> list[tuple[Refill, list[StoredMessage], int]]:
        """Leave out the offsets of the last read, whose messages below *next_offset* are damaged.

        Return the refills with one of them, which leave the pass: each up to the first damaged
        message, its messages up to there, and the offset of the damaged one.
        """
        before, offsets = self._at, self._offsets
        self._at = bisect_left(offsets, max(offsets[before] + 1, next_offset), before)
        damaged = set(offsets[before : self._at])
        hit = [each for each in self._open if not damaged.isdisjoint(each[2].offsets)]
        self._open = [each for each in self._open if damaged.isdisjoint(each[2].offsets)]
        heapify(self._open)
        behind = {offset for _, _, refill in hit for offset in refill.offsets}
        offsets[self._at :] = [each for each in offsets[self._at :] if each not in behind]
        left = []
        for _, _, refill in hit:
            at = next(n for n, offset in enumerate(refill.offsets) if offset in damaged)
            there = (self._found.pop(offset, None) for offset in refill.offsets[:at])
            messages = [message for message in there if message is not None]
            first = replace(refill, offsets=refill.offsets[:at])
            left.append((first, messages, refill.offsets[at]))
        return left
