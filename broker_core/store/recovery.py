"""Recovery of log and consume queues at a start.

1. Consume queues are trusted up to the checkpoint if they have the number of entries that it
   states; otherwise all are rebuilt from the log.
2. The log is read from the last message before the checkpoint on, and every checksum verified.
   It ends at the first byte that is not a whole message, or at a message that does not continue its
   queue. The rest is dropped and logged. If that last message is damaged, older ones are not
   trusted either: the whole log is read and all queues are rebuilt.
3. Messages after the checkpoint are entered into their queues again.
4. A checkpoint is invalidated before consume queues are rebuilt, so that the next start after a
   kill rebuilds them again. It still states how far messages were visible.
5. A queue continues at its end offset, even if all its messages have been deleted.
6. A record that deletes a topic drops the entries of the topic's earlier messages, in log order.
   A checkpoint after the record is written only after they were dropped.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from broker_core.errors import RemoteProtocolError
from broker_core.names import Topic
from broker_core.remoting.message import (
    FIXED_BYTES,
    MAGIC_BLANK,
    MAGIC_V1,
    MAGIC_V2,
    MAX_ZEROS_IN_PROPERTIES,
    StoredMessage,
    decode_message,
)
from broker_core.store.commit_log import FILLER, CommitLog, Dropped
from broker_core.store.consume_queue import ENTRY, ConsumeQueue
from broker_core.store.consume_queues import ConsumeQueues
from broker_core.store.delay_index import ended_entry, ended_queue
from broker_core.store.deletions import deleted_topic
from broker_core.store.entry_code import entry_code_of
from broker_core.store.segments import Segment

_CHUNK_BYTES = 4 * 1024 * 1024
_SECTOR_BYTES = 512  # unit that a disk writes completely
_LONG_ZEROS = re.compile(rb"\0{%d,}" % (MAX_ZEROS_IN_PROPERTIES + 1))


@dataclass(frozen=True, slots=True)
class Checkpoint:
    """Consume queues were on disk for all messages before ``physical``: ``entries`` of them."""

    physical: int
    entries: int

    @classmethod
    def from_table(cls, content: dict[str, Any]) -> Checkpoint | None:
        """Return None if *content* is not a checkpoint: everything is then rebuilt."""
        physical, entries = content.get("physical"), content.get("entries")
        if isinstance(physical, int) and isinstance(entries, int):
            return cls(physical, entries)
        return None

    def to_table(self) -> dict[str, int]:
        """Inverse of ``from_table``."""
        return {"physical": self.physical, "entries": self.entries}

    def forgotten(self) -> Checkpoint:
        """Return an invalid checkpoint that keeps ``physical``.

        No queues have so few entries, so a start rebuilds them, but it still knows how far messages
        were visible.
        """
        return Checkpoint(self.physical, -1)


@dataclass(slots=True)
class Recovery:
    """Findings and changes of a recovery."""

    end_offset: int = 0  # of the log
    reason: str = ""  # for which the log ends there
    replayed: int = 0  # messages entered into consume queues again
    deletions: int = 0  # of topics, among them
    rebuilt: bool = False  # all consume queues
    dropped: Dropped = field(default_factory=lambda: Dropped(0, Path(), 0))  # after the end
    lost_bytes: int = 0  # of these, bytes that had certainly been on disk
    last_store_ms: int = 0


def recover(
    log: CommitLog,
    queues: ConsumeQueues,
    checkpoint: Checkpoint | None,
    *,
    forget_checkpoint: Callable[[], None],
) -> Recovery:
    """Bring *log* and *queues* into one state and open the log for appending.

    Takes about 2 µs a message read. Raises OSError.
    """
    result = _replay(log, queues, checkpoint) if checkpoint is not None else None
    if result is None:
        forget_checkpoint()
        result = _rebuild(log, queues)
    if checkpoint is not None:
        result.lost_bytes = max(0, checkpoint.physical - result.end_offset)
    synced = 0 if checkpoint is None or result.rebuilt else checkpoint.physical
    result.dropped = log.open_at(result.end_offset, synced=synced)
    queues.delete_dropped()
    return result


def _replay(log: CommitLog, queues: ConsumeQueues, checkpoint: Checkpoint) -> Recovery | None:
    """Continue from the checkpoint, or return None if that is impossible."""
    if checkpoint.physical < log.first_offset:
        return None
    for queue in queues:
        queue.cut_behind(checkpoint.physical)
    if queues.count() != checkpoint.entries:
        return None
    result = Recovery()
    ended = ended_queue(queues)
    scan = _Scan(log, start=_last_message(log, queues))
    for message in scan:
        if message.physical_offset >= checkpoint.physical:
            queue = queues.obtain(message.topic, message.queue_id)
            if message.queue_offset != queue.end_offset:
                return None  # reading all shows whether log or queue is wrong
            _enter(queue, message, ended)
            result.replayed += 1
            if (topic := deleted_topic(message)) is not None:
                queues.drop(topic, at=message.physical_offset)
                result.deletions += 1
        result.last_store_ms = message.store_ms
    if scan.end < checkpoint.physical:
        return None  # bytes that were on disk are gone: older ones may be as well
    result.end_offset, result.reason = scan.end, scan.reason
    return result


def _rebuild(log: CommitLog, queues: ConsumeQueues) -> Recovery:
    deleted = {}
    for queue in queues:
        queue.cut_behind(log.segments[-1].end if log.segments else 0)  # garbage of a power failure
        deleted[queue] = queue.first_at_or_behind(log.first_offset)
    result = Recovery(rebuilt=True)
    scan = _Scan(log, start=log.first_offset)
    ended = ended_queue(queues)
    ended.start_at(deleted.get(ended, 0))
    started = {ended}
    begun_anew: set[Topic] = set()
    for message in scan:
        queue = queues.obtain(message.topic, message.queue_id)
        if queue not in started:
            started.add(queue)
            if message.topic not in begun_anew:
                queue.start_at(message.queue_offset)
        if message.queue_offset != queue.end_offset:
            scan.stop_before(
                message,
                f"the message has offset {message.queue_offset} in queue {message.queue_id} of"
                f" {message.topic}, where {queue.end_offset} is next",
            )
            break
        _enter(queue, message, ended)
        result.last_store_ms = message.store_ms
        result.replayed += 1
        if (topic := deleted_topic(message)) is not None:
            result.deletions += 1
            begun_anew.add(topic)
            for gone in queues.drop(topic, at=message.physical_offset):
                started.discard(gone)
                deleted.pop(gone, None)
    for queue, offset in deleted.items():
        if queue not in started:
            queue.end_empty_at(offset)
    result.end_offset, result.reason = scan.end, scan.reason
    return result


def taken_back(log: CommitLog, queues: ConsumeQueues, *, behind: int) -> Iterator[StoredMessage]:
    """Remove the messages at or after *behind*, where one starts, from their queues; yield them.

    For a log whose end is not confirmed by its replicas. Ended delayed messages stay ended: they
    must not be delivered again.
    """
    ended = ended_queue(queues)
    for queue in queues:
        if queue is not ended:
            queue.cut_behind(behind)
    yield from _Scan(log, start=behind)


def _last_message(log: CommitLog, queues: ConsumeQueues) -> int:
    """Return the start in the log of the last message of all queues, or the log's beginning."""
    place = log.first_offset
    for queue in queues:
        if queue.end_offset > queue.first_offset:
            place = max(place, queue.entry(queue.end_offset - 1)[0])
    return place


