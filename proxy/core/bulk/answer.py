"""What one answer with stored records is put together from: what is read next, and what counts.

Pure. A bulk reader asks for several queues; pulls of a broker give small pieces of each.

B1. A queue's records follow each other without a gap from the offset asked for. Where the broker
    passes over offsets, the queue's part ends; asked for the place behind it, the next answer has
    no records and a next offset that jumps. So a reader finds every jump between two answers.
B2. Records stay within the answer's bytes, but for one read, so that no message is stuck for ever.
B3. Queues are read in turn, an even share at a time: a long one keeps none from being answered.
B4. All records of a queue are of one life of its topic, which the answer tells. Where the topic was
    created again the queue's part ends, as in B1.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field

#: One read takes at most so much; brokers have lower limits of their own.
MAX_READ_BYTES = 1024 * 1024
MAX_READ_MESSAGES = 4096
#: An even share of the answer is read at once, but not less than this.
_MIN_READ_BYTES = 64 * 1024
#: An answer is full once less than this part of it is free.
_LEAST_PART = 16


@dataclass(frozen=True, slots=True)
class Read:
    """A wish: records of the queue number *place* from *offset* on."""

    place: int
    offset: int
    max_messages: int
    max_bytes: int


@dataclass(slots=True)
class Part:
    """What the answer has of one queue: ``chunks`` end before ``next_offset``."""

    asked: int
    next_offset: int
    chunks: list[bytes] = field(default_factory=list)
    life: int | None = None  # of the topic, where its broker tells


class BulkAnswer:
    """One answer in the making. Each ``next_read`` ends in ``on_read`` or ``on_failure``."""

    def __init__(
        self, offsets: Sequence[int], *, max_bytes: int, max_messages: int | None = None
    ) -> None:
        """*offsets* asked for, a place each; *max_messages* bounds those of one queue."""
        self.parts = [Part(offset, offset) for offset in offsets]
        self._max_messages = max_messages
        self._max_bytes = max_bytes
        self._share = min(MAX_READ_BYTES, max(_MIN_READ_BYTES, max_bytes // max(1, len(offsets))))
        self._turns = deque(range(len(offsets)))
        self._free = max_bytes  # neither held nor promised to a read under way
        self._least = max_bytes // _LEAST_PART  # what is left of a full answer is no read worth
        self._overshot = False

    @property
    def has_news(self) -> bool:
        """True if there are records, or a place to go on from that the reader does not know."""
        return any(part.next_offset != part.asked for part in self.parts)

    @property
    def size_bytes(self) -> int:
        """Bytes of all records."""
        return sum(len(chunk) for part in self.parts for chunk in part.chunks)

    def next_read(self) -> Read | None:
        """What to read now; None if nothing is left to read, or room for next to nothing."""
        if not self._turns or self._free <= self._least:
            return None
        return self._read(self._turns.popleft())

    def reads_again(self) -> list[Read]:
        """One read a queue, all at once: there was nothing, and they may wait for something."""
        self._turns.clear()
        return [self._read(place) for place in range(len(self.parts))]

    def _read(self, place: int) -> Read:
        part = self.parts[place]
        most = MAX_READ_MESSAGES
        if self._max_messages is not None:
            most = min(most, self._max_messages - (part.next_offset - part.asked))
        max_bytes = max(1, min(self._share, self._free))
        self._free -= max_bytes
        return Read(place, part.next_offset, most, max_bytes)

    def on_read(
        self,
        read: Read,
        records: bytes,
        *,
        next_offset: int,
        end_offset: int,
        life: int | None = None,
    ) -> None:
        """*read* brought *records*, which end before *next_offset*; the queue's end is known, and
        perhaps the *life* of its topic.
        """
        self._free += read.max_bytes
        part = self.parts[read.place]
        if part.chunks and life != part.life:
            return  # B4: the next answer tells it
        part.life = life
        if not records:
            if not part.chunks:  # B1: else the next answer tells it
                part.next_offset = next_offset
            return
        if len(records) > self._free:
            if self._overshot:
                return
            self._overshot = True
        self._free -= len(records)
        part.chunks.append(records)
        part.next_offset = next_offset
        full = self._max_messages is not None and next_offset - part.asked >= self._max_messages
        if next_offset < end_offset and not full:
            self._turns.append(read.place)

    def on_failure(self, read: Read) -> None:
        """*read* brought nothing: the queue is left as it is, for this answer."""
        self._free += read.max_bytes
