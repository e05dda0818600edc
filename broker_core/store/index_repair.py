"""Examination of an index entry whose message cannot be read: repairs the entry, or finds damage.

A consume queue names the place of each message in the log. Where the message there is another one,
the part of the log between the nearest entries that are right is read again: it shows which entries
are wrong, and which messages are damaged. Entries that do not match their checksum are compared
with the messages at their places first: the checksum may be wrong, too. What takes long is read in
a thread; until then reads of these messages find the queue *under examination*.
"""

from __future__ import annotations

import asyncio
import struct
from collections.abc import Callable, Iterable
from functools import partial
from struct import Struct
from typing import NamedTuple

import structlog

from broker_core.errors import StoreError
from broker_core.names import Topic
from broker_core.remoting.message import MAGIC_V1, MAGIC_V2
from broker_core.remoting.record_fields import fields_of
from broker_core.store.commit_log import CommitLog
from broker_core.store.consume_queue import ENTRY, LOST_BYTES, ConsumeQueue
from broker_core.store.damage import DamagedMessages, DamagedRun
from broker_core.store.deletions import deleted_topic
from broker_core.store.entry_check import Compared, Entries, bytes_to_read, compared
from broker_core.store.entry_code import entry_code_of
from broker_core.store.log_scan import Gap, LogScan, LogView, ReadableLog, UnreadableAsDamage
from broker_core.tasks import in_thread, spawn

#: Size, magic, queue id, queue offset and place of a record.
_HEAD = Struct(">iI4xi4xqq")
#: A longer part of the log is read in a thread.
AT_ONCE_BYTES = 8 * 1024 * 1024

#: Errors of a read at a place where no record is.
_UNREADABLE = (StoreError, OSError, ValueError, OverflowError, struct.error, IndexError)

_log = structlog.get_logger("store")


class _Part(NamedTuple):
    """Offsets of a queue whose entries are in doubt, and the part of the log to read for them.

    ``block``: the first offset of a block of entries that does not match its checksum.
    """

    first: int
    end: int
    start_place: int
    end_place: int
    block: int | None = None


class _Found(NamedTuple):
    entries: dict[int, bytes]
    gaps: list[Gap]


