"""Whatever a crash does to the tail of the files, the store comes back with a whole prefix."""

from __future__ import annotations

import asyncio
import os
import tempfile
from dataclasses import dataclass
from pathlib import Path

from hypothesis import assume, given, settings
from hypothesis import strategies as st

from broker_core.remoting.message import decode_messages
from broker_core.store.message_store import MessageStore
from broker_core.store.reader import ReadStatus
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
            end = place + 91 + len(TOPIC) + len(e.body) + len(e.properties)
            written.append(Written(queue_id, e.body, end))
    store.abandon()
    return written


def cut_log(folder: Path, at: int, *, truncate: bool) -> None:
    """Lose everything from byte *at* on: cut files off, or leave zeros as unwritten pages are."""
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
    while True:
        found = store.reader.read(TOPIC, queue_id, len(bodies), max_messages=5)
        if found.status is not ReadStatus.FOUND:
            assert found.status in (ReadStatus.END, ReadStatus.NO_MESSAGE)
            return bodies
        messages = decode_messages(found.body, check_crc=True)
        assert [m.queue_offset for m in messages] == [len(bodies) + i for i in range(len(messages))]
        bodies += [m.body for m in messages]
        assert found.next_offset == len(bodies)


puts = st.lists(
    st.tuples(st.integers(0, QUEUES - 1), st.integers(1, 4), st.integers(0, 60)),
    min_size=1,
    max_size=12,
)


@settings(max_examples=80, deadline=None)
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
        for path in (folder / "consumequeue").glob("*/*/*"):  # unsynced: anything may stand there
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


@settings(max_examples=60, deadline=None)
@given(puts, st.integers(0, 10**6), st.integers(1, 255))
def test_a_garbled_body_costs_only_itself_and_what_follows(
    first: list[tuple[int, int, int]], where: int, flip: int
) -> None:
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        written = asyncio.run(write(folder, first, checkpoint_at=99))
        victim = where % len(written)
        assume(written[victim].body)
        behind_body = 1 + len(TOPIC) + 2 + len(entry(key="k").properties)
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
                mine = [w.body for w in written[:victim] if w.queue_id == queue_id]
                assert all_bodies(store, queue_id) == mine
        finally:
            store.abandon()
