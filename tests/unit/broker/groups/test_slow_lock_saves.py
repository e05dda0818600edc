"""Orderly locks while the disk is slow to save their holders."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from pathlib import Path

import pytest

from broker_core.broker.groups import locks_processor as processor
from broker_core.broker.groups.locks_processor import LockProcessor
from broker_core.broker.groups.queue_locks import QueueLocks
from broker_core.broker.table_saver import TableSaver
from broker_core.broker.topics.directory import TopicDirectory
from broker_core.broker.topics.topics import Topics
from broker_core.names import Group, QueueName, Topic
from broker_core.remoting.bodies import LockBatch
from broker_core.remoting.route_bodies import TopicConfig
from broker_core.store.journaled_table import JournaledTable
from broker_core.store.tables import JsonTable
from broker_core.tasks import spawn

QUEUE = QueueName(Topic("orders"), "broker-a", 0)
EXPIRY_NS = 60_000_000_000


def batch(client_id: str) -> LockBatch:
    return LockBatch(group=Group("billing"), client_id=client_id, queues=frozenset({QUEUE}))


@pytest.mark.parametrize("ended_by", ["time", "its holder"])
async def test_a_lock_that_ended_before_it_was_saved_is_not_granted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, ended_by: str
) -> None:
    """Another client holds it by then."""
    now_ns = 1_000_000_000
    monkeypatch.setattr(processor, "now_ns", lambda: now_ns)
    disk = asyncio.Event()

    async def slow() -> None:
        await disk.wait()

    async def announce(_: Iterable[Topic] | None) -> None:
        pass

    topics = Topics()
    topics.put(TopicConfig(topic=QUEUE.topic, read_queues=1, write_queues=1), now_ms=0)
    held = QueueLocks(EXPIRY_NS)
    locks = LockProcessor(
        held,
        saver=TableSaver(
            JsonTable(tmp_path / "locks.json"),
            content=held.to_table,
            change=lambda: held.change,
            before=slow,
        ),
        directory=TopicDirectory(
            topics, JournaledTable(tmp_path / "topics.json"), announce=announce
        ),
        broker_name=QUEUE.broker,
    )
    first = spawn(locks.grant(batch("first")), name="first")
    await asyncio.sleep(0)
    if ended_by == "time":
        now_ns += EXPIRY_NS + 1
    else:
        locks.free(batch("first"))
    second = spawn(locks.grant(batch("second")), name="second")
    await asyncio.sleep(0)
    disk.set()
    assert await second == {QUEUE}
    assert await first == frozenset()
