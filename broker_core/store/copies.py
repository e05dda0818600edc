"""What a store that copies another one, and the store that is copied, ask of a log."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple

from broker_core.errors import StoreError
from broker_core.names import DELAY_TOPICS, DelayedPlace, Topic
from broker_core.remoting.message import MAGIC_BLANK, StoredMessage
from broker_core.store.commit_log import FILLER, CommitLog
from broker_core.store.consume_queue import ENTRY
from broker_core.store.consume_queues import ConsumeQueues
from broker_core.store.copying import Chunk, messages_of, read_chunk
from broker_core.store.delay_index import ended_entry
from broker_core.store.deletions import deleted_topic
from broker_core.store.entry_code import entry_code_of
from broker_core.store.joint import JointSearch, Probe, agreed
from broker_core.store.rejoin import Rejoin
from broker_core.store.tables import JsonTable

#: Of the log at once, unless one message is larger.
CHUNK_BYTES = 1024 * 1024


class Copied(NamedTuple):
    """A message in the log that no queue knows yet."""

    physical: int
    size: int
    topic: Topic
    queue_id: int
    queue_offset: int
    code: int
    deletes: Topic | None  # with all that stands before this
    ended: bytes  # entry of the delayed message whose place it takes

    @property
    def end(self) -> int:
        """The log's offset behind it."""
        return self.physical + self.size


def copied(message: StoredMessage) -> Copied:
    """What a queue has to know of *message*."""
    return Copied(
        message.physical_offset,
        message.size,
        message.topic,
        message.queue_id,
        message.queue_offset,
        entry_code_of(message.topic, message.raw_properties),
        deleted_topic(message),
        ended_entry(message.physical_offset, message.size, message.prepared_offset),
    )


def without_ended(messages: Iterable[Copied], ended: bytes) -> Iterator[Copied]:
    """*messages*, those that wait no more due never: *ended* has the entries of what ended them.

    Else they would be taken for new ones once they are confirmed, and be delivered again.
    """
    numbers = {number for _, _, number in ENTRY.iter_unpack(ended)}
    for one in messages:
        waits = numbers and one.topic in DELAY_TOPICS
        if waits and DelayedPlace.of(one.topic, one.queue_id, one.queue_offset).number in numbers:
            yield one._replace(code=0)
        else:
            yield one


class LogCopies:
    """One log, as the one that is copied or as the copy. One thread only."""

    def __init__(self, log: CommitLog, queues: ConsumeQueues, *, rejoin: JsonTable) -> None:
        self._log = log
        self._queues = queues
        self._rejoin = rejoin
        self.last_store_ms = 0  # of what was appended

    @property
    def first_offset(self) -> int:
        """Offset of the oldest byte kept."""
        return self._log.first_offset

    @property
    def end_offset(self) -> int:
        """Offset behind the last byte, which need not be on disk."""
        return self._log.end_offset

    @property
    def failure(self) -> OSError | None:
        """Why the log takes nothing more; its end is perhaps on no disk then. None if it does."""
        return self._log.failure

    def chunk(self, offset: int, *, limit: int) -> Chunk | None:
        """As ``read_chunk``, about 1 MiB."""
        return read_chunk(self._log, offset, limit=limit, max_bytes=CHUNK_BYTES)

    def append(self, chunk: Chunk) -> list[Copied]:
        """Append *chunk*; return its messages. Raises StoreError if it does not fit, OSError."""
        if chunk.offset != self._log.end_offset:
            raise StoreError(
                f"the log ends at {self._log.end_offset}, what was copied stands at {chunk.offset}"
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
        return [copied(message) for message in messages]

    def joint_search(self) -> JointSearch:
        """A search for the joint with another log."""
        return JointSearch(self._log)

    def agreed(self, probes: Sequence[Probe]) -> int:
        """As ``agreed`` of ``joint``."""
        return agreed(self._log, probes)

    def goes_on(self, last: Probe | None, end: int) -> bool:
        """True if a log that ends at *end*, and holds *last* as its last message, may go on here.

        A log may end behind the filler of a segment; this one must have the same filler, or it has
        messages in its place.
        """
        if end > self._log.end_offset:
            return False
        if last is not None:
            return end == last.end or end == self._filled_to(last.end)
        edges = (edge for each in self._log.segments for edge in (each.start, each.end))
        return end == self._log.first_offset or end in edges

    def _filled_to(self, offset: int) -> int | None:
        """Where the filler at *offset* ends; None if none starts there."""
        try:
            size, magic = FILLER.unpack(self._log.read(offset, FILLER.size))
        except StoreError:
            return None
        return offset + size if magic == MAGIC_BLANK else None

    def queue_starts(self) -> dict[Topic, dict[int, int]]:
        """By topic and queue id: the offset of the first message kept, or of the next one."""
        first = self._log.first_offset
        starts: dict[Topic, dict[int, int]] = {}
        for topic, queue_id, queue in self._queues.named():
            starts.setdefault(topic, {})[queue_id] = queue.first_at_or_behind(first)
        return starts

    def plan_rejoin(self, rejoin: Rejoin) -> None:
        """Have the next opening of the store do *rejoin*. Blocks; raises OSError."""
        self._rejoin.save(rejoin.to_table())
