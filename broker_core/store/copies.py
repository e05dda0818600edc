"""Access to a log for replication: for the store that copies, and the one that is copied."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from contextlib import closing
from typing import NamedTuple

from broker_core.errors import StoreError
from broker_core.names import Topic
from broker_core.remoting.message import MAGIC_BLANK, StoredMessage
from broker_core.store.commit_log import FILLER, CommitLog
from broker_core.store.common_end import CommonEndSearch, Probe, count_common
from broker_core.store.consume_queues import ConsumeQueues
from broker_core.store.copying import Chunk, LostRun, messages_of, read_chunk
from broker_core.store.damaged_copies import examined_chunk, lost_in
from broker_core.store.delay_index import ended_entry
from broker_core.store.deletions import deleted_topic
from broker_core.store.entry_code import entry_code_of
from broker_core.store.log_scan import LogScan, LogView
from broker_core.store.rejoin import Rejoin
from broker_core.store.tables import JsonTable

#: Bytes read from the log at once, unless one message is larger.
CHUNK_BYTES = 1024 * 1024


class Copied(NamedTuple):
    """A message in the log that is not yet in a queue."""

    physical: int
    size: int
    topic: Topic
    queue_id: int
    queue_offset: int
    code: int
    deletes: Topic | None  # with all messages before this one
    ended: bytes  # entry of the delayed message that this one replaces
    lost: LostRun | None = None  # messages in damage, in place of one

    @property
    def queue_end(self) -> int:
        """Offset of the queue after the message."""
        return self.queue_offset + 1 if self.lost is None else self.lost.end

    @property
    def end(self) -> int:
        """Log offset after the message."""
        return self.physical + self.size


def copied(message: StoredMessage) -> Copied:
    """Return the queue's data about *message*."""
    place, size, topic = message.physical_offset, message.size, message.topic
    return Copied(
        place,
        size,
        topic,
        message.queue_id,
        message.queue_offset,
        entry_code_of(topic, message.raw_properties),
        deleted_topic(message),
        ended_entry(place, size, message.prepared_offset),
    )


def lost_copy(run: LostRun, *, size: int) -> Copied:
    """Return the same for messages that are lost in *size* bytes of damage."""
    place = run.place
    return Copied(place, size, run.topic, run.queue_id, run.first, 0, None, b"", run)


class LogCopies:
    """One log, as the original or as the copy. One thread only."""

    def __init__(self, log: CommitLog, queues: ConsumeQueues, *, rejoin: JsonTable) -> None:
        self._log = log
        self._queues = queues
        self._rejoin = rejoin
        self._lost: list[LostRun] = []
        self.last_store_ms = 0  # of the last message appended

    @property
    def first_offset(self) -> int:
        """Offset of the oldest byte kept."""
        return self._log.first_offset

    @property
    def end_offset(self) -> int:
        """Offset after the last byte, which may not be on disk yet."""
        return self._log.end_offset

    @property
    def failure(self) -> OSError | None:
        """The error that made the log read-only, or None. Its end may then be missing on disk."""
        return self._log.failure

    def chunk(self, offset: int, *, limit: int) -> Chunk | None:
        """Return a chunk of about 1 MiB, as ``read_chunk``."""
        return read_chunk(self._log, offset, limit=limit, max_bytes=CHUNK_BYTES)

    def examined(self, offset: int, *, limit: int) -> Chunk | None:
        """Return a chunk as ``examined_chunk``, with the messages that are lost in its damage."""
        chunk = examined_chunk(self._log, offset, limit=limit, max_bytes=CHUNK_BYTES)
        if chunk is None or not chunk.gaps:
            return chunk
        lost = lost_in(self._queues, chunk.gaps)
        lost += (
            run
            for gap in chunk.gaps
            for run in self._lost
            if gap.start <= run.place < gap.end and run not in lost
        )
        return chunk._replace(lost=(*lost,))

    def name_lost(self, runs: Iterable[LostRun]) -> None:
        """Name *runs* to copies of the log, too: their queues lack them before a confirmation."""
        self._lost += runs

    def append(self, chunk: Chunk) -> list[Copied]:
        """Append *chunk*; return its messages. Raise StoreError if it does not fit, or OSError."""
        if chunk.offset != self._log.end_offset:
            raise StoreError(
                f"the log ends at {self._log.end_offset}, the copied data begins at {chunk.offset}"
            )
        messages, filled = messages_of(chunk)
        self._log.append_copied(
            chunk.data,
            segment_start=chunk.segment_start,
            segment_bytes=chunk.segment_bytes,
            filled=filled,
        )
        if messages:
            self.last_store_ms = messages[-1].store_ms
        found = [copied(message) for message in messages]
        if not chunk.gaps:
            return found
        sizes = {each.start: each.end - each.start for each in chunk.gaps}
        found += [lost_copy(each, size=sizes.get(each.place, 0)) for each in chunk.lost]
        return sorted(found, key=lambda each: each.physical)

    def common_end_search(self) -> CommonEndSearch:
        """Return a search for the common end with another log."""
        return CommonEndSearch(self._log)

    def count_common(self, probes: Sequence[Probe]) -> int:
        """Return the number of matching *probes*, as ``common_end.count_common``."""
        return count_common(self._log, probes)

    def can_continue(self, last: Probe | None, end: int) -> bool:
        """Return whether a log that ends at *end*, with *last* as its last message, can continue
        here.

        A log may end after the filler of a segment; this one must have the same filler, otherwise
        it has messages there.
        """
        if end > self._log.end_offset:
            return False
        if last is not None:
            return end in (last.end, self._filled_to(last.end)) or self._is_gap(last.end, end)
        edges = (edge for each in self._log.segments for edge in (each.start, each.end))
        return end == self._log.first_offset or end in edges

    def _is_gap(self, start: int, end: int) -> bool:
        """Return whether there is damage from *start* on, and nothing intact before *end*."""
        if not start < end:
            return False
        with closing(LogView(self._log.segments)) as view:
            scan = LogScan(view, start=start, until=end)
            found = next(iter(scan), None)
        damaged_from = scan.gaps[0].start if scan.gaps else scan.damaged_from
        return damaged_from == start and (found is None or found.physical_offset >= end)

    def _filled_to(self, offset: int) -> int | None:
        """Return the end of the filler that starts at *offset*, or None."""
        try:
            size, magic = FILLER.unpack(self._log.read(offset, FILLER.size))
        except StoreError:
            return None
        return offset + size if magic == MAGIC_BLANK else None

    def queue_starts(self) -> dict[Topic, dict[int, int]]:
        """Return the first offset kept, or the next one, by topic and queue id."""
        first = self._log.first_offset
        starts: dict[Topic, dict[int, int]] = {}
        for topic, queue_id, queue in self._queues.named():
            starts.setdefault(topic, {})[queue_id] = queue.first_at_or_behind(first)
        return starts

    def plan_rejoin(self, rejoin: Rejoin) -> None:
        """Apply *rejoin* when the store is opened next. Blocks; raises OSError."""
        self._rejoin.save(rejoin.to_table())
