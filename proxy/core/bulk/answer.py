"""Assembly of one answer with stored records: the next read, and the records to keep. Pure.

A bulk reader asks for several queues; a broker's pulls return small pieces of each.

B1. A queue's records are contiguous from the requested offset on. Where the broker skips offsets,
    the queue's part ends; a request for the place behind it gets no records and a next offset that
    jumps. So readers see every jump between two answers.
B2. Records stay within the answer's bytes, except for one read, so that no message gets stuck.
B3. Queues are read in turn, an even share at a time: a long one does not keep others waiting.
B4. All records of a queue are of one life of its topic, which the answer contains. Where the topic
    was created again the queue's part ends, as in B1.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field

#: Limits of one read; brokers have lower limits of their own.
MAX_READ_BYTES = 1024 * 1024
MAX_READ_MESSAGES = 4096
#: An even share of the answer is read at once, but at least this much.
_MIN_READ_BYTES = 64 * 1024
#: An answer is full once less than this part (1/n) of it is free.
_LEAST_PART = 16


@dataclass(frozen=True, slots=True)
class Read:
    """A read to make: records of the queue number *place* from *offset* on."""

    place: int
    offset: int
    max_messages: int
    max_bytes: int


@dataclass(slots=True)
class Part:
    """Records of one queue: ``chunks`` end before ``next_offset``."""

    asked: int
    next_offset: int
    chunks: list[bytes] = field(default_factory=list)
    life: int | None = None  # of the topic, if its broker reports it


class BulkAnswer:
    """One answer being assembled. Each ``next_read`` ends in ``on_read`` or ``on_failure``."""

    def __init__(
        self, offsets: Sequence[int], *, max_bytes: int, max_messages: int | None = None
    ) -> None:
        """Start with the requested *offsets*, one per queue; *max_messages* limits each queue."""
        self.parts = [Part(offset, offset) for offset in offsets]
        self._max_messages = max_messages
        self._max_bytes = max_bytes
        self._share = min(MAX_READ_BYTES, max(_MIN_READ_BYTES, max_bytes // max(1, len(offsets))))
        self._turns = deque(range(len(offsets)))
        self._free = max_bytes  # neither used nor reserved for a read under way
        self._least = max_bytes // _LEAST_PART  # less than this is not worth a read
        self._overshot = False
        #: Bytes that were read for it, which may be more than it contains.
        self.read_bytes = 0

    @property
    def has_news(self) -> bool:
        """True if there are records, or a next offset that differs from the requested one."""
        return any(part.next_offset != part.asked for part in self.parts)

    def next_read(self) -> Read | None:
        """Return the next read; None if nothing is left to read, or almost no room."""
        if not self._turns or self._free <= self._least:
            return None
        return self._read(self._turns.popleft())

    def reads_again(self) -> list[Read]:
        """Return one read per queue at once: they found nothing and may now wait for messages."""
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
        read_bytes: int | None = None,
    ) -> None:
        """Add *records*, which end before *next_offset*. *end_offset* is the end of the queue,
        *life* that of its topic if known, *read_bytes* the size of what was read, by default that
        of *records*.
        """
        self._free += read.max_bytes
        self.read_bytes += len(records) if read_bytes is None else read_bytes
        part = self.parts[read.place]
        if part.chunks and life != part.life:
            return  # B4: left to the next answer
        part.life = life
        if not records:
            if not part.chunks:  # B1: otherwise left to the next answer
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
        """Leave the queue unchanged in this answer, because *read* failed."""
        self._free += read.max_bytes
