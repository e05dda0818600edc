"""Appending: messages get their offsets and positions in the log, and wait to become visible.

Usually they wait for a sync of the disk. Where replicas are required that are not connected, or far
behind, they may wait for hours: only the first ones are listed in memory, the others are read from
the log again when their turn has come.
"""

from __future__ import annotations

import errno
from collections import deque
from collections.abc import Container, Mapping, Sequence

from broker_core.names import Topic
from broker_core.remoting.record_encoding import BatchEntry, Envelope, encode_run
from broker_core.store.commit_log import CommitLog
from broker_core.store.consume_queue import ENTRY, LOST_BYTES, ConsumeQueue
from broker_core.store.consume_queues import ConsumeQueues
from broker_core.store.delay_index import ended_entry
from broker_core.store.deletions import deleted_topic
from broker_core.store.entry_code import entry_code_of, entry_codes_of
from broker_core.store.log_scan import LogScan
from broker_core.store.pending import Added, Pending, Stored

#: The messages of one send to one queue.
Part = tuple[Envelope, Sequence[BatchEntry]]

#: Messages that are listed while they wait, each with 1 KB or, in a batch, less.
MOST_LISTED = 50_000
#: Messages that are read again at once, and their bytes: messages may be large, and their checksums
#: are verified.
LISTED_AT_ONCE, LISTED_BYTES = 1024, 4 << 20


class Appender:
    """Appends to *log*. ``take`` returns messages that become visible, in log order."""

    def __init__(self, log: CommitLog, queues: ConsumeQueues, *, last_store_ms: int) -> None:
        self._log = log
        self._queues = queues
        self.last_store_ms = last_store_ms
        self._pending: deque[Pending] = deque()
        self._listed = 0  # messages in them
        self._unlisted_from: int | None = None  # later messages are in the log alone
        self._deletes: set[Topic] = set()  # by deletions that wait, listed or not
        self._damaged_at: int | None = None  # the last damage among unlisted messages
        #: Next offsets of queues with messages that are not visible yet.
        self.next_offsets: dict[ConsumeQueue, int] = {}

    def not_before(self, store_ms: int) -> None:
        """Use no store time earlier than *store_ms* from now on."""
        self.last_store_ms = max(self.last_store_ms, store_ms)

    def has_pending(self) -> bool:
        """Return whether messages wait to become visible."""
        return bool(self._pending) or self._unlisted_from is not None

    def will_delete(self, topic: Topic) -> bool:
        """Return whether a deletion of *topic* waits to become visible."""
        return topic in self._deletes

    def take(self, log_end: int) -> Pending | None:
        """Return the next messages if they end at or before *log_end*, which is durable.

        All messages taken before must be in their queues. Raises OSError.
        """
        if not self._pending and self._unlisted_from is not None:
            self._list_again(self._unlisted_from)
        if self._pending and self._pending[0].log_end <= log_end:
            put = self._pending.popleft()
            self._listed -= put.messages
            if put.deletes is not None:
                self._deletes.discard(put.deletes)
            return put
        return None

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
        self._list(Pending(log_end, list(added.values()), deletes, ended))
        return stored

    def _list(self, put: Pending) -> None:
        if put.deletes is not None:
            self._deletes.add(put.deletes)
        if self._unlisted_from is None and self._listed < MOST_LISTED:
            self._list_one(put)
        elif self._unlisted_from is None:
            self._unlisted_from = self._pending[-1].log_end

    def _list_again(self, start: int) -> None:
        """List messages from *start* on, one by one, up to a deletion: it ends their queues.

        Confirmed or not: once all are listed, the next ones are again listed when appended.
        """
        ends: dict[ConsumeQueue, int] = {}
        scan = LogScan(self._log, start=start, until=self._log.end_offset)
        for message in scan:
            if scan.gaps:
                self._damaged_at = scan.gaps[-1].start
            place, size, topic = message.physical_offset, message.size, message.topic
            queue = self._queues.obtain(topic, message.queue_id)
            missing = message.queue_offset - ends.get(queue, queue.end_offset)
            ends[queue] = message.queue_offset + 1
            code = entry_code_of(topic, message.raw_properties)
            lost_at = place if self._damaged_at is None else self._damaged_at
            entries = [*_lost(missing, lost_at), ENTRY.pack(place, size, code)]
            ended = ended_entry(place, size, message.prepared_offset)
            deletes = deleted_topic(message)
            added = Added(topic, message.queue_id, queue, entries, {code})
            self._list_one(Pending(place + size, [added], deletes, ended))
            self._unlisted_from = place + size
            enough = len(self._pending) >= LISTED_AT_ONCE or place + size - start >= LISTED_BYTES
            if enough or deletes is not None:
                return
        self._unlisted_from = None
        lost_at_end = self._damaged_at if scan.damaged_from is None else scan.damaged_from
        if lost_at_end is not None:
            self._list_lost(ends, lost_at_end)
            self._damaged_at = None

    def _list_lost(self, ends: Mapping[ConsumeQueue, int], place: int) -> None:
        """List what damage at *place* has hit and no message of its queue follows.

        *ends* are those of queues with listed messages.
        """
        log_end, added = self._log.end_offset, []
        for topic, queue_id, queue in self._queues.named():
            end = ends.get(queue, queue.end_offset)
            if entries := _lost(self.next_offsets.get(queue, end) - end, place):
                added.append(Added(topic, queue_id, queue, entries, {0}))
        if added:
            self._list_one(Pending(log_end, added, None, b""))
        # Their topics have accepted no messages since, so their place does not matter.
        for topic in sorted(self._deletes - {put.deletes for put in self._pending}):
            self._list_one(Pending(log_end, [], topic, b""))

    def _list_one(self, put: Pending) -> None:
        self._pending.append(put)
        self._listed += put.messages


def _lost(count: int, place: int) -> list[bytes]:
    """Return entries of *count* messages that the log has lost to damage at *place*.

    They keep their offsets; a read of them finds the damage.
    """
    return [ENTRY.pack(place, LOST_BYTES, 0)] * count


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
