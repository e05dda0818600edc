"""Puts that arrive together: one write, in order of arrival, each with its own outcome."""

from __future__ import annotations

import asyncio
import os
import threading
from pathlib import Path

import pytest

from broker_core.errors import MayBeStored
from broker_core.remoting.message import decode_messages
from broker_core.store.commit_log import CommitLog, Sync
from broker_core.store.message_store import Flush, MessageStore
from broker_core.store.pending import Stored
from broker_core.store.replicated_store import ReplicatedStore
from testkit.eventually import eventually
from tests.support.store_messages import TOPIC, entry, envelope

SEGMENT = 4000
BOTH = pytest.mark.parametrize("flush", ["sync", "async"])


def opened(folder: Path, *, flush: Flush = "sync") -> MessageStore:
    store = MessageStore(folder, segment_bytes=SEGMENT, flush=flush)
    store.start()
    return store


def put(store: MessageStore, bodies: list[bytes], outcomes: list[Stored | Exception]) -> None:
    """Put each body separately, into queues 0 and 1 in turn."""
    for number, body in enumerate(bodies):
        store.put_soon(envelope(number % 2), [entry(body)], outcomes.append, store_ms=number)


def bodies(store: MessageStore, queue_id: int) -> list[bytes]:
    found = store.reader.read(TOPIC, queue_id, 0, max_messages=100)
    return [message.body for message in decode_messages(found.body, check_crc=True)]


@BOTH
async def test_they_are_appended_by_one_write_in_the_order_of_their_coming(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, flush: Flush
) -> None:
    store, writes = opened(tmp_path, flush=flush), []
    write = CommitLog.write

    def counted(log: CommitLog, data: bytes) -> None:
        writes.append(len(decode_messages(data)))
        write(log, data)

    monkeypatch.setattr(CommitLog, "write", counted)
    outcomes: list[Stored | Exception] = []
    put(store, [b"%d" % n for n in range(8)], outcomes)
    await eventually(lambda: len(outcomes) == 8)
    assert writes == [8]
    assert [one.first_queue_offset for one in outcomes if isinstance(one, Stored)] == [
        *(0, 0, 1, 1, 2, 2, 3, 3)
    ]
    assert (bodies(store, 0), bodies(store, 1)) == (
        [b"0", b"2", b"4", b"6"],
        [b"1", b"3", b"5", b"7"],
    )
    await store.close()


@pytest.mark.sockets
async def test_those_that_come_while_the_disk_syncs_are_in_the_next_sync(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store, syncs, gate, run = opened(tmp_path), [], threading.Event(), Sync.run

    def counted(sync: Sync) -> None:
        gate.wait(10)
        syncs.append(sync.end)
        run(sync)

    monkeypatch.setattr(Sync, "run", counted)
    outcomes: list[Stored | Exception] = []
    put(store, [b"first"], outcomes)
    await eventually(lambda: store.end_offset > 0)
    first_end = store.end_offset
    put(store, [b"second", b"third"], outcomes)
    for _ in range(5):
        await asyncio.sleep(0)
    assert store.end_offset == first_end  # they wait, unwritten
    assert bodies(store, 0) == []
    gate.set()
    await eventually(lambda: len(outcomes) == 3)
    assert syncs == [first_end, store.end_offset]
    assert bodies(store, 0) == [b"first", b"second"]
    await store.close()


@BOTH
async def test_one_that_cannot_be_stored_leaves_the_others_in(tmp_path: Path, flush: Flush) -> None:
    store = opened(tmp_path, flush=flush)
    outcomes: list[Stored | Exception] = []
    put(store, [b"a", b"b", bytes(SEGMENT), b"c"], outcomes)
    await eventually(lambda: len(outcomes) == 4)
    assert sum(isinstance(outcome, ValueError) for outcome in outcomes) == 1
    assert (bodies(store, 0), bodies(store, 1)) == ([b"a"], [b"b", b"c"])
    await store.close()


@BOTH
async def test_puts_after_the_disk_failed_raise_its_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, flush: Flush
) -> None:
    store = opened(tmp_path, flush=flush)

    def broken(*_: object) -> int:
        raise OSError(5, "Input/output error")

    outcomes: list[Stored | Exception] = []
    with monkeypatch.context() as patched:
        patched.setattr(os, "fdatasync" if flush == "sync" else "pwrite", broken)
        put(store, [b"a", b"b"], outcomes)
        await eventually(lambda: len(outcomes) == 2)
    put(store, [b"c"], outcomes)
    await eventually(lambda: len(outcomes) == 3)
    assert all(isinstance(outcome, OSError) for outcome in outcomes)
    # The first two were written, or part of them; the last one was not.
    assert [isinstance(outcome, MayBeStored) for outcome in outcomes] == [True, True, False]
    assert bodies(store, 0) == []
    store.abandon()


async def test_a_store_that_closes_answers_all_puts(tmp_path: Path) -> None:
    store = opened(tmp_path)
    outcomes: list[Stored | Exception] = []
    put(store, [b"a"], outcomes)
    store.abandon()
    await eventually(lambda: len(outcomes) == 1)
    assert isinstance(outcomes[0], OSError)


async def test_where_replicas_are_waited_for_they_are(tmp_path: Path) -> None:
    store, confirmed = ReplicatedStore(tmp_path), asyncio.Event()

    async def replicas(_end: int) -> object:
        await confirmed.wait()
        return store  # anything but WELL is passed on

    store.start(replicas=replicas)  # type: ignore[arg-type]
    outcomes: list[Stored | Exception] = []
    store.put_soon(envelope(), [entry()], outcomes.append, store_ms=1)
    await eventually(lambda: store.durable_end > 0)
    assert outcomes == []
    confirmed.set()
    await eventually(lambda: len(outcomes) == 1)
    assert isinstance(outcomes[0], Stored)
    assert outcomes[0].kept is store
    await store.close()


@BOTH
async def test_those_that_come_while_others_hear_of_their_failure_are_not_forgotten(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, flush: Flush
) -> None:
    """A producer that gets its answer sends the next messages at once."""
    store, outcomes = opened(tmp_path, flush=flush), list[Stored | Exception]()

    def again(outcome: Stored | Exception) -> None:
        outcomes.append(outcome)
        if len(outcomes) < 4:
            store.put_soon(envelope(), [entry(b"next")], again, store_ms=2)

    def full(_log: CommitLog, _data: bytes) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(CommitLog, "write", full)
    store.put_soon(envelope(), [entry(b"first")], again, store_ms=1)
    await eventually(lambda: len(outcomes) == 4)
    assert all(isinstance(outcome, Exception) for outcome in outcomes)
    await store.close()


@BOTH
async def test_a_failing_listener_for_arrivals_costs_no_put_its_answer(
    tmp_path: Path, flush: Flush
) -> None:
    def broken(*_: object) -> None:
        raise OSError(5, "Input/output error")

    store = MessageStore(tmp_path, segment_bytes=SEGMENT, flush=flush)
    store.start(broken)
    outcomes: list[Stored | Exception] = []
    put(store, [b"1", b"2"], outcomes)
    await eventually(lambda: len(outcomes) == 2)
    put(store, [b"3"], outcomes)
    await eventually(lambda: len(outcomes) == 3)
    assert all(isinstance(outcome, Stored) for outcome in outcomes)
    await store.close()