def _enter(queue: ConsumeQueue, message: StoredMessage, ended: ConsumeQueue) -> None:
    code = entry_code_of(message.topic, message.raw_properties)
    queue.append(ENTRY.pack(message.physical_offset, message.size, code))
    ended.append(ended_entry(message.physical_offset, message.size, message.prepared_offset))


def is_garbled(message: StoredMessage, position: int, *, segment_start: int) -> bool:
    """Return whether head, topic or properties are invalid: the checksum covers the body only.

    A power failure leaves zeros in sectors; no topic contains zeros.
    """
    properties = message.raw_properties
    return (
        message.physical_offset != position
        or message.queue_id < 0
        or message.queue_offset < 0
        or not message.topic
        or "\0" in message.topic
        or "/" in message.topic
        or (bool(properties) and not properties.endswith(b"\x02"))
        or (
            len(properties) > MAX_ZEROS_IN_PROPERTIES
            and _lacks_sectors(properties, end=position + message.size - segment_start)
        )
    )


def _lacks_sectors(properties: bytes, *, end: int) -> bool:
    """Return whether zeros replace whole sectors of the file, where *properties* end at *end*.

    Zeros that begin or end inside a sector were sent: long runs of them were accepted once.
    """
    # The byte before them may be zero as well: the low one of their length.
    tail = bytes((len(properties) & 0xFF,)) + properties
    start = end - len(tail)
    return any(
        (start + zeros.start()) % _SECTOR_BYTES == 0 == (start + zeros.end()) % _SECTOR_BYTES
        for zeros in _LONG_ZEROS.finditer(tail)
    )


class _Scan:
    """Iterates over whole messages from the one at *start* on.

    ``end`` is the end of the last one so far, ``reason`` why the iteration ended.
    """

    def __init__(self, log: CommitLog, *, start: int) -> None:
        self._log = log
        self.end = start
        self.reason = ""

    def __iter__(self) -> Iterator[StoredMessage]:
        for segment in self._log.segments:
            if segment.start <= self.end < segment.end:
                yield from self._messages(segment)

    def stop_before(self, message: StoredMessage, reason: str) -> None:
        """Exclude *message*, the last one returned."""
        self.end, self.reason = message.physical_offset, reason

    def _ends(self, segment: Segment, end: int) -> bool:
        """Return whether *segment* ends at *end*, according to a filler."""
        if segment is self._log.segments[-1] and segment.start < end < segment.end:
            # The last one of a copied log: its length is not a setting of this broker.
            segment.resize(end - segment.start)
        return end == segment.end

    def _messages(self, segment: Segment) -> Iterator[StoredMessage]:
        position = self.end
        chunk, chunk_at = b"", position
        while position + FILLER.size <= segment.end:
            if position + FILLER.size > chunk_at + len(chunk):
                chunk_at = position
                chunk = self._log.read_segment(segment, position, _CHUNK_BYTES)
            if len(chunk) - (position - chunk_at) < FILLER.size:
                self.reason = "the file ends there"
                return
            size, magic = FILLER.unpack_from(chunk, position - chunk_at)
            if magic == MAGIC_BLANK and self._ends(segment, position + size):
                self.end = segment.end
                return
            if magic not in (MAGIC_V1, MAGIC_V2) or not FIXED_BYTES <= size <= segment.capacity:
                self.reason = "no message starts there"
                return
            if position + size > chunk_at + len(chunk):
                chunk_at = position
                chunk = self._log.read_segment(segment, position, max(size, _CHUNK_BYTES))
            try:
                message = decode_message(chunk, position - chunk_at, check_crc=True, plain=False)
            except RemoteProtocolError:
                self.reason = "the message is cut short, or its body does not match its checksum"
                return
            if is_garbled(message, position, segment_start=segment.start):
                self.reason = "the head, topic or properties of the message are garbled"
                return
            position += message.size
            self.end = position
            yield message