class IndexRepair:
    """Repairs the index of one store. One event loop or thread only."""

    def __init__(
        self, log: CommitLog, damaged: DamagedMessages, *, on_repair: Callable[[ConsumeQueue], None]
    ) -> None:
        """Read *log* and report to *damaged*. *on_repair* is called when entries were replaced."""
        self._log = log
        self._damaged = damaged
        self._on_repair = on_repair
        #: Offsets that a thread examines.
        self._under_way: dict[ConsumeQueue, range] = {}

    def is_examining(self, queue: ConsumeQueue, offset: int, count: int) -> bool:
        """Return whether a thread examines any of *count* entries from *offset* on."""
        examined = self._under_way.get(queue)
        return examined is not None and offset < examined.stop and examined.start < offset + count

    def examine(
        self, topic: Topic, queue_id: int, queue: ConsumeQueue, offset: int, reason: str
    ) -> bool:
        """Repair the entry of *offset*, or report its message as damaged; *reason*: as found.

        Returns False while a thread reads the log: the entry is then neither. Raises OSError.
        """
        if queue in self._under_way:
            return False
        if self._is_right(topic, queue_id, queue, offset):
            place = queue.entry(offset)[0]
            gap = self._gap_of(place, place + 1, reason)
            self._damaged.add(DamagedRun(topic, queue_id, offset, offset + 1, gap))
            return True
        return self._read_again(
            topic, queue_id, queue, self._part(topic, queue_id, queue, offset), reason
        )

    def repair(
        self, topic: Topic, queue_id: int, queue: ConsumeQueue, first: int, count: int
    ) -> None:
        """Repair the wrong ones of *count* entries from *first* on, a block that does not match its
        checksum.
        """
        if queue in self._under_way:
            return
        entries = list(ENTRY.iter_unpack(queue.read(first, count)))
        behind = queue.entry(first + count) if first + count < queue.end_offset else None
        block = Entries(topic, queue_id, first, entries, behind)
        begin, end = self._log.first_offset, self._log.end_offset
        if bytes_to_read(entries, end=end) <= AT_ONCE_BYTES or not _has_loop():
            found = compared(UnreadableAsDamage(self._log), block, begin=begin, end=end)
            self._apply_compared(queue, block, found)
        else:
            self._under_way[queue] = range(first, first + count)
            spawn(self._compare_slowly(queue, block, begin, end), name="compare entries")

    async def _compare_slowly(
        self, queue: ConsumeQueue, block: Entries, begin: int, end: int
    ) -> None:
        log = LogView(self._log.segments)
        try:
            readable = UnreadableAsDamage(log)
            found = await in_thread(partial(compared, readable, block, begin=begin, end=end))
        except (OSError, StoreError) as error:
            self._not_repaired(block.topic, block.queue_id, error)
            return
        finally:
            log.close()
            del self._under_way[queue]  # before another examination begins below
        if queue.end_offset >= block.first + len(block.entries):  # its topic still exists
            self._apply_compared(queue, block, found)

    def _not_repaired(self, topic: Topic, queue_id: int, error: Exception) -> None:
        _log.error("index not repaired", topic=topic, queue=queue_id, reason=str(error))

    def _apply_compared(self, queue: ConsumeQueue, block: Entries, found: Compared) -> None:
        reason = "entries do not match their checksum"
        for offset, entry in found.corrected.items():
            queue.replace(offset, entry)
        if found.corrected:
            self._on_repair(queue)
            self._log_repair(block.topic, block.queue_id, block.first, len(found.corrected), reason)
        if not found.doubtful:
            queue.renew_sum(block.first)
            return
        part = self._part(
            block.topic, block.queue_id, queue, found.doubtful[0], found.doubtful[-1] + 1
        )
        part = part._replace(block=block.first)
        self._read_again(block.topic, block.queue_id, queue, part, reason)

    def _read_again(
        self, topic: Topic, queue_id: int, queue: ConsumeQueue, part: _Part, reason: str
    ) -> bool:
        if part.end_place - part.start_place <= AT_ONCE_BYTES or not _has_loop():
            found = _read(self._log, topic, queue_id, part)
            self._apply(topic, queue_id, queue, part, found, reason)
            return True
        self._under_way[queue] = range(part.first, part.end)
        spawn(self._examine_slowly(topic, queue_id, queue, part, reason), name="examine a queue")
        return False

    async def _examine_slowly(
        self, topic: Topic, queue_id: int, queue: ConsumeQueue, part: _Part, reason: str
    ) -> None:
        log = LogView(self._log.segments)
        try:
            found = await in_thread(_read, log, topic, queue_id, part)
            if queue.end_offset >= part.end:  # its topic still exists
                self._apply(topic, queue_id, queue, part, found, reason)
        except (OSError, StoreError) as error:
            self._not_repaired(topic, queue_id, error)
        finally:
            log.close()
            self._under_way.pop(queue, None)

    def _part(
        self,
        topic: Topic,
        queue_id: int,
        queue: ConsumeQueue,
        offset: int,
        stop: int | None = None,
    ) -> _Part:
        first, end = offset, offset + 1 if stop is None else stop
        low, high = queue.first_offset, queue.end_offset
        while (
            first > low
            and not self._is_right(topic, queue_id, queue, first - 1)
            and not self._is_deleted(queue, first - 1)
        ):
            first -= 1
        while end < high and not self._is_right(topic, queue_id, queue, end):
            end += 1
        start_place, end_place = self._log.first_offset, self._log.end_offset
        if first > low:
            place, size, _ = queue.entry(first - 1)
            start_place = max(start_place, place + size)
        if end < high:
            end_place = queue.entry(end)[0]
        return _Part(first, end, start_place, end_place)

    def _is_deleted(self, queue: ConsumeQueue, offset: int) -> bool:
        """Return whether the entry is of a message that retention deleted."""
        place, size, _ = queue.entry(offset)
        return place + size <= self._log.first_offset

    def _is_right(self, topic: Topic, queue_id: int, queue: ConsumeQueue, offset: int) -> bool:
        """Return whether a record at the entry's place names topic, queue, offset and size."""
        place, size, _ = queue.entry(offset)
        try:
            record = self._log.read(place, size)
            found_topic, _, _ = fields_of(record)
            if found_topic != topic.encode():
                return False
            found_size, magic, found_queue, found_offset, found_place = _HEAD.unpack_from(record)
        except _UNREADABLE:
            return False
        return magic in (MAGIC_V1, MAGIC_V2) and (
            found_size,
            found_queue,
            found_offset,
            found_place,
        ) == (size, queue_id, offset, place)

    def _apply(
        self,
        topic: Topic,
        queue_id: int,
        queue: ConsumeQueue,
        part: _Part,
        found: _Found,
        reason: str,
    ) -> None:
        lost = [
            each
            for each in range(part.first, part.end)
            if each not in found.entries and not _was_left_out(queue.entry(each))
        ]
        if part.block is not None:
            # The log has no message of an entry that names one before the log: it was deleted.
            lost = [
                each
                for each in lost
                if queue.entry(each)[1] == 0 or not self._is_deleted(queue, each)
            ]
        if 0 < self._log.first_offset == part.start_place and part.end - part.first > 1:
            # Messages before the first one that is left were deleted.
            left = min(found.entries, default=part.end)
            lost = [each for each in lost if each > left]
        repaired = 0
        for offset, entry in found.entries.items():
            if queue.read(offset, 1) != entry:
                queue.replace(offset, entry)
                repaired += 1
        for first, end in _runs(lost):
            before = max(
                (place for each, place in _places(found.entries) if each < first),
                default=part.start_place,
            )
            gap = next((each for each in found.gaps if each.end > before), None)
            if gap is None:  # nothing is damaged there: the log never had these messages
                gap = self._gap_of(min(before, self._log.end_offset - 1), before + 1, reason)
            for offset in range(first, end):
                if not gap.start <= queue.entry(offset)[0] < gap.end:
                    queue.replace(offset, ENTRY.pack(gap.start, LOST_BYTES, 0))
            self._damaged.add(DamagedRun(topic, queue_id, first, end, gap))
        if found.entries or lost:
            self._on_repair(queue)
        if part.block is not None:
            queue.renew_sum(part.block)
        if repaired:
            self._log_repair(topic, queue_id, part.first, repaired, reason)

    def _gap_of(self, start: int, end: int, reason: str) -> Gap:
        log = UnreadableAsDamage(self._log)
        return log.named(LogScan(log, start=start).gap_of(start, end, reason))

    def _log_repair(
        self, topic: Topic, queue_id: int, first: int, entries: int, reason: str
    ) -> None:
        _log.warning(
            "wrong entries of a consume queue were replaced from the log",
            topic=topic,
            queue=queue_id,
            first_offset=first,
            entries=entries,
            reason=reason,
        )


