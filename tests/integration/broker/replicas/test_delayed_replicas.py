"""Delayed messages with several replicas of the log."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from broker_core.client.results import SendStatus
from broker_core.names import Group
from broker_core.remoting.message import OutgoingMessage
from broker_core.store import copies
from testkit.eventually import eventually
from tests.support.replica_group import TOPIC, replica_group


async def test_what_came_out_or_was_recalled_before_a_kill_does_not_come_after_it(
    tmp_path: Path,
) -> None:
    """No checkpoint includes it: replicas confirm it again, with the message that had waited."""
    async with replica_group(tmp_path, replication="sync", in_sync_replicas=2) as group:
        await group.start(0)
        await group.start(1)
        (queue,) = await group.queues()
        client = await group.client()

        def delayed(body: bytes, milliseconds: int) -> OutgoingMessage:
            return OutgoingMessage(TOPIC, body, properties={"TIMER_DELAY_MS": str(milliseconds)})

        recalled = await client.send(queue, delayed(b"recalled", 3500))
        assert recalled.recall_handle
        await client.delays.recall(
            "broker-a", TOPIC, recalled.recall_handle, group=Group("billing")
        )
        await client.send(queue, delayed(b"once", 50))
        await group.until_served(0, [b"once"])
        await group.stop(0, crash=True)
        await group.start(0)
        await group.until_served(0, [b"once"])
        await client.send(queue, delayed(b"later", 3600))
        await group.until_served(0, [b"once", b"later"])


async def test_a_waiting_message_is_deleted_once_replicas_have_its_copy(tmp_path: Path) -> None:
    """A slave deletes what its master has deleted, perhaps before it has the copy."""
    async with replica_group(tmp_path, replication="sync", retention_bytes=100_000) as group:
        master = (await group.start(0)).components
        await group.start(1)
        client, (queue,) = await group.client(), await group.queues()
        later = {"TIMER_DELAY_MS": "3600000"}
        await client.send(queue, OutgoingMessage(TOPIC, b"later", properties=later))
        for n in range(20):
            receipt = await client.send(queue, OutgoingMessage(TOPIC, b"%d" % n * 15_000))
            assert receipt.status is SendStatus.OK
        await group.stop(1)
        await eventually(lambda: master.replica.available == 1)
        for _ in range(2):
            await master.retention.run()
            assert master.store.log.first_offset == 0
        await group.start(1)
        await eventually(lambda: master.store.visible_end == master.store.end_offset)
        assert len(master.delayed) == 1
        await master.retention.run()
        assert master.store.log.first_offset > 0
        assert len(master.delayed) == 1


async def test_a_slave_that_is_behind_keeps_a_waiting_message_until_it_has_the_copy(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(copies, "CHUNK_BYTES", 1000)  # one message each
    async with replica_group(tmp_path, replication="async", retention_bytes=150_000) as group:
        master = (await group.start(0)).components
        slave = (await group.start(1)).components
        client, (queue,) = await group.client(), await group.queues()
        later = {"TIMER_DELAY_MS": "3600000"}
        await client.send(queue, OutgoingMessage(TOPIC, b"later", properties=later))
        for n in range(20):
            await client.send(queue, OutgoingMessage(TOPIC, b"%d" % n * 15_000))
        await eventually(lambda: slave.store.end_offset == master.store.end_offset)
        await group.stop(1)
        for n in range(5):
            await client.send(queue, OutgoingMessage(TOPIC, b"%d" % n * 15_000))
        await master.retention.run()
        assert master.store.log.first_offset > 0
        slave = (await group.start(1)).components
        async with asyncio.timeout(30):
            while slave.store.log.first_offset == 0:
                await slave.delete_expired()
                has_copy = slave.store.end_offset == master.store.end_offset
                assert has_copy or slave.store.log.first_offset == 0
                await asyncio.sleep(0.001)
