"""Whatever a crash does to the tail of the files, the store recovers a complete prefix."""

from __future__ import annotations

import asyncio
import os
import shutil
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from unittest.mock import patch

import pytest
from hypothesis import assume, example, given, settings
from hypothesis import strategies as st

from broker_core.errors import StoreError
from broker_core.remoting import record_encoding
from broker_core.remoting.message import decode_messages
from broker_core.remoting.record_checksum import CHECKSUM_BYTES
from broker_core.remoting.record_encoding import BatchEntry
from broker_core.store.copying import messages_of, read_chunk
from broker_core.store.message_store import MessageStore
from broker_core.store.reader import ReadStatus
from broker_core.store.tables import JsonTable
from tests.support.examples import examples
from tests.support.store_messages import TOPIC, entry, envelope

SEGMENT = 2000
QUEUES = 3


@dataclass
class Written:
    queue_id: int
    body: bytes
    end: int  # in the log


def opened(folder: Path) -> MessageStore:
    return MessageStore(folder, segment_bytes=SEGMENT, flush="async", entries_per_file=4)


async def write(
    folder: Path, puts: list[tuple[int, int, int]], checkpoint_at: int
) -> list[Written]:
    """Puts are (queue id, number of messages, body length); then the process dies."""
    store = opened(folder)
    store.start()
    written = []
    for n, (queue_id, count, length) in enumerate(puts):
        if n == checkpoint_at:
            await store.checkpoint()
        entries = [entry(bytes([n % 256, i]) * length, key="k") for i in range(count)]
        stored = await store.put(envelope(queue_id), entries, store_ms=n)
        for place, e in zip(stored.physical_offsets, entries, strict=True):
            end = place + 91 + len(TOPIC) + len(e.body) + len(e.properties) + CHECKSUM_BYTES
            written.append(Written(queue_id, e.body, end))
    store.abandon()
    return written


def cut_log(folder: Path, at: int, *, truncate: bool) -> None:
    """Lose everything from byte *at* on: truncate files, or leave zeros like unwritten pages."""
    for path in sorted((folder / "commitlog").iterdir()):
        start, size = int(path.name), path.stat().st_size
        if start + size <= at:
            continue
        keep = max(0, at - start)
        os.truncate(path, keep)
        if not truncate:
            os.truncate(path, size)
        elif start > at:
            path.unlink()


def all_bodies(store: MessageStore, queue_id: int) -> list[bytes]:
    bodies: list[bytes] = []
    at = 0
    while True:
        found = store.reader.read(TOPIC, queue_id, at, max_messages=5)
        if found.status in (ReadStatus.END, ReadStatus.NO_MESSAGE):
            return bodies
        messages = decode_messages(found.body, check_crc=True)
        if messages:
            offsets = [message.queue_offset for message in messages]
            assert offsets == list(range(at, found.next_offset))
        bodies += [m.body for m in messages]
        assert found.next_offset > at
        at = found.next_offset


puts = st.lists(
    st.tuples(st.integers(0, QUEUES - 1), st.integers(1, 4), st.integers(0, 60)),
    min_size=1,
    max_size=12,
)


@settings(max_examples=examples(80), deadline=None)
@given(puts, st.integers(0, 12), st.integers(0, 10**6), st.booleans(), st.binary(max_size=60), puts)
def test_a_cut_log_comes_back_as_all_whole_messages_before_the_cut(
    first: list[tuple[int, int, int]],
    checkpoint_at: int,
    cut: int,
    truncate: bool,
    rubbish: bytes,
    more: list[tuple[int, int, int]],
) -> None:
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        written = asyncio.run(write(folder, first, checkpoint_at))
        at = cut % (written[-1].end + 1)
        cut_log(folder, at, truncate=truncate)
        for path in (folder / "consumequeue").glob("*/*/*"):  # unsynced: may contain anything
            with path.open("ab") as file:
                file.write(rubbish)
        expected = [w for w in written if w.end <= at]
        # A second life on top of the recovered files, and another crash.
        expected += asyncio.run(write(folder, more, checkpoint_at))
        store = opened(folder)
        try:
            for queue_id in range(QUEUES):
                mine = [w.body for w in expected if w.queue_id == queue_id]
                assert all_bodies(store, queue_id) == mine
        finally:
            store.abandon()


