"""A broker that begins with an older copy of its log: what clients of the original may still do."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path

import pytest

from broker_core.broker.restoring import restored_table
from broker_core.clock import wall_ms
from broker_core.errors import BrokerError
from broker_core.names import Group, QueueName, Topic
from broker_core.remoting.headers import PullFlag
from broker_core.remoting.message import OutgoingMessage
from broker_core.store.exporting import export_store
from broker_core.store.importing import import_store
from testkit.broker_process import Cluster, run_broker
from tests.integration.broker.raw_requests import Raw

ORDERS = Topic("orders")
BILLING = Group("billing")


async def send(cluster: Cluster, queue: QueueName, *bodies: bytes, life: int | None = None) -> None:
    client = await cluster.client()
    for body in bodies:
        await client.send(queue, OutgoingMessage(topic=ORDERS, body=body), life=life)


@asynccontextmanager
async def restored(folder: Path) -> AsyncIterator[tuple[Cluster, QueueName, int]]:
    """Yield a broker that has one of two messages, their queue, and the life of the original."""
    async with run_broker(folder / "one") as cluster:
        queue = (await cluster.create_topic(ORDERS))[0]
        client = await cluster.client()
        life = await client.life(queue)
        assert life is not None
        await send(cluster, queue, b"1")
        await client.commit_offset(BILLING, queue, 1, at_once=True)
        export_store(cluster.data, folder / "backup", version="test")
        await send(cluster, queue, b"2")
        await client.commit_offset(BILLING, queue, 2, at_once=True)
    tables = partial(restored_table, now_ms=wall_ms())
    import_store(folder / "backup", folder / "two" / "data", restored=tables)
    async with run_broker(folder / "two") as cluster:
        yield cluster, queue, life


async def test_its_topics_continue_their_former_life_up_to_the_end_of_the_copy(
    tmp_path: Path,
) -> None:
    async with restored(tmp_path) as (cluster, queue, life):
        client = await cluster.client()
        now = await client.topic_life(queue)
        assert now.number is not None
        assert now.number > life
        assert now.former == {life: 1}
        assert await client.max_offset(queue) == 1
        assert await client.committed_offset(BILLING, queue) == 1


async def test_commits_and_records_of_the_former_life_are_refused(tmp_path: Path) -> None:
    async with restored(tmp_path) as (cluster, queue, life):
        client = await cluster.client()
        await send(cluster, queue, b"3", b"4")
        with pytest.raises(BrokerError, match="for a former life of 'orders' refused"):
            await client.commit_offset(BILLING, queue, 2, life=life)
        with pytest.raises(BrokerError, match=f"message for life {life} of 'orders' refused"):
            await send(cluster, queue, b"a record", life=life)
        now = await client.life(queue)
        await send(cluster, queue, b"a record", life=now)
        assert await client.committed_offset(BILLING, queue) == 1
        assert await client.max_offset(queue) == 4


async def test_a_commit_without_a_life_beyond_the_end_of_the_copy_is_refused(
    tmp_path: Path,
) -> None:
    async with restored(tmp_path) as (cluster, queue, _):
        client = await cluster.client()
        with pytest.raises(BrokerError, match="beyond the end of its queue"):
            await client.commit_offset(BILLING, queue, 2)
        raw, flags = Raw(cluster), PullFlag.SUBSCRIPTION | PullFlag.COMMIT_OFFSET
        for offset in (2, 1):  # as RocketMQ's consumers commit, too
            pulled = await raw.pull(sys_flag=flags, commit_offset=offset)
            assert pulled.code == 0
            assert await client.committed_offset(BILLING, queue) == 1
        await raw.pool.close()
        await client.commit_offset(BILLING, queue, 1)
