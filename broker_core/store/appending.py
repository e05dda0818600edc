"""Appending: messages get their offsets and positions in the log, and wait to become visible."""

from __future__ import annotations

import errno
from collections import deque
from collections.abc import Container, Sequence

from broker_core.names import Topic
from broker_core.remoting.record_encoding import BatchEntry, Envelope, encode_run
from broker_core.store.commit_log import CommitLog
from broker_core.store.consume_queue import ENTRY, ConsumeQueue
from broker_core.store.consume_queues import ConsumeQueues
from broker_core.store.delay_index import ended_entry
from broker_core.store.entry_code import entry_codes_of
from broker_core.store.pending import Added, Pending, Stored

#: The messages of one send to one queue.
Part = tuple[Envelope, Sequence[BatchEntry]]


class Appender:
    """Appends to *log*. Messages that become visible are taken from ``pending``, in log order."""

    def __init__(self, log: CommitLog, queues: ConsumeQueues, *, last_store_ms: int) -> None:
        self._log = log
        self._queues = queues
        self.last_store_ms = last_store_ms
        self.pending: deque[Pending] = deque()
        #: Next offsets of queues with messages that are not visible yet.
        self.next_offsets: dict[ConsumeQueue, int] = {}

    def not_before(self, store_ms: int) -> None:
        """Use no store time earlier than *store_ms* from now on."""
        self.last_store_ms = max(self.last_store_ms, store_ms)

    def append(
        self,
        parts: Sequence[Part],
        store_ms: int,
        *,
        closed: Container[Topic] = (),
        deletes: Topic | None = None,
        short_segment: bool = False,
    ) -> list[Stored]:
        """Append *parts* with one write. Raise as ``MessageStore.put``, with nothing appended.

        Args:
            parts: messages by send
            store_ms: store time, ms since 1970
            closed: topics that accept no messages now
            deletes: topic that is deleted when this write becomes visible
            short_segment: as in ``CommitLog.make_room``
        """
        # A clock that was set back must not break the search by time.
        store_ms = self.last_store_ms = max(store_ms, self.last_store_ms)
        firsts, next_offsets = self._offsets(parts, closed)
        place = self._log.end_offset
        pieces, sizes = _encoded(parts, firsts, place, store_ms)
        size = sum(map(sum, sizes))
        begin = self._log.make_room(size, short_segment=short_segment)
        if begin != place:  # moved to another segment
            place = begin
            pieces, sizes = _encoded(parts, firsts, place, store_ms)
        self._log.write(b"".join(pieces))
        self.next_offsets |= next_offsets
        return self._note(parts, firsts, sizes, place, deletes)

    def _offsets(
        self, parts: Sequence[Part], closed: Container[Topic]
    ) -> tuple[list[tuple[ConsumeQueue, int]], dict[ConsumeQueue, int]]:
        """Return queue and first offset of each part, and the next offsets afterwards."""
        firsts: list[tuple[ConsumeQueue, int]] = []
        next_offsets: dict[ConsumeQueue, int] = {}
        for envelope, entries in parts:
            if envelope.topic in closed:
                raise OSError(errno.EBUSY, f"topic {envelope.topic} is being deleted")
            queue = self._queues.obtain(envelope.topic, envelope.queue_id)
            first = next_offsets.get(queue, -1)
            if first < 0:
                first = self.next_offsets.get(queue, -1)
                if first < 0:
                    first = queue.end_offset
            firsts.append((queue, first))
            next_offsets[queue] = first + len(entries)
        return firsts, next_offsets

    def _note(
        self,
        parts: Sequence[Part],
        firsts: Sequence[tuple[ConsumeQueue, int]],
        sizes: Sequence[Sequence[int]],
        place: int,
        deletes: Topic | None,
    ) -> list[Stored]:
        """Add *parts*, stored from *place* on, to the pending messages."""
        log_end = self._log.end_offset
        added: dict[ConsumeQueue, Added] = {}
        ended, stored = b"", []
        for (envelope, entries), (queue, first), own in zip(parts, firsts, sizes, strict=True):
            topic = envelope.topic
            if (to_queue := added.get(queue)) is None:
                to_queue = added[queue] = Added(topic, envelope.queue_id, queue, [], set())
            if envelope.prepared_offset:
                ended += ended_entry(place, own[0], envelope.prepared_offset)
            places: list[int] = []
            codes = entry_codes_of(topic, [properties for _, _, properties in entries])
            to_queue.codes.update(codes)
            for size, code in zip(own, codes, strict=True):
                to_queue.entries.append(ENTRY.pack(place, size, code))
                places.append(place)
                place += size
            stored.append(Stored(first, places, log_end))
        self.pending.append(Pending(log_end, list(added.values()), deletes, ended))
        return stored


def _encoded(
    parts: Sequence[Part],
    firsts: Sequence[tuple[ConsumeQueue, int]],
    place: int,
    store_ms: int,
) -> tuple[list[bytes], list[list[int]]]:
    """Return the bytes of all messages, the first one at *place*, and their sizes by part."""
    pieces: list[bytes] = []
    sizes: list[list[int]] = []
    for (envelope, entries), (_, first) in zip(parts, firsts, strict=True):
        own = encode_run(
            envelope, entries, pieces, queue_offset=first, place=place, store_ms=store_ms
        )
        sizes.append(own)
        place += sum(own)
    return pieces, sizes
