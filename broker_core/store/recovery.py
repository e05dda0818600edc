"""Recovery of log and consume queues at a start.

1. Consume queues are trusted up to the checkpoint if they have the number of entries that it
   states; otherwise all are rebuilt from the log.
2. The log is read from the last message before the checkpoint on, and every checksum verified.
   Bytes that no intact message follows are the incomplete end of the last writes: they are cut off
   and logged. But what a checkpoint states to be on disk is never cut.
3. Damage that intact messages follow is a gap: these messages are kept, and so are the offsets of
   the missing ones, which are reported (``damage.py``).
4. Messages after the checkpoint are entered into their queues again. Missing ones among them, in
   sectors that were never written, belong to writes that a power failure interrupted before they
   were confirmed: readers skip them. A new folder gets a checkpoint before its first message, so
   only a lost checkpoint leaves the log without this distinction.
5. A checkpoint is invalidated before consume queues are rebuilt, so that the next start after a
   kill rebuilds them again. It still states how far messages were visible.
6. A queue continues at its end offset, even if all its messages have been deleted.
7. A record that deletes a topic drops the entries of the topic's earlier messages, in log order.
   A checkpoint after the record is written only after they were dropped.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from broker_core.names import Topic
from broker_core.remoting.message import FIXED_BYTES, StoredMessage
from broker_core.store.commit_log import CommitLog, Dropped
from broker_core.store.consume_queue import ENTRY, LOST_BYTES, ConsumeQueue
from broker_core.store.consume_queues import ConsumeQueues
from broker_core.store.damage import DamagedRun
from broker_core.store.delay_index import ended_entry, ended_queue
from broker_core.store.deletions import deleted_topic
from broker_core.store.entry_code import entry_code_of
from broker_core.store.log_scan import Gap, LogScan
from broker_core.store.record_check import damaged_record

_MOST_TRIED = 64  # last messages of queues
_MOST_LEFT_OUT = 1000  # offsets of a queue, for one gap


@dataclass(frozen=True, slots=True)
class Checkpoint:
    """Consume queues were on disk for all messages before ``physical``: ``entries`` of them.

    ``begin`` is the first byte of the log then; None: unknown, as of an earlier version.
    """

    physical: int
    entries: int
    begin: int | None = None

    @classmethod
    def from_table(cls, content: dict[str, Any]) -> Checkpoint | None:
        """Return None if *content* is not a checkpoint: everything is then rebuilt."""
        physical, entries = content.get("physical"), content.get("entries")
        begin = content.get("begin")
        if isinstance(physical, int) and isinstance(entries, int):
            return cls(physical, entries, begin if isinstance(begin, int) else None)
        return None

    def to_table(self) -> dict[str, int]:
        """Inverse of ``from_table``."""
        table = {"physical": self.physical, "entries": self.entries}
        return table if self.begin is None else {**table, "begin": self.begin}

    def forgotten(self) -> Checkpoint:
        """Return an invalid checkpoint that keeps ``physical``.

        No queues have so few entries, so a start rebuilds them, but it still knows how far messages
        were visible.
        """
        return Checkpoint(self.physical, -1, self.begin)


@dataclass(slots=True)
class Recovery:
    """Findings and changes of a recovery."""

    end_offset: int = 0  # of the log
    reason: str = ""  # for which the log ends there
    replayed: int = 0  # messages entered into consume queues again
    deletions: int = 0  # of topics, among them
    rebuilt: bool = False  # all consume queues
    dropped: Dropped = field(default_factory=lambda: Dropped(0, Path(), 0))  # after the end
    gaps: list[Gap] = field(default_factory=list)  # damage between intact messages
    damaged: list[DamagedRun] = field(default_factory=list)  # messages lost in it
    unwritten: int = 0  # offsets that readers pass over: nothing is known of their messages
    lost_bytes: int = 0  # bytes that had certainly been on disk and are damaged
    last_store_ms: int = 0


def recover(
    log: CommitLog,
    queues: ConsumeQueues,
    checkpoint: Checkpoint | None,
    *,
    forget_checkpoint: Callable[[], None],
) -> Recovery:
    """Bring *log* and *queues* into one state and open the log for appending.

    Takes about 2 µs a message read. Raises OSError, and StoreError if the log lacks files that
    were there.
    """
    on_disk = 0 if checkpoint is None else checkpoint.physical
    if log.segments or (checkpoint is not None and checkpoint.begin is not None):
        log.require(on_disk, begin=0 if checkpoint is None else checkpoint.begin or 0)
    ends = _Ends(log, queues)
    result = _replay(log, queues, checkpoint, ends) if checkpoint is not None else None
    if result is None:
        forget_checkpoint()
        confirmed = None if checkpoint is None else checkpoint.physical
        result = _Rebuild(log, queues, confirmed, ends).run()
    synced = 0 if checkpoint is None or result.rebuilt else checkpoint.physical
    result.dropped = log.open_at(result.end_offset, synced=synced)
    queues.delete_dropped()
    return result


def _replay(
    log: CommitLog, queues: ConsumeQueues, checkpoint: Checkpoint, ends: _Ends
) -> Recovery | None:
    """Continue from the checkpoint, or return None if that is impossible."""
    physical = checkpoint.physical
    if physical < log.first_offset:
        return None
    for queue in queues:
        queue.cut_behind(physical)
    if queues.count() != checkpoint.entries:
        return None
    result = Recovery()
    ended = ended_queue(queues)
    if not ended.matches_sums():
        return None  # a wrong entry would deliver a delayed message twice, or never
    before = LogScan(log, start=_last_message(log, queues, before=physical), until=physical)
    for message in before:
        result.last_store_ms = message.store_ms
    result.lost_bytes = _lost_in(before, end=physical)
    scan = LogScan(log, start=physical)
    for message in scan:
        queue = queues.obtain(message.topic, message.queue_id)
        missing = message.queue_offset - queue.end_offset
        if missing < 0 or (missing and not scan.gaps):
            return None  # reading all shows whether log or queue is wrong
        if missing:
            _enter_missing(queue, missing, scan.gaps, result, message, physical=physical)
        _enter(queue, message, ended)
        result.replayed += 1
        if (topic := deleted_topic(message)) is not None:
            for gone in queues.drop(topic, at=message.physical_offset):
                ends.forget(gone)
            result.deletions += 1
        result.last_store_ms = message.store_ms
    result.gaps = scan.gaps
    damage = [gap for gap in scan.gaps if not _was_interrupted(gap, physical)]
    result.lost_bytes += sum(gap.size for gap in damage)
    ends.keep(damage, result)
    result.end_offset, result.reason = scan.end, scan.reason
    return result


def _lost_in(scan: LogScan, *, end: int) -> int:
    """Return the damaged bytes that *scan*, which was to reach *end*, has found."""
    lost = sum(gap.size for gap in scan.gaps)
    return lost if scan.damaged_from is None else lost + max(0, end - scan.damaged_from)


class _Rebuild:
    """One rebuild of all consume queues from the log.

    *physical*: that of the checkpoint, at least so much of the log is kept; None: unknown, any
    message may have been confirmed.
    """

    def __init__(
        self, log: CommitLog, queues: ConsumeQueues, physical: int | None, ends: _Ends
    ) -> None:
        self._log, self._queues, self._physical, self._ends = log, queues, physical, ends
        self._on_disk = physical or 0
        self._result = Recovery(rebuilt=True)
        self._began_anew: set[Topic] = set()
        self._started: set[ConsumeQueue] = set()
        #: Start of each queue according to its files, which may be wrong.
        self._firsts: dict[ConsumeQueue, int] = {}

    def run(self) -> Recovery:
        """Rebuild; return the findings."""
        log, result = self._log, self._result
        for queue in self._queues:
            self._firsts[queue] = queue.first_at_or_behind(log.first_offset)
        self._ended = ended_queue(self._queues)
        self._ended.start_at(self._firsts.get(self._ended, 0))
        self._started.add(self._ended)
        scan = LogScan(log, start=log.first_offset)
        for message in scan:
            self._take(message, scan)
        self._finish(scan)
        result.gaps = scan.gaps
        damage = [gap for gap in scan.gaps if not _was_interrupted(gap, self._physical)]
        result.lost_bytes = sum(gap.size for gap in damage)
        result.reason = scan.reason
        result.end_offset = scan.end
        if scan.end < self._on_disk:
            gap = scan.gap_of(scan.end, self._on_disk, scan.reason or "the file ends there")
            result.gaps = [*scan.gaps, gap]
            damage.append(gap)
            result.lost_bytes += gap.size
            result.end_offset = self._on_disk
        self._ends.keep(damage, result)
        return result

    def _take(self, message: StoredMessage, scan: LogScan) -> None:
        queue = self._queues.obtain(message.topic, message.queue_id)
        if queue not in self._started:
            self._begin(queue, message, scan)
        missing = message.queue_offset - queue.end_offset
        if missing < 0 and message.queue_offset == 0 and scan.gaps:
            self._drop(message.topic, message)  # the record of its deletion is in a gap
            queue = self._queues.obtain(message.topic, message.queue_id)
            queue.start_at(0)
            self._started.add(queue)
            missing = 0
        if missing < 0:
            gap = scan.gap_of(
                message.physical_offset,
                message.physical_offset + message.size,
                f"the message has offset {message.queue_offset} in queue {message.queue_id} of"
                f" {message.topic}, where {queue.end_offset} is next",
            )
            scan.gaps.append(gap)
            return
        if missing:
            gaps = scan.gaps or [
                scan.gap_of(
                    message.physical_offset,
                    message.physical_offset + 1,
                    f"the log has no message of queue {message.queue_id} of {message.topic} before"
                    f" offset {message.queue_offset}, where {queue.end_offset} is next",
                )
            ]
            physical = self._physical
            _enter_missing(queue, missing, gaps, self._result, message, physical=physical)
        _enter(queue, message, self._ended)
        self._result.last_store_ms = message.store_ms
        self._result.replayed += 1
        if (topic := deleted_topic(message)) is not None:
            self._result.deletions += 1
            self._drop(topic, message)

    def _begin(self, queue: ConsumeQueue, message: StoredMessage, scan: LogScan) -> None:
        """Start *queue* at *message*, or earlier if messages before it are in a gap."""
        self._started.add(queue)
        if message.topic in self._began_anew:
            return
        first = message.queue_offset
        if scan.gaps:
            least = 0 if self._log.first_offset == 0 else first
            known = self._firsts.get(queue, least)
            room = sum(gap.size for gap in scan.gaps) // FIXED_BYTES
            if first - room <= known <= first:
                first = known
        queue.start_at(first)

    def _drop(self, topic: Topic, message: StoredMessage) -> None:
        self._began_anew.add(topic)
        for gone in self._queues.drop(topic, at=message.physical_offset):
            self._started.discard(gone)
            self._firsts.pop(gone, None)
            self._ends.forget(gone)

    def _finish(self, scan: LogScan) -> None:
        for queue, offset in self._firsts.items():
            if queue not in self._started:
                queue.end_empty_at(offset)


class _Ends:
    """Ends of queues before a recovery: the offsets of damaged messages are not used again.

    Known by the files of the queues, or by what is legible of the messages.
    """

    def __init__(self, log: CommitLog, queues: ConsumeQueues) -> None:
        """Note the ends according to the files, which may be wrong."""
        self._log, self._queues = log, queues
        self._ended = ended_queue(queues)
        self._ends: dict[ConsumeQueue, int] = {}
        for queue in queues:
            # Without the garbage of a power failure.
            queue.cut_behind(log.segments[-1].end if log.segments else 0)
            self._ends[queue] = queue.end_offset

    def forget(self, queue: ConsumeQueue) -> None:
        """Forget a queue whose topic was deleted."""
        self._ends.pop(queue, None)

    def keep(self, gaps: list[Gap], result: Recovery) -> None:
        """Enter the messages at the ends of queues that are in *gaps*, which are damage."""
        room = sum(gap.size for gap in gaps) // FIXED_BYTES
        if not room:
            return
        for topic, queue_id, queue in list(self._queues.named()):
            end = self._ends.get(queue, 0)
            missing = end - queue.end_offset
            if queue is not self._ended and 0 < missing <= room:
                _enter_damaged(queue, missing, gaps[-1])
                run = DamagedRun(topic, queue_id, end - missing, end, gaps[-1])
                result.damaged.append(run)
        topics = {topic.encode(): topic for topic, _, _ in self._queues.named()}
        for gap in gaps:
            illegible = gap.size
            for topic, queue_id, size in _legible_in(self._log, gap, topics):
                illegible -= size
                self._keep_one(topic, queue_id, gap, result)
            if illegible:
                most = min(-(-illegible // FIXED_BYTES), _MOST_LEFT_OUT)
                self._leave_room(gap, most, result)

    def _leave_room(self, gap: Gap, count: int, result: Recovery) -> None:
        """Leave out *count* offsets of queues without files that may have had messages in *gap*.

        Nothing tells which of them had any: readers pass over these offsets.
        """
        for _, _, queue in self._queues.named():
            end = queue.end_offset
            if queue is self._ended or queue in self._ends or end <= queue.first_offset:
                continue
            if queue.entry(end - 1)[0] < gap.start:
                queue.append(ENTRY.pack(gap.start, 0, 0) * count)
                result.unwritten += count

    def _keep_one(self, topic: Topic, queue_id: int, gap: Gap, result: Recovery) -> None:
        """Enter a message in *gap* if it is behind all others of its queue."""
        queue = self._queues.find(topic, queue_id)
        if queue is None or queue is self._ended:
            return
        end = queue.end_offset
        last = queue.entry(end - 1) if end > queue.first_offset else (-1, 0, 0)
        if last[0] < gap.start:
            _enter_damaged(queue, 1, gap)
            result.damaged.append(DamagedRun(topic, queue_id, end, end + 1, gap))


def _legible_in(
    log: CommitLog, gap: Gap, topics: dict[bytes, Topic]
) -> Iterator[tuple[Topic, int, int]]:
    """Yield topic, queue id and size of the damaged messages in *gap*, as far as legible."""
    segment = log.segment_at(gap.start)
    if segment is None:
        return
    data = log.read_segment(segment, gap.start, min(gap.size, segment.end - gap.start))
    at = 0
    while at + FIXED_BYTES <= len(data):
        size = int.from_bytes(data[at : at + 4], "big")
        if not FIXED_BYTES <= size <= len(data) - at:
            size = len(data) - at
        found = damaged_record(data, at, size, topics=topics)
        if found is not None:
            yield found[0], found[1], size
        at += size


def _enter_missing(
    queue: ConsumeQueue,
    missing: int,
    gaps: list[Gap],
    result: Recovery,
    message: StoredMessage,
    *,
    physical: int | None,
) -> None:
    """Enter *missing* messages of *queue* before *message*, which are in *gaps*; note what they
    are. *physical*: that of the checkpoint.
    """
    end = queue.end_offset
    last = queue.entry(end - 1)[0] if end > queue.first_offset else -1
    between = [gap for gap in gaps if gap.start > last]
    if between and all(_was_interrupted(gap, physical) for gap in between):
        queue.append(ENTRY.pack(gaps[-1].start, 0, 0) * missing)
        result.unwritten += missing
    else:
        _enter_damaged(queue, missing, gaps[-1])
        run = DamagedRun(message.topic, message.queue_id, end, message.queue_offset, gaps[-1])
        result.damaged.append(run)


def _enter_damaged(queue: ConsumeQueue, count: int, gap: Gap) -> None:
    queue.append(ENTRY.pack(gap.start, LOST_BYTES, 0) * count)


def _was_interrupted(gap: Gap, physical: int | None) -> bool:
    """Return whether *gap* is a write that a power failure interrupted, so that none of its
    messages was confirmed. *physical*: that of the checkpoint; None: unknown.
    """
    return gap.unwritten and physical is not None and gap.start >= physical


def taken_back(log: CommitLog, queues: ConsumeQueues, *, behind: int) -> Iterator[StoredMessage]:
    """Remove the messages at or after *behind*, where one starts, from their queues; yield them.

    For a log whose end is not confirmed by its replicas. Ended delayed messages stay ended: they
    must not be delivered again.
    """
    ended = ended_queue(queues)
    for queue in queues:
        if queue is not ended:
            queue.cut_behind(behind)
    yield from LogScan(log, start=behind)


def _last_message(log: CommitLog, queues: ConsumeQueues, *, before: int) -> int:
    """Return the start of the last intact message that a queue ends with, or *before*.

    A place where none starts is passed over: perhaps the entry is wrong.
    """
    places: list[int] = []
    for queue in queues:
        if queue.end_offset > queue.first_offset:
            place, size, _ = queue.entry(queue.end_offset - 1)
            if size > LOST_BYTES and log.first_offset <= place < before:
                places.append(place)
    if not places:
        return before
    for place in sorted(places, reverse=True)[:_MOST_TRIED]:
        first = next(iter(LogScan(log, start=place, until=place + 1)), None)
        if first is not None and first.physical_offset == place:
            return place
    segment = log.segment_at(max(places))
    return before if segment is None else segment.start


def _enter(queue: ConsumeQueue, message: StoredMessage, ended: ConsumeQueue) -> None:
    code = entry_code_of(message.topic, message.raw_properties)
    queue.append(ENTRY.pack(message.physical_offset, message.size, code))
    ended.append(ended_entry(message.physical_offset, message.size, message.prepared_offset))
