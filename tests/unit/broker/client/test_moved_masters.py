"""A broker with replicas, as Apache RocketMQ's controller moves them: its former master keeps its
connections, grants locks, answers reads, and only refuses to store.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest

from broker_core.client import BrokerClient
from broker_core.client.connection_pool import ConnectionPool
from broker_core.errors import BrokerError
from broker_core.names import Group, QueueName, Topic
from broker_core.remoting.bodies import locked_to_json
from broker_core.remoting.codes import RequestCode, ResponseCode
from broker_core.remoting.command import RemotingCommand
from broker_core.remoting.message import OutgoingMessage
from broker_core.remoting.route_bodies import BrokerData, ClusterTable

NAMESERVER, FIRST, SECOND = "n:1", "first:1", "second:1"
QUEUE = QueueName(Topic("orders"), "a", 0)
BILLING = Group("billing")


class Cluster:
    """Broker a with two replicas."""

    def __init__(self, *, replicas: int = 2) -> None:
        self.addresses = {0: FIRST, 1: SECOND} if replicas == 2 else {0: FIRST}
        self.asked: Counter[tuple[str, int]] = Counter()
        self.lost: list[str] = []

    def elect_second(self) -> None:
        self.addresses = {0: SECOND, 1: FIRST}

    async def request(self, address: str, command: RemotingCommand) -> RemotingCommand:
        await asyncio.sleep(0.001)
        self.asked[address, command.code] += 1
        if address == NAMESERVER:
            brokers = {"a": BrokerData(cluster="c", broker="a", addresses=self.addresses)}
            table = ClusterTable(brokers=brokers, clusters={"c": ("a",)})
            return RemotingCommand(0, body=table.to_json())
        if command.code == RequestCode.LOCK_BATCH_MQ:
            return RemotingCommand(0, body=locked_to_json([QUEUE]))
        if address != self.addresses[0]:
            remark = "service not available now. It may be caused by one of the following reasons"
            return RemotingCommand(ResponseCode.SERVICE_NOT_AVAILABLE, remark=remark)
        ext = {"msgId": "00", "queueId": "0", "queueOffset": "7"}
        return RemotingCommand(0, ext=ext)


@asynccontextmanager
async def client_of(
    cluster: Cluster, monkeypatch: pytest.MonkeyPatch
) -> AsyncIterator[BrokerClient]:
    async def request(
        _pool: ConnectionPool, address: str, command: RemotingCommand, *, timeout_s: float
    ) -> RemotingCommand:
        return await cluster.request(address, command)

    monkeypatch.setattr(ConnectionPool, "request", request)
    client = BrokerClient(
        nameservers=[NAMESERVER], client_id="us@1#1", on_broker_lost=cluster.lost.append
    )
    await client.start()
    try:
        yield client
    finally:
        await client.close()


async def test_locks_are_doubted_soon_after_another_replica_was_elected(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A proxy that knows the new master may own the queue after 10 s."""
    cluster = Cluster()
    async with client_of(cluster, monkeypatch) as client:
        await client.lock(BILLING, [QUEUE])
        assert cluster.asked[FIRST, RequestCode.LOCK_BATCH_MQ] == 1
        cluster.elect_second()
        await asyncio.sleep(2.5)
        assert cluster.lost == ["a"]
        await client.lock(BILLING, [QUEUE])
        assert cluster.asked[SECOND, RequestCode.LOCK_BATCH_MQ] == 1


async def test_a_refused_send_finds_the_new_master(monkeypatch: pytest.MonkeyPatch) -> None:
    cluster = Cluster()
    async with client_of(cluster, monkeypatch) as client:
        await client.lock(BILLING, [QUEUE])
        cluster.elect_second()
        with pytest.raises(BrokerError, match="service not available"):
            await client.send(QUEUE, OutgoingMessage(QUEUE.topic, b"x"))
        assert (await client.send(QUEUE, OutgoingMessage(QUEUE.topic, b"x"))).offset == 7
        assert cluster.lost == ["a"]


async def test_no_nameserver_is_asked_about_a_broker_without_replicas(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    cluster = Cluster(replicas=1)
    async with client_of(cluster, monkeypatch) as client:
        await client.lock(BILLING, [QUEUE])
        await asyncio.sleep(10)
    assert cluster.asked[NAMESERVER, RequestCode.GET_BROKER_CLUSTER_INFO] == 1
