"""A topic deleted at a master is gone at its slaves, and stays so when one of them is promoted."""

from __future__ import annotations

from pathlib import Path

import pytest

from broker_core.errors import BrokerError
from broker_core.names import Group
from broker_core.remoting.codes import RequestCode
from broker_core.remoting.message import OutgoingMessage
from broker_core.store import message_store
from testkit.eventually import until
from tests.support.replica_group import TOPIC, ReplicaGroup, replica_group

GROUP = Group("billing")


async def deleted(group: ReplicaGroup) -> None:
    """Confirmed by a slave; one that is still connecting does not count."""
    ext = {"topic": TOPIC}
    answer = await group.ask(0, RequestCode.DELETE_TOPIC_IN_BROKER, ext)
    assert answer.code == 0, answer.remark


async def test_a_promoted_slave_has_the_topic_that_was_made_again(tmp_path: Path) -> None:
    async with replica_group(tmp_path) as group:
        await group.start(0, replication="sync", in_sync_replicas=2, slave_timeout_s=20)
        await group.start(1)
        client = await group.client()
        (queue,) = await group.queues()
        for n in range(3):
            await client.send(queue, OutgoingMessage(TOPIC, b"old %d" % n), timeout_s=20)
        await group.until_served(1, [b"old 0", b"old 1", b"old 2"])
        await client.commit_offset(GROUP, queue, 3, epoch=7)
        await deleted(group)

        async def unknown() -> bool:
            answer = await group.ask(1, RequestCode.GET_ALL_TOPIC_CONFIG)
            return f'"{TOPIC}"'.encode() not in bytes(answer.body)

        await until(unknown)
        await client.create_topic(TOPIC, queues=1)
        assert (await client.send(queue, OutgoingMessage(TOPIC, b"new"), timeout_s=20)).offset == 0
        await group.until_served(1, [b"new"])
        await group.stop(0, crash=True)
        await group.stop(1)
        await group.start(1, role="master")
        await group.until_served(1, [b"new"])
        assert not await (await group.client()).has_committed(GROUP, queue)


@pytest.mark.parametrize("restart", [False, True])
async def test_a_topic_whose_deletion_waits_for_replicas_accepts_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, restart: bool
) -> None:
    """Neither messages nor its creation: the deletion would take what was answered."""
    monkeypatch.setattr(message_store, "VISIBLE_WITHIN_S", 0.01)
    async with replica_group(tmp_path) as group:
        await group.start(0, replication="sync", in_sync_replicas=2, slave_timeout_s=20)
        await group.start(1)
        client = await group.client()
        (queue,) = await group.queues()
        await client.send(queue, OutgoingMessage(TOPIC, b"old"), timeout_s=20)
        await group.stop(1)
        answer = await group.ask(0, RequestCode.DELETE_TOPIC_IN_BROKER, {"topic": TOPIC})
        assert "no replica has confirmed it yet" in (answer.remark or "")
        if restart:
            await group.stop(0)
            await group.start(0, replication="sync", in_sync_replicas=2, slave_timeout_s=20)
        with pytest.raises(BrokerError, match=f"topic {TOPIC} is being deleted"):
            await client.send(queue, OutgoingMessage(TOPIC, b"lost"), timeout_s=20)
        with pytest.raises(BrokerError, match=f"topic '{TOPIC}' is still being deleted"):
            await client.create_topic(TOPIC, queues=1)
        answer = await group.ask(0, RequestCode.DELETE_TOPIC_IN_BROKER, {"topic": TOPIC})
        assert "no replica has confirmed it yet" in (answer.remark or "")
        await group.start(1)

        async def gone() -> bool:
            answer = await group.ask(0, RequestCode.GET_ALL_TOPIC_CONFIG)
            return f'"{TOPIC}"'.encode() not in bytes(answer.body)

        await until(gone)
        await client.create_topic(TOPIC, queues=1)
        assert (await client.send(queue, OutgoingMessage(TOPIC, b"new"), timeout_s=20)).offset == 0
        await group.until_served(1, [b"new"])
