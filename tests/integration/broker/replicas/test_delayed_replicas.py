"""Delayed messages with several replicas of the log."""

from __future__ import annotations

from pathlib import Path

from broker_core.names import Group
from broker_core.remoting.message import OutgoingMessage
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
