"""Reads a store: ranges of a queue as slices of the log, never decoded."""

from __future__ import annotations

import struct
from bisect import bisect_right
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from enum import Enum
from itertools import accumulate, compress, count, pairwise
from operator import ne, sub
from typing import NamedTuple

from broker_core.errors import StoreError
from broker_core.names import Topic
from broker_core.remoting.message import (
    FIXED_BYTES,
    MAGIC_V1,
    MAGIC_V2,
    StoredMessage,
    queue_offset_of,
    store_ms_of,
)
from broker_core.remoting.record_fields import fields_of
from broker_core.store.commit_log import FILLER, CommitLog
from broker_core.store.consume_queue import ENTRY, LOST_BYTES, ConsumeQueue
from broker_core.store.consume_queues import ConsumeQueues
from broker_core.store.damage import DamagedMessages
from broker_core.store.index_repair import IndexRepair
from broker_core.store.record_check import (
    Expected,
    NotIntact,
    find_damage,
    first_damage,
    intact_message,
)

#: Bytes of one answer; the first message is returned whatever its size.
MAX_READ_BYTES = 1024 * 1024
#: Entries examined by one filtered read; bounds the time of a read without a match (1 to 2 ms).
_SCAN_ENTRIES = 8192
#: The same for a read that examines the records, and the bytes read at once.
PASSING_ENTRIES, _PASSING_BYTES = 1024, 4 * 1024 * 1024
_PIECE_BYTES = 256 * 1024
_HEAD_BYTES = 88
_NEAR_OFFSETS = 256
#: Errors of a read at an invalid place; an OSError may also be of the disk.
_UNREADABLE = (StoreError, OSError, ValueError, OverflowError, MemoryError)


class ReadStatus(Enum):
    """The outcome of a read."""

    FOUND = "found"
    NO_MATCH = "no message of the range passes the filter"
    END = "the offset is the next one to be written"
    NO_MESSAGE = "the queue never had a message"
    TOO_SMALL = "the offset is below the oldest message"
    TOO_BIG = "the offset is beyond the next one to be written"
    DAMAGED = "the messages at the offset are damaged on disk"
    EXAMINED = "the index of the queue is under examination"


class ReadResult(NamedTuple):
    """The result of a read.

    ``body`` contains ``messages`` stored messages; the next read continues at ``next_offset``.
    With DAMAGED, the damaged messages end at ``next_offset``; ``StoreReader.damaged`` has them.
    """

    status: ReadStatus
    next_offset: int
    min_offset: int
    max_offset: int
    body: bytes = b""
    messages: int = 0


class _Place(NamedTuple):
    """A queue that is read, and its range."""

    topic: Topic
    queue_id: int
    queue: ConsumeQueue
    low: int
    high: int


