"""A log cut or corrupted at any byte of its tail, and the expected result of a start.

The log is written once; each cut is made in a copy, which is opened, compared and deleted. One of
its topics is deleted now and then: its earlier messages are gone, unless the cut is before the
deletion. For half of the seeds that topic is empty at the checkpoint, so a start continues there;
for the others a start reads the whole log.
"""

from __future__ import annotations

import asyncio
import os
import random
import shutil
from bisect import bisect_right
from dataclasses import dataclass, field
from itertools import product
from pathlib import Path
from typing import Any, Literal
from unittest.mock import AsyncMock, patch

from structlog.testing import capture_logs

from broker_core.names import Topic
from broker_core.remoting.message import StoredMessage, decode_messages
from broker_core.remoting.record_checksum import CHECKSUM_BYTES
from broker_core.store.commit_log import FILLER
from broker_core.store.deletions import DELETIONS
from broker_core.store.message_store import MessageStore
from broker_core.store.reader import ReadStatus
from tests.support.store_messages import TOPIC, entry, envelope

SEGMENT_BYTES = 40_000
TAIL_BYTES = 64 * 1024
QUEUES = 3
DELETED = Topic("refunds")

#: The bytes after the cut: none, or zeros (sectors that were never written).
Damage = Literal["end", "zeros"]


@dataclass(frozen=True, slots=True)
class Record:
    """A message and its place in the log."""

    topic: Topic
    queue_id: int
    offset: int  # in its queue
    body: bytes
    start: int
    end: int


