"""Transactions with several replicas of the log."""

from __future__ import annotations

from pathlib import Path

import pytest

from broker_core.client import TransactionProducer
from broker_core.clock import wall_ms
from broker_core.errors import BrokerError
from broker_core.remoting.codes import ResponseCode
from broker_core.remoting.message import OutgoingMessage
from testkit.eventually import eventually, until
from tests.support.replica_group import TOPIC, replica_group
from tests.support.transactions import COMMIT, GROUP, QUICK, Desk


def message(body: bytes) -> OutgoingMessage:
    return OutgoingMessage(TOPIC, body)


async def test_a_commit_that_no_replica_confirmed_is_not_made_twice(tmp_path: Path) -> None:
    """Only the master's log has its record, unseen; the same holds for the message."""
    async with replica_group(
        tmp_path,
        replication="sync",
        in_sync_replicas=2,
        transaction_check_interval_s=600,
        slave_timeout_s=20,
    ) as group:
        await group.start(0)
        await group.start(1)
        await group.until_slaves(1)
        client = await group.client()
        await group.queues()
        producer = TransactionProducer(client, group=GROUP, check=Desk().check)
        await producer.start([TOPIC])
        opened = await producer.prepare(message(b"body"), timeout_s=20)
        await group.stop(1)
        await group.until_slaves(0)
        for _ in range(2):
            with pytest.raises(BrokerError) as unsure:
                await opened.commit()
            assert unsure.value.code in (
                ResponseCode.SLAVE_NOT_AVAILABLE,
                ResponseCode.FLUSH_SLAVE_TIMEOUT,
            )
        with pytest.raises(BrokerError, match="ended before by commit"):
            await opened.rollback()
        await group.stop(0, crash=True)
        await group.start(0)
        with pytest.raises(BrokerError, match="have not confirmed yet") as early:
            await opened.commit()
        assert early.value.code == ResponseCode.SERVICE_NOT_AVAILABLE
        assert await group.bodies(0) == []
        await group.start(1)

        async def confirmed() -> bool:
            try:
                await opened.commit()
            except BrokerError as error:
                return error.code != ResponseCode.SERVICE_NOT_AVAILABLE
            return True

        await until(confirmed)
        await opened.commit()
        assert await group.bodies(0) == [b"body"]
        await producer.close()


async def test_rounds_wait_for_replicas_to_confirm_what_they_stored(tmp_path: Path) -> None:
    """Otherwise each of them would store all half messages again, unseen."""
    async with replica_group(
        tmp_path,
        replication="sync",
        in_sync_replicas=2,
        transaction_check_interval_s=600,
        slave_timeout_s=20,
    ) as group:
        master = await group.start(0)
        await group.start(1)
        await group.until_slaves(1)
        client = await group.client()
        await group.queues()
        producer = TransactionProducer(client, group=GROUP, check=Desk().check)
        await producer.start([TOPIC])
        await producer.prepare(message(b"body"), timeout_s=20)
        await group.stop(1)
        await group.until_slaves(0)  # nothing waits for it then
        ends = []
        for n in range(3):
            at_ms = wall_ms() + 10_000 * (n + 1)
            await master.components.transactions.check(at_ms, lambda _, __: True)
            ends.append(master.components.store.end_offset)
        assert ends[0] == ends[2]
        asked: list[bytes] = []
        await group.start(1)
        await eventually(lambda: master.components.store.visible_end == ends[0], within_s=30)
        await master.components.transactions.check(
            wall_ms() + 40_000, lambda _, half: asked.append(half.body) is None
        )
        assert asked == [b"body"]
        await producer.close()


async def test_a_slave_that_becomes_master_asks_about_what_is_undecided(tmp_path: Path) -> None:
    async with replica_group(tmp_path, transaction_check_interval_s=600) as group:
        await group.start(0)
        await group.start(1)
        client = await group.client()
        await group.queues()
        desk = Desk()
        producer = TransactionProducer(client, group=GROUP, check=desk.check, heartbeat_s=0.1)
        await producer.start([TOPIC])
        kept, dropped, _ = [
            await producer.prepare(message(b"%d" % n), timeout_s=20) for n in range(3)
        ]
        await kept.commit()
        await dropped.rollback()
        await eventually(lambda: group.log_files(1) == group.log_files(0))
        await group.stop(0, crash=True)
        await group.stop(1)
        broker = await group.start(1, role="master", **QUICK)
        assert len(broker.components.transactions) == 1
        desk.answer = lambda _: COMMIT
        await client.queues(TOPIC, fresh=True)
        await group.until_served(1, [b"0", b"2"])
        assert {half.body for half in desk.asked} == {b"2"}
        await producer.close()
