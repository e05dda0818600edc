"""Messages get their offsets and their places in the log, and wait there to become visible."""

from __future__ import annotations

import errno
from collections import deque
from collections.abc import Container, Sequence

from broker_core.names import Topic
from broker_core.remoting.record_encoding import BatchEntry, Envelope, encode_stored
from broker_core.store.commit_log import CommitLog
from broker_core.store.consume_queue import ENTRY, ConsumeQueue
from broker_core.store.consume_queues import ConsumeQueues
from broker_core.store.delay_index import ended_entry
from broker_core.store.entry_code import entry_code_of
from broker_core.store.pending import Added, Pending, Stored

#: Messages of one queue, as one send brought them.
Part = tuple[Envelope, Sequence[BatchEntry]]


class Appender:
    """Appends to *log*; what became visible is taken from ``pending``, which is in log order."""

    def __init__(self, log: CommitLog, queues: ConsumeQueues, *, last_store_ms: int) -> None:
        self._log = log
        self._queues = queues
        self.last_store_ms = last_store_ms
        self.pending: deque[Pending] = deque()
        #: Of queues with messages that are not visible yet.
        self.next_offsets: dict[ConsumeQueue, int] = {}

    def append(
        self,
        parts: Sequence[Part],
        store_ms: int,
        *,
        closed: Container[Topic] = (),
        deletes: Topic | None = None,
    ) -> list[Stored]:
        """Append *parts* by one write. Raises as ``MessageStore.put``, with nothing appended.

        Topics that are *closed* take nothing. *deletes* is deleted once this is visible.
        """
        # A clock that was set back must not break the search by time.
        store_ms = self.last_store_ms = max(store_ms, self.last_store_ms)
        messages: list[bytearray] = []
        firsts: list[tuple[ConsumeQueue, int]] = []
        next_offsets: dict[ConsumeQueue, int] = {}  # kept if the log takes them
        for envelope, entries in parts:
            if envelope.topic in closed:
                raise OSError(errno.EBUSY, f"topic {envelope.topic} is being deleted")
            queue = self._queues.obtain(envelope.topic, envelope.queue_id)
            first = next_offsets.get(queue, -1)
            if first < 0:
                first = self.next_offsets.get(queue, -1)
                if first < 0:
                    first = queue.end_offset
            offset = first
            for entry in entries:
                messages.append(
                    encode_stored(envelope, entry, queue_offset=offset, store_ms=store_ms)
                )
                offset += 1
            firsts.append((queue, first))
            next_offsets[queue] = offset
        places = self._log.append(messages)
        self.next_offsets |= next_offsets
        return self._note(
            parts, firsts, list(zip(places, map(len, messages), strict=True)), deletes
        )

    def _note(
        self,
        parts: Sequence[Part],
        firsts: Sequence[tuple[ConsumeQueue, int]],
        places: list[tuple[int, int]],
        deletes: Topic | None,
    ) -> list[Stored]:
        """Note what is to be done when *parts*, at *places* (offset, size), become visible."""
        log_end = self._log.end_offset
        added: dict[ConsumeQueue, Added] = {}
        ended, stored, at = b"", [], 0
        for (envelope, entries), (queue, first) in zip(parts, firsts, strict=True):
            topic = envelope.topic
            if (to_queue := added.get(queue)) is None:
                to_queue = added[queue] = Added(topic, envelope.queue_id, queue, [], set())
            if envelope.prepared_offset:
                ended += ended_entry(*places[at], envelope.prepared_offset)
            own = places[at : at + len(entries)]
            for (place, size), entry in zip(own, entries, strict=True):
                code = entry_code_of(topic, entry.properties)
                to_queue.entries.append(ENTRY.pack(place, size, code))
                to_queue.codes.add(code)
            stored.append(Stored(first, [place for place, _ in own], log_end))
            at += len(entries)
        self.pending.append(Pending(log_end, list(added.values()), deletes, ended))
        return stored