@dataclass(slots=True)
class TornLog:
    """A log of several segments in *folder*, as left by a kill; its tail is after a checkpoint."""

    folder: Path
    scratch: Path
    records: list[Record] = field(default_factory=list)

    @classmethod
    def write(cls, folder: Path, *, seed: int) -> TornLog:
        """Write a log into *folder*, which is empty."""
        log = cls(folder / "log", folder / "copy")
        asyncio.run(log._write(random.Random(seed)))
        return log

    @property
    def end(self) -> int:
        """The position after the last byte of the log."""
        return self.records[-1].end

    def check_cut(self, at: int, damage: Damage) -> None:
        """Cut at byte *at*: all whole messages before it are restored, and the dropped bytes are
        reported.
        """
        self._copy()
        _cut(self._segments(), at, damage)
        end = self._log_end(at)
        self._check_recovered(self._index_at(at), end, dropped=self._used_bytes(end, at))

    def check_flip(self, at: int, bit: int) -> None:
        """Flip one bit: all messages but the one with it are restored."""
        victim = self.records[self._index_at(at)]
        self._copy()
        path, position = self._place(at)
        with path.open("r+b") as file:
            file.seek(position)
            (old,) = file.read(1)
            file.seek(position)
            file.write(bytes([old ^ 1 << bit]))
        self._check_bodies(without=victim if victim.start <= at else None)  # or the unused end

    def _check_bodies(self, *, without: Record | None) -> None:
        """Assert that all messages are restored in their order, except *without*."""
        with capture_logs():
            store = _opened(self.scratch)
        # A damaged deletion may count or not: check only the topic without deletions.
        try:
            bodies = [each.body for each in _all_of(store) if each.topic == TOPIC]
        finally:
            store.abandon()
        left = [each for each in self.records if each.topic == TOPIC and each is not without]
        assert bodies == [each.body for each in left]

    async def _write(self, chooser: random.Random) -> None:
        with capture_logs():
            store = _opened(self.folder)
        store.start()
        noted = False
        delete_before_checkpoint = chooser.random() < 0.5
        while not self.records or self.end < 2 * TAIL_BYTES:
            await self._put(store, chooser)
            if chooser.random() < 0.05:
                await self._delete(store)
            if not noted and self.end > TAIL_BYTES - 2000:
                noted = True
                if delete_before_checkpoint:
                    await self._delete(store)
                await store.checkpoint()
        store.abandon()

    async def _put(self, store: MessageStore, chooser: random.Random) -> None:
        topic = chooser.choice((TOPIC, TOPIC, DELETED))
        queue_id = chooser.randrange(QUEUES)
        entries = [
            entry(chooser.randbytes(chooser.randint(0, 1500)), key="k", tag="red")
            for _ in range(chooser.choice((1, 1, 3)))
        ]
        put = await store.put(envelope(queue_id, topic), entries, store_ms=len(self.records))
        for offset, (place, one) in enumerate(
            zip(put.physical_offsets, entries, strict=True), put.first_queue_offset
        ):
            size = 91 + len(topic) + len(one.body) + len(one.properties) + CHECKSUM_BYTES
            self.records.append(Record(topic, queue_id, offset, one.body, place, place + size))

    async def _delete(self, store: MessageStore) -> None:
        """Delete the topic as if killed before the next checkpoint."""
        with patch.object(MessageStore, "checkpoint", AsyncMock()):
            await store.delete_topic(DELETED, store_ms=len(self.records))
        number = sum(record.topic == DELETIONS for record in self.records)
        [(place, size, _)] = store.reader.entries(DELETIONS, 0, number, count=1)
        self.records.append(Record(DELETIONS, 0, number, DELETED.encode(), place, place + size))

    def _left_of(self, count: int) -> list[Record]:
        """Return those of the first *count* messages that no deletion removed."""
        left: list[Record] = []
        for record in self.records[:count]:
            if record.topic == DELETIONS:
                left = [each for each in left if each.topic != DELETED]
            else:
                left.append(record)
        return left

    def _check_recovered(self, count: int, end: int, *, dropped: int) -> None:
        """Assert that exactly the first *count* messages are restored, and that the log continues
        at *end*.

        *dropped*: the number of bytes to be reported.
        """
        with capture_logs() as logs:
            store = _opened(self.scratch)
        try:
            expected = [(r.topic, r.queue_id, r.offset, r.body) for r in self._left_of(count)]
            found = [(m.topic, m.queue_id, m.queue_offset, m.body) for m in _all_of(store)]
            assert found == expected, f"{len(found)} messages, not {len(expected)}"
            if dropped == 0:
                assert not store.recovery.dropped
            else:
                self._check_reported(logs[0], end, dropped)
            if end % 8 == 0:
                self._check_goes_on(store)
        finally:
            store.abandon()

    def _check_reported(self, line: dict[str, Any], end: int, dropped: int) -> None:
        assert "dropped" in line["event"]
        assert line["reason"]
        path, position = self._place(end)
        reported = line["file"], line["offset"], line["dropped_bytes"]
        assert reported == (str(path), position, dropped)

    def _check_goes_on(self, store: MessageStore) -> None:
        """Assert that new messages follow, and can be read, also in the next segments."""

        async def put() -> None:
            store.start()
            segments = len(store.log.segments)
            for number, (topic, queue_id) in enumerate(
                product((TOPIC, DELETED), [*range(QUEUES)] * 2)
            ):
                end = store.reader.end_offset(topic, queue_id)
                body = b"next" if number < QUEUES else bytes(SEGMENT_BYTES // 3)
                stored = await store.put(envelope(queue_id, topic), [entry(body)], store_ms=1)
                assert stored.first_queue_offset == end
                found = store.reader.read(topic, queue_id, end, max_messages=1)
                assert found.status is ReadStatus.FOUND, f"{found.status.value} in {segments=}"
                assert [each.body for each in decode_messages(found.body)] == [body]
            assert len(store.log.segments) > segments + 1

        asyncio.run(put())

    def _copy(self) -> None:
        shutil.rmtree(self.scratch, ignore_errors=True)
        shutil.copytree(self.folder, self.scratch)

    def _segments(self) -> list[Path]:
        return sorted(p for p in (self.scratch / "commitlog").iterdir() if p.name.isdigit())

    def _place(self, at: int) -> tuple[Path, int]:
        """Return file and position of byte *at* of the log, in the copy."""
        path = max(p for p in self._segments() if int(p.name) <= at)
        return path, at - int(path.name)

    def _index_at(self, at: int) -> int:
        """Return the number of messages that end at or before *at*."""
        return bisect_right(self.records, at, key=lambda record: record.end)

    def _log_end(self, at: int) -> int:
        """Return the end of the log when cut at *at*: after a message or a filler."""
        count = self._index_at(at)
        end = self.records[count - 1].end if count else 0
        following = self.records[count].start if count < len(self.records) else end
        return following if at >= end + FILLER.size and following > end else end

    def _used_bytes(self, start: int, end: int) -> int:
        """Count the bytes from *start* to *end*, without zeros at the end of each file."""
        used = 0
        for path in (self.folder / "commitlog").iterdir():
            at, content = int(path.name), path.read_bytes()
            used += len(content[max(0, start - at) : max(0, end - at)].rstrip(b"\0"))
        return used


def _opened(folder: Path) -> MessageStore:
    return MessageStore(folder, segment_bytes=SEGMENT_BYTES, flush="async", entries_per_file=64)


def _all_of(store: MessageStore) -> list[StoredMessage]:
    """Return all messages of all queues, in the order of the log."""
    messages: list[StoredMessage] = []
    for topic, queue_id in product((TOPIC, DELETED), range(QUEUES)):
        offset = 0
        while True:
            found = store.reader.read(topic, queue_id, offset, max_messages=1000)
            if found.status in (ReadStatus.END, ReadStatus.NO_MESSAGE):
                break
            assert found.next_offset > offset
            messages += decode_messages(found.body, check_crc=True)
            offset = found.next_offset
    return sorted(messages, key=lambda message: message.physical_offset)


def _cut(segments: list[Path], at: int, damage: Damage) -> None:
    for path in segments:
        start, size = int(path.name), path.stat().st_size
        keep = max(0, at - start)
        if keep >= size:
            continue
        if damage == "end" and start >= at > 0:
            path.unlink()
            continue
        os.truncate(path, keep)
        if damage == "zeros":
            os.truncate(path, size)