def _has_loop() -> bool:
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return False
    return True


def _read(readable: ReadableLog, topic: Topic, queue_id: int, part: _Part) -> _Found:
    log = UnreadableAsDamage(readable)
    scan = LogScan(log, start=part.start_place, until=part.end_place)
    entries: dict[int, bytes] = {}
    for message in scan:
        if deleted_topic(message) == topic:
            entries.clear()  # they are of a former life
        if (
            message.topic == topic
            and message.queue_id == queue_id
            and part.first <= message.queue_offset < part.end
        ):
            code = entry_code_of(topic, message.raw_properties)
            entry = ENTRY.pack(message.physical_offset, message.size, code)
            entries.setdefault(message.queue_offset, entry)
    gaps = list(scan.gaps)
    if scan.damaged_from is not None and scan.damaged_from < part.end_place:
        gaps.append(scan.gap_of(scan.damaged_from, part.end_place, scan.reason or "unreadable"))
    return _Found(entries, [log.named(gap) for gap in gaps])


def _was_left_out(entry: tuple[int, int, int]) -> bool:
    """Return whether the entry is of an offset that readers pass over."""
    return entry[1] == 0 and entry[0] > 0


def _places(entries: dict[int, bytes]) -> Iterable[tuple[int, int]]:
    return ((offset, ENTRY.unpack(entry)[0]) for offset, entry in entries.items())


def _runs(offsets: list[int]) -> Iterable[tuple[int, int]]:
    """Yield the ranges of consecutive *offsets*."""
    start = 0
    for at in range(1, len(offsets) + 1):
        if at == len(offsets) or offsets[at] != offsets[at - 1] + 1:
            yield offsets[start], offsets[at - 1] + 1
            start = at
