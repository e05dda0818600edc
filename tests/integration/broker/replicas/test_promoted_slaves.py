"""State of a promoted slave besides the messages: delayed messages, deletions, retention,
accounts.
"""

from __future__ import annotations

import asyncio
from pathlib import Path

import orjson
import pytest

from broker_core.broker import server
from broker_core.broker.replicas.log_identity import LogIdentity
from broker_core.client.broker_client import BrokerClient
from broker_core.names import QueueName
from broker_core.remoting.codes import RequestCode
from broker_core.remoting.message import OutgoingMessage
from broker_core.remoting.signing import Credentials
from testkit.eventually import eventually, until
from tests.support.replica_group import TOPIC, ReplicaGroup, replica_group


async def promoted(group: ReplicaGroup) -> None:
    """Kill the master and let the slave take its place."""
    await group.stop(0, crash=True)
    await group.stop(1, crash=True)
    await group.start(1, role="master")


async def send_delayed(client: BrokerClient, queue: QueueName, body: bytes, ms: int) -> None:
    properties = {"TIMER_DELAY_MS": str(ms)}
    await client.send(queue, OutgoingMessage(TOPIC, body, properties=properties))


async def test_delayed_messages_come_once_from_any_master(tmp_path: Path) -> None:
    async with replica_group(tmp_path) as group:
        await group.start(0)
        await group.start(1)
        client, (queue,) = await group.client(), await group.queues()
        await send_delayed(client, queue, b"from the first", 10)
        await group.until_served(0, [b"from the first"])
        await client.send(queue, OutgoingMessage(TOPIC, b"now"))
        await group.until_served(1, [b"from the first", b"now"])
        await send_delayed(client, queue, b"from the second", 1500)
        master, slave = (group.brokers[n].components.store for n in (0, 1))
        await eventually(lambda: slave.copies.end_offset == master.durable_end)
        await promoted(group)
        await group.until_served(1, [b"from the first", b"now", b"from the second"])
        await group.stop(1, crash=True)
        await group.start(1, role="master")
        assert await group.bodies(1) == [b"from the first", b"now", b"from the second"]


async def test_where_delayed_messages_waited_at_the_old_master_is_not_believed_later_either(
    tmp_path: Path,
) -> None:
    """At the old master one had ended, by a record that was not copied; here it waits."""
    async with replica_group(tmp_path, lock_expiry_s=0.2) as group:
        await group.start(0)
        await group.start(1)
        client, (queue,) = await group.client(), await group.queues()
        await send_delayed(client, queue, b"delayed", 3_600_000)
        master, slave = (group.brokers[n].components.store for n in (0, 1))
        await eventually(lambda: slave.visible_end == master.durable_end)
        for number in (0, 1):
            await group.stop(number)
        slave.table("delayOffset").save({"offsetTable": {}, "timerOffset": 1})

        promoted = await group.start(1, role="master")
        table = promoted.components.store.table("replication")
        await eventually(lambda: not LogIdentity.from_table(table.load()).lock_grace)
        await group.stop(1)
        again = await group.start(1, role="master")
        assert not again.components.replica.was_promoted
        assert len(again.components.delayed) == 1


async def test_a_slave_delivers_nothing_by_itself(tmp_path: Path) -> None:
    async with replica_group(tmp_path) as group:
        await group.start(0)
        await group.start(1)
        client, (queue,) = await group.client(), await group.queues()
        due_s = asyncio.get_running_loop().time() + 3.5  # not before the crash
        await send_delayed(client, queue, b"delayed", 3500)
        slave = group.brokers[1].components.store
        await eventually(
            lambda: slave.copies.end_offset == group.brokers[0].components.store.durable_end
        )
        await group.stop(0, crash=True)
        before = slave.copies.end_offset
        await asyncio.sleep(max(0, due_s - asyncio.get_running_loop().time()) + 0.3)
        assert slave.copies.end_offset == before
        assert await group.bodies(1) == []
        await group.start(0)
        await group.until_served(1, [b"delayed"])
        assert group.log_files(1) == group.log_files(0)


async def test_a_deleted_topic_is_deleted_on_slaves_and_created_again_begins_at_0(
    tmp_path: Path,
) -> None:
    async with replica_group(tmp_path, replication="sync") as group:
        await group.start(0)
        await group.start(1)
        client, (queue,) = await group.client(), await group.queues()
        for n in range(5):
            await client.send(queue, OutgoingMessage(TOPIC, b"old %d" % n))
        await group.until_served(1, await group.bodies(0))
        answer = await group.ask(0, RequestCode.DELETE_TOPIC_IN_BROKER, {"topic": TOPIC})
        assert answer.code == 0, answer.remark

        async def gone() -> bool:
            config = await group.ask(1, RequestCode.GET_ALL_TOPIC_CONFIG)
            return TOPIC not in orjson.loads(config.body)["topicConfigTable"]

        await until(gone)
        (queue,) = await group.queues()
        receipt = await client.send(queue, OutgoingMessage(TOPIC, b"new"))
        assert receipt.offset == 0
        await group.until_served(1, [b"new"])
        await promoted(group)
        await group.stop(1)
        await group.start(1, role="master", replication="async")
        assert await group.bodies(1) == [b"new"]


async def test_retention_is_the_masters(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(server, "RETENTION_EVERY_S", 0.1)
    async with replica_group(tmp_path, retention_bytes=10_000_000) as group:
        await group.start(0)
        await group.start(1, retention_bytes=1000)
        client, (queue,) = await group.client(), await group.queues()
        await asyncio.gather(
            *(client.send(queue, OutgoingMessage(TOPIC, bytes(8000))) for _ in range(80))
        )
        await eventually(lambda: group.log_files(1) == group.log_files(0), within_s=20)
        assert len(group.log_files(0)) > 3
        await asyncio.sleep(0.5)
        assert group.log_files(1) == group.log_files(0), "the slave has a shorter retention"
        await group.stop(0)
        await group.start(0, retention_bytes=200_000)
        await eventually(
            lambda: group.log_files(1) == group.log_files(0) and len(group.log_files(1)) <= 3,
            within_s=20,
        )


async def test_replicas_sign_where_accounts_are_asked_for(tmp_path: Path) -> None:
    accounts = tmp_path / "accounts.yaml"
    accounts.write_text(
        "accounts: [{accessKey: shop-app, secretKey: shop-secret, defaultTopicPerm: PUB|SUB},"
        " {accessKey: operator, secretKey: operator-secret, admin: true}]"
    )
    async with replica_group(tmp_path, acl=accounts) as group:
        await group.start(0)
        await group.start(1, acl=accounts)
        master, slave = group.brokers[0].components.store, group.brokers[1].components.store
        client = BrokerClient(
            nameservers=[group.nameserver.address],
            client_id="operator",
            credentials=Credentials("operator", "operator-secret"),
            request_timeout_s=20,
        )
        await client.start()
        await client.create_topic(TOPIC, queues=1)
        (queue,) = await client.queues(TOPIC, fresh=True)
        await client.send(queue, OutgoingMessage(TOPIC, b"a"))
        await eventually(lambda: slave.reader.end_offset(TOPIC, 0) == 1, within_s=20)
        assert slave.copies.end_offset == master.copies.end_offset
        for code in (RequestCode.JOIN_MASTER, RequestCode.FETCH_LOG, RequestCode.FETCH_TABLES):
            assert (await group.ask(0, code)).code == 16, "not for everybody"
        await client.close()