class StoreReader:
    """Read access to the messages of a store. One thread only."""

    def __init__(
        self,
        log: CommitLog,
        queues: ConsumeQueues,
        *,
        next_offsets: Mapping[ConsumeQueue, int] | None = None,
        damaged: DamagedMessages | None = None,
        on_repair: Callable[[ConsumeQueue], None] = lambda queue: None,
    ) -> None:
        """Read *log* and *queues*; *next_offsets* are those of queues with invisible messages.

        Damaged messages that a read finds are added to *damaged*. *on_repair* is called when wrong
        entries of a queue were replaced.
        """
        self._next_offsets = {} if next_offsets is None else next_offsets
        #: Damaged messages known so far.
        self.damaged = DamagedMessages() if damaged is None else damaged
        #: Number of reads so far that fetched messages; shows whether consumers are served.
        self.reads = 0
        self._repair = IndexRepair(log, self.damaged, on_repair=on_repair)
        queues.repair_with(self._repair.repair)
        self._log = log
        self._queues = queues
        self._min_offsets: dict[ConsumeQueue, int] = {}

    def read(
        self,
        topic: Topic,
        queue_id: int,
        offset: int,
        *,
        max_messages: int,
        max_bytes: int = MAX_READ_BYTES,
        tag_hashes: frozenset[int] | None = None,
        passes: Callable[[bytes], bool] | None = None,
        examined: int = PASSING_ENTRIES,
    ) -> ReadResult:
        """Read messages from *offset* on. Raise OSError if the disk fails.

        About 0.1 µs a message, 0.6 µs if other messages are between them; with *passes* about 2 µs
        plus its own time.

        Args:
            topic: its name
            queue_id: id of the queue
            offset: of the first message
            max_messages: most messages returned
            max_bytes: most bytes returned, except for a larger first message
            tag_hashes: hashes of the wanted tags; None: all messages
            passes: predicate on encoded properties
            examined: most messages to which *passes* is applied
        """
        queue = self._queues.find(topic, queue_id)
        if queue is None or (queue.end_offset == 0 and queue not in self._next_offsets):
            return ReadResult(ReadStatus.NO_MESSAGE, 0, 0, 0)
        low, high = self._min_offset(queue), queue.end_offset
        if offset < low:
            return ReadResult(ReadStatus.TOO_SMALL, low, low, high)
        if offset >= high:
            if offset <= self._next_offsets.get(queue, high):  # messages before it will arrive
                return ReadResult(ReadStatus.END, offset, low, high)
            return ReadResult(ReadStatus.TOO_BIG, high, low, high)
        place = _Place(topic, queue_id, queue, low, high)
        if passes is not None:
            self.reads += 1
            entries = queue.read(offset, examined)
            if self._repair.is_examining(queue, offset, examined):
                return ReadResult(ReadStatus.EXAMINED, offset, low, high)
            return self._read_passing(place, offset, entries, max_messages, max_bytes, passes)
        wanted = max_messages if tag_hashes is None else max(max_messages, _SCAN_ENTRIES)
        entries = queue.read(offset, wanted)
        if self._repair.is_examining(queue, offset, wanted):
            return ReadResult(ReadStatus.EXAMINED, offset, low, high)
        offsets: Sequence[int]
        if tag_hashes is None:
            (places, sizes), scanned = _select_all(entries, max_bytes)
            offsets = range(offset, offset + scanned)
            if not scanned:
                return self._read_on(place, offset, entries)
        else:
            offsets, places, sizes, scanned = _select(
                entries,
                offset,
                max_messages=max_messages,
                max_bytes=max_bytes,
                tag_hashes=tag_hashes,
            )
            if not places:
                return ReadResult(ReadStatus.NO_MATCH, offset + scanned, low, high)
        self.reads += 1
        data, bad = self._intact(place, offsets, places, sizes)
        if bad is not None:
            return self._read_before(place, offset, offsets, sizes, data, bad)
        return ReadResult(ReadStatus.FOUND, offset + scanned, low, high, data, len(places))

    def _intact(
        self,
        place: _Place,
        offsets: Sequence[int],
        places: Sequence[int],
        sizes: Sequence[int],
    ) -> tuple[bytes, tuple[int, str] | None]:
        """Read records; return them and, if one is not intact, its index and the reason."""
        expected = Expected(place.topic.encode(), place.queue_id)
        try:
            data = self._log.read_pieces(_pieces(places, sizes))
        except _UNREADABLE:
            return self._intact_singly(expected, offsets, places, sizes)
        return data, first_damage(data, expected, offsets, places, sizes)

    def _intact_singly(
        self,
        expected: Expected,
        offsets: Sequence[int],
        places: Sequence[int],
        sizes: Sequence[int],
    ) -> tuple[bytes, tuple[int, str] | None]:
        """Read records one by one, since one of the places is none."""
        found: list[bytes] = []
        for at, (place, size) in enumerate(zip(places, sizes, strict=True)):
            try:
                data = self._log.read(place, size)
            except _UNREADABLE as error:
                return b"".join(found), (at, str(error))
            reason = find_damage(data, 0, expected, offset=offsets[at], place=place, size=size)
            if reason is not None:
                return b"".join(found), (at, reason)
            found.append(data)
        return b"".join(found), None

    def _read_before(
        self,
        place: _Place,
        offset: int,
        offsets: Sequence[int],
        sizes: Sequence[int],
        data: bytes,
        bad: tuple[int, str],
    ) -> ReadResult:
        """Return the records from *offset* to a bad one, which is examined if it is the first
        message there: one before it that is left out is intact.
        """
        at, reason = bad
        if at:
            body = data[: sum(sizes[:at])]
            return ReadResult(ReadStatus.FOUND, offsets[at], place.low, place.high, body, at)
        if offsets[0] > offset:
            return ReadResult(ReadStatus.NO_MATCH, offsets[0], place.low, place.high)
        return self._examined(place, offsets[0], reason)

    def _examined(self, place: _Place, offset: int, reason: str) -> ReadResult:
        """Return the outcome for the message at *offset*, which is not what its entry names."""
        topic, queue_id, queue, low, high = place
        run = self.damaged.find(topic, queue_id, offset)
        if run is None:
            if not self._repair.examine(topic, queue_id, queue, offset, reason):
                return ReadResult(ReadStatus.EXAMINED, offset, low, high)
            run = self.damaged.find(topic, queue_id, offset)
        if run is None:  # its entry was repaired
            at, size, _ = queue.entry(offset)
            data, bad = self._intact(place, (offset,), (at,), (size,))
            if bad is not None:
                return ReadResult(ReadStatus.EXAMINED, offset, low, high)
            return ReadResult(ReadStatus.FOUND, offset + 1, low, high, data, 1)
        return ReadResult(ReadStatus.DAMAGED, run.end, low, high)

    def _read_on(self, place: _Place, offset: int, entries: bytes) -> ReadResult:
        """Return where to continue behind entries of messages that never were complete."""
        empty = 0
        for at, size, _ in ENTRY.iter_unpack(entries):
            if size != 0 or at <= 0:
                break
            empty += 1
        if not empty:
            return self._examined(place, offset, "the index entry is empty")
        return ReadResult(ReadStatus.NO_MATCH, offset + empty, place.low, place.high)

    def _read_passing(
        self,
        place: _Place,
        offset: int,
        entries: bytes,
        max_messages: int,
        max_bytes: int,
        passes: Callable[[bytes], bool],
    ) -> ReadResult:
        """Read the messages of *entries*, from *offset* on, whose encoded properties pass, up to
        the first damaged one.
        """
        found: list[bytes] = []
        at = looked_at = size = 0
        bad: tuple[int, str] | None = None
        while at * ENTRY.size < len(entries) and looked_at < _PASSING_BYTES and bad is None:
            chosen, count = _select_all(entries[at * ENTRY.size :], _PIECE_BYTES)
            if not count:
                at += 1  # a message that never was complete
                continue
            offsets = range(offset + at, offset + at + count)
            data, bad = self._intact(place, offsets, *chosen)
            looked_at += len(data)
            position = 0
            for record_bytes in chosen[1][: count if bad is None else bad[0]]:
                _, properties, _ = fields_of(data, position)
                if passes(properties):
                    if len(found) == max_messages or (found and size + record_bytes > max_bytes):
                        return self._passed(place, offset + at, found)
                    found.append(data[position : position + record_bytes])
                    size += record_bytes
                position += record_bytes
                at += 1
        if bad is not None and not at:
            return self._examined(place, offset, bad[1])
        return self._passed(place, offset + at, found)

    def _passed(self, place: _Place, next_offset: int, found: list[bytes]) -> ReadResult:
        status = ReadStatus.FOUND if found else ReadStatus.NO_MATCH
        return ReadResult(status, next_offset, place.low, place.high, b"".join(found), len(found))

    def min_offset(self, topic: Topic, queue_id: int) -> int:
        """Return the offset of the oldest message kept, or the end offset."""
        queue = self._queues.find(topic, queue_id)
        return 0 if queue is None else self._min_offset(queue)

    def end_offset(self, topic: Topic, queue_id: int) -> int:
        """Return the offset of the next message to become visible; 0 if there never was one."""
        queue = self._queues.find(topic, queue_id)
        return 0 if queue is None else queue.end_offset

    def has_topic(self, topic: Topic) -> bool:
        """Return whether any queue of *topic* ever had a message."""
        return self._queues.has_topic(topic)

    def next_offset(self, topic: Topic, queue_id: int) -> int:
        """Return the offset of the next message to be written, after messages not visible yet."""
        queue = self._queues.find(topic, queue_id)
        return 0 if queue is None else self._next_offsets.get(queue, queue.end_offset)

    def offset_at(self, topic: Topic, queue_id: int, timestamp_ms: int) -> int:
        """Return the offset of the first message stored at or after *timestamp_ms*, or the end
        offset.
        """
        queue = self._queues.find(topic, queue_id)
        if queue is None:
            return 0
        low, high = self._min_offset(queue), queue.end_offset
        while low < high:
            middle = (low + high) // 2
            if self._store_ms(queue, middle) < timestamp_ms:
                low = middle + 1
            else:
                high = middle
        return low

    def store_ms(self, topic: Topic, queue_id: int, offset: int) -> int | None:
        """Return the store time of the message at *offset*, or None if it does not exist."""
        queue = self._queues.find(topic, queue_id)
        if queue is None or not self._min_offset(queue) <= offset < queue.end_offset:
            return None
        return self._store_ms(queue, offset)

    def entries(
        self, topic: Topic, queue_id: int, offset: int, *, count: int
    ) -> list[tuple[int, int, int]]:
        """Return up to *count* index entries from *offset* on, none outside of the queue."""
        queue = self._queues.find(topic, queue_id)
        if queue is None or count < 1 or not self._min_offset(queue) <= offset < queue.end_offset:
            return []
        return list(ENTRY.iter_unpack(queue.read(offset, count)))

    def put_by_topic(self) -> dict[Topic, int]:
        """Return the number of messages ever stored by topic, deleted ones included. O(queues)."""
        return self._queues.count_by_topic()

    def put_in(self, topic: Topic) -> int:
        """Return the number of messages ever stored in *topic*, deleted ones included."""
        return self._queues.count_of(topic)

    def log_range(self) -> tuple[int, int]:
        """Return begin and end of the log, in bytes ever written."""
        return self._log.first_offset, self._log.end_offset

    def earliest_ms(self) -> int | None:
        """Return the store time of the oldest message of the log, or None if it has none."""
        begin, end = self.log_range()
        message = self.record_at(begin) if end > begin else None
        return None if message is None else message.store_ms

    def message_at(self, place: int) -> StoredMessage | None:
        """Return the visible message at this log offset, its body as stored, or None.

        *place* may be any number: the message counts only if its queue contains it.
        """
        message = self.record_at(place)
        if message is None:
            return None
        queue = self._queues.find(message.topic, message.queue_id)
        offset = message.queue_offset
        if queue is None or not queue.first_offset <= offset < queue.end_offset:
            return None
        return message if queue.entry(offset)[:2] == (place, message.size) else None

    def record_at(self, place: int) -> StoredMessage | None:
        """Return the intact message at this log offset, even of a topic that was deleted since.

        *place* must come from the log itself, such as the end of another message: the body of a
        message may look like a message too.
        """
        try:
            size, magic = FILLER.unpack(self._log.read(place, FILLER.size))
            if size < FIXED_BYTES or magic not in (MAGIC_V1, MAGIC_V2):
                return None
            data = self._log.read(place, size)
            return intact_message(data, 0, place=place, segment_start=place)
        except (StoreError, NotIntact):
            return None

    def record(self, place: int, size: int) -> bytes:
        """Return the record that ``message_at`` found. Raise StoreError if it was deleted since."""
        return self._log.read(place, size)

    def log_was_shortened(self) -> None:
        """Search for the oldest messages again: a segment was deleted."""
        self._min_offsets.clear()

    def forget(self, queue: ConsumeQueue) -> None:
        """Forget a queue whose topic is deleted."""
        self._min_offsets.pop(queue, None)

    def _min_offset(self, queue: ConsumeQueue) -> int:
        offset = self._min_offsets.get(queue)
        if offset is None:
            offset = queue.first_at_or_behind(self._log.first_offset)
            self._min_offsets[queue] = offset
        return offset

    def _store_ms(self, queue: ConsumeQueue, offset: int) -> int:
        """Return the store time of the message at *offset*, or of the nearest legible one before.

        0 if there is none.
        """
        low = max(self._min_offset(queue), offset - _NEAR_OFFSETS)
        for at in range(offset, low - 1, -1):
            place, size, _ = queue.entry(at)
            with suppress(*_UNREADABLE):
                head = self._log.read(place, _HEAD_BYTES)
                if head[:4] == size.to_bytes(4, "big") and queue_offset_of(head) == at:
                    return store_ms_of(head)
        return 0


