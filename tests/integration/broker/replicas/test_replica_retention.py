"""Retention at a master whose slaves are away."""

from __future__ import annotations

from pathlib import Path

from broker_core.client.results import SendStatus
from broker_core.remoting.message import OutgoingMessage
from testkit.eventually import until
from tests.support.replica_group import TOPIC, replica_group


async def test_messages_that_wait_for_a_slave_are_kept_until_it_has_them(tmp_path: Path) -> None:
    """Consumers can read all of them first; then both replicas delete the old ones."""
    async with replica_group(tmp_path, replication="sync", retention_bytes=200_000) as group:
        master = await group.start(0)
        await group.start(1)
        client, (queue,) = await group.client(), await group.queues()
        for _ in range(2):
            await client.send(queue, OutgoingMessage(TOPIC, b"seen"))
        await group.until_served(1, [b"seen"] * 2)
        await group.stop(1)
        for n in range(20):
            receipt = await client.send(queue, OutgoingMessage(TOPIC, b"%d" % n * 15_000))
            assert receipt.status is not SendStatus.OK
        await master.components.retention.run()
        await group.start(1)
        reader = master.components.store.reader

        async def confirmed() -> bool:
            return reader.end_offset(TOPIC, 0) == 22

        await until(confirmed)
        assert reader.min_offset(TOPIC, 0) == 0
        await master.components.retention.run()
        kept = reader.min_offset(TOPIC, 0)
        assert 2 < kept < 22

        async def served() -> bool:
            slave = group.brokers[1].components
            await slave.delete_expired()
            store = slave.store.reader
            return (store.min_offset(TOPIC, 0), store.end_offset(TOPIC, 0)) == (kept, 22)

        await until(served)
        await group.stop(1, crash=True)
        await group.start(1)
        await until(served)