@settings(max_examples=examples(40), deadline=None)
@example([(0, 4, 60)] * 5, 99, {(0, 3)}, "kept")  # a sector that the end of the file cuts short
@example([(0, 4, 60)] * 5, 99, {(0, 3)}, "queues lost")
@given(
    puts,
    st.integers(0, 12),
    st.sets(st.tuples(st.integers(0, 3), st.integers(0, 3)), min_size=1, max_size=6),
    st.sampled_from(["kept", "queues lost", "checkpoint lost"]),
)
def test_writes_that_lost_sectors_stop_no_queue_unless_they_may_have_been_confirmed(
    first: list[tuple[int, int, int]],
    checkpoint_at: int,
    sectors: set[tuple[int, int]],
    state: str,
) -> None:
    """Sectors and files reach the disk in any order, so intact messages may follow."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        written = asyncio.run(write(folder, first, checkpoint_at))
        physical = JsonTable(folder / "checkpoint.json", is_derived=True).load()["physical"]
        blank = [
            (begin, min(begin + 512, segment * SEGMENT + SEGMENT))
            for segment, sector in sectors
            if (begin := segment * SEGMENT + sector * 512) >= physical
        ]
        for begin, end in blank:
            zero(folder, begin, end)
        is_intact = [
            not any(begin < each.end and start < end for begin, end in blank)
            for start, each in zip(starts(written), written, strict=True)
        ]
        assume(not all(is_intact))
        if state == "queues lost":
            shutil.rmtree(folder / "consumequeue")
        elif state == "checkpoint lost":
            for path in folder.glob("checkpoint.json*"):
                path.unlink()
        store = opened(folder)
        try:
            if state == "checkpoint lost":
                assert bool(store.recovery.damaged) >= is_followed(written, is_intact)
                return
            assert store.recovery.damaged == []
            assert store.recovery.lost_bytes == 0
            for queue_id in range(QUEUES):
                mine = [
                    each.body
                    for each, intact in zip(written, is_intact, strict=True)
                    if each.queue_id == queue_id and intact
                ]
                assert all_bodies(store, queue_id) == mine
        finally:
            store.abandon()


def zero(folder: Path, begin: int, end: int) -> None:
    """Set the bytes of the log from *begin* to *end*, which one file contains, to zero."""
    path = folder / "commitlog" / f"{begin // SEGMENT * SEGMENT:020d}"
    if path.exists():
        with path.open("r+b") as file:
            file.seek(begin % SEGMENT)
            file.write(bytes(end - begin))


def starts(written: list[Written]) -> Iterator[int]:
    """Yield the start of each message in the log."""
    at = 0
    for each in written:
        yield max(at, (each.end - 1) // SEGMENT * SEGMENT)
        at = each.end


def is_followed(written: list[Written], is_intact: list[bool]) -> bool:
    """Return whether an intact message follows a lost one of its queue."""
    lost = set[int]()
    for each, intact in zip(written, is_intact, strict=True):
        if not intact:
            lost.add(each.queue_id)
        elif each.queue_id in lost:
            return True
    return False


@settings(max_examples=examples(60), deadline=None)
@given(puts, st.integers(0, 10**6), st.integers(1, 255))
def test_a_garbled_body_costs_only_itself(
    first: list[tuple[int, int, int]], where: int, flip: int
) -> None:
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        written = asyncio.run(write(folder, first, checkpoint_at=99))
        victim = where % len(written)
        assume(written[victim].body)
        behind_body = 1 + len(TOPIC) + 2 + len(entry(key="k").properties) + CHECKSUM_BYTES
        at = written[victim].end - behind_body - 1
        segment = max(p for p in (folder / "commitlog").iterdir() if int(p.name) <= at)
        with segment.open("r+b") as file:
            file.seek(at - int(segment.name))
            (old,) = file.read(1)
            file.seek(at - int(segment.name))
            file.write(bytes([old ^ flip]))
        store = opened(folder)
        try:
            for queue_id in range(QUEUES):
                left = written[:victim] + written[victim + 1 :]
                mine = [w.body for w in left if w.queue_id == queue_id]
                assert all_bodies(store, queue_id) == mine
        finally:
            store.abandon()


async def write_with_properties(folder: Path, first: int, properties: bytes) -> int:
    """Write a message without a checksum to the second segment, between two others.

    The one before has a body of *first* bytes.

    Segments begin inside sectors of the log as a whole. Returns the end of the message in its file.
    """
    store = MessageStore(folder, segment_bytes=9001, flush="async")
    store.start()
    await store.put(envelope(0), [entry(bytes(8800))], store_ms=1)
    await store.put(envelope(0), [entry(b"x" * first)], store_ms=2)
    # Like older versions, which accepted any properties.
    with (
        patch.object(record_encoding, "TOO_MANY_ZEROS", bytes(32_768)),
        patch.object(record_encoding, "MAX_CHECKED_BYTES", 0),
    ):
        stored = await store.put(envelope(0), [BatchEntry(0, b"sent", properties)], store_ms=3)
    await store.put(envelope(0), [entry(b"last")], store_ms=4)
    store.abandon()
    return stored.log_end - 9001


def recovered(folder: Path) -> list[bytes]:
    """Return the bodies after the first one, the same as a slave would copy."""
    store = MessageStore(folder, segment_bytes=9001, flush="async")
    try:
        bodies = all_bodies(store, 0)[1:]
        chunk = read_chunk(store.log, 9001, limit=store.end_offset, max_bytes=9001)
        assert chunk is not None
        if store.recovery.gaps:
            with pytest.raises(StoreError):
                messages_of(chunk)
        else:
            assert [message.body for message in messages_of(chunk)[0]] == bodies
        return bodies
    finally:
        store.abandon()


@settings(max_examples=examples(60), deadline=None)
@given(st.integers(0, 600), st.integers(0, 300), st.integers(511, 3000))
def test_zeros_that_were_sent_as_properties_cost_nothing(
    first: int, before: int, zeros: int
) -> None:
    with tempfile.TemporaryDirectory() as name:
        properties = b"k\x01" + b"v" * before + bytes(zeros) + b"\x02"
        end = asyncio.run(write_with_properties(Path(name), first, properties))
        assume((end - 1) % 512 or zeros % 512)  # otherwise they cannot be distinguished
        assert recovered(Path(name)) == [b"x" * first, b"sent", b"last"]


@settings(max_examples=examples(60), deadline=None)
@given(st.integers(0, 600), st.integers(1024, 3000), st.integers(0, 5), st.integers(1, 3))
def test_sectors_of_zeros_in_properties_cost_their_message(
    first: int, length: int, sector: int, count: int
) -> None:
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        properties = b"k\x01" + b"v" * length + b"\x02"
        end = asyncio.run(write_with_properties(folder, first, properties))
        begin = -(-(end - len(properties)) // 512) * 512 + sector * 512
        assume(begin + count * 512 < end)
        with (folder / "commitlog" / f"{9001:020d}").open("r+b") as file:
            file.seek(begin)
            file.write(bytes(count * 512))
        assert recovered(folder) == [b"x" * first, b"last"]


def test_a_sector_that_begins_with_the_low_byte_of_the_length_costs_its_message(
    tmp_path: Path,
) -> None:
    """That byte is zero as before; the sector has 511 bytes of the properties."""
    properties = b"k\x01" + b"v" * 1021 + b"\x02"
    first = next(n for n in range(512) if _low_byte_at(n, len(properties)) % 512 == 0)
    end = asyncio.run(write_with_properties(tmp_path, first, properties))
    begin = end - len(properties) - 1
    assert begin % 512 == 0
    with (tmp_path / "commitlog" / f"{9001:020d}").open("r+b") as file:
        file.seek(begin)
        file.write(bytes(512))
    assert recovered(tmp_path) == [b"x" * first, b"last"]


def _low_byte_at(first: int, length: int) -> int:
    """After a message with a body of *first* bytes and the rest of the message in question."""
    assert length % 256 == 0
    return 91 + len(TOPIC) + first + CHECKSUM_BYTES + 91 + len(TOPIC) + len(b"sent") - 1