def _select_all(entries: bytes, max_bytes: int) -> tuple[tuple[Sequence[int], Sequence[int]], int]:
    """Return places and sizes of the messages to read, and their number.

    These are the first messages within *max_bytes*, or the first alone; none, if the first entry
    has no message. Handles all entries at a time: one by one they would take longer than the
    reading.
    """
    first_size = max(1, ENTRY.unpack_from(entries)[1])
    likely = 2 * (max(max_bytes, 0) // first_size + 1)
    for some in (entries[: likely * ENTRY.size], entries):
        fields = struct.unpack(f">{'qiq' * (len(some) // ENTRY.size)}", some)
        places, sizes = fields[0::3], fields[1::3]
        ends = list(accumulate(sizes))
        if ends[-1] > max_bytes or len(some) == len(entries):
            break
    if 0 in sizes:
        empty = sizes.index(0)
        if empty == 0:
            return ((), ()), 0
        ends = ends[:empty]
    messages = max(1, bisect_right(ends, max_bytes))
    return (places[:messages], sizes[:messages]), messages


def _pieces(places: Sequence[int], sizes: Sequence[int]) -> list[tuple[int, int]]:
    """Return the (offset, size) pieces of log to read for records: adjacent ones are one piece."""
    last = len(places) - 1
    ends = list(accumulate(sizes))
    if places[last] + sizes[last] - places[0] == ends[last]:  # nothing between them
        return [(places[0], ends[last])]
    apart = map(ne, map(sub, places[1:], places), sizes)
    runs = pairwise((0, *compress(count(1), apart), len(places)))
    return [
        (places[first], places[end - 1] + sizes[end - 1] - places[first]) for first, end in runs
    ]


def _select(
    entries: bytes, offset: int, *, max_messages: int, max_bytes: int, tag_hashes: frozenset[int]
) -> tuple[list[int], list[int], list[int], int]:
    """Return offsets, places and sizes of the messages to read, and the entries scanned."""
    offsets: list[int] = []
    places: list[int] = []
    sizes: list[int] = []
    scanned = total = 0
    for place, size, tag_hash in ENTRY.iter_unpack(entries):
        if size and (tag_hash in tag_hashes or size == LOST_BYTES):
            if len(places) == max_messages or (places and total + size > max_bytes):
                break
            total += size
            offsets.append(offset + scanned)
            places.append(place)
            sizes.append(size)
        scanned += 1
    return offsets, places, sizes, scanned
