"""The queues of a route that a client uses."""

from __future__ import annotations

import asyncio

import pytest

from broker_core.client import BrokerClient
from broker_core.client.connection_pool import ConnectionPool
from broker_core.client.routes import RouteCache
from broker_core.names import QueueName, Topic
from broker_core.remoting.command import RemotingCommand
from broker_core.remoting.route_bodies import (
    BrokerData,
    ClusterTable,
    Perm,
    QueueData,
    TopicRoute,
)
from broker_core.tasks import spawn

ORDERS = Topic("orders")


async def test_without_a_master_queues_are_consumed_still_and_written_no_more(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A nameserver may miss a master that is running; RocketMQ's consumers count its queues too."""
    route = TopicRoute(
        queues=tuple(
            QueueData(broker=broker, read_queues=1, write_queues=1, perm=Perm.READ_WRITE)
            for broker in "ab"
        ),
        brokers=(
            BrokerData(cluster="c", broker="a", addresses={0: "127.0.0.1:1"}),
            BrokerData(cluster="c", broker="b", addresses={1: "127.0.0.1:2"}),
        ),
    )
    client = BrokerClient(nameservers=["127.0.0.1:1"], client_id="us@1#1")

    async def known(_routes: RouteCache, topic: Topic, *, fresh: bool = False) -> TopicRoute:
        return route

    monkeypatch.setattr(RouteCache, "route", known)
    first, second = QueueName(ORDERS, "a", 0), QueueName(ORDERS, "b", 0)
    assert await client.queues(ORDERS) == [first, second]
    assert await client.writable_queues(ORDERS) == [first]


async def test_an_address_that_is_doubted_during_a_question_is_in_doubt_after_its_answer(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The answer may be older than the loss of the connection."""
    body = ClusterTable(
        brokers={"a": BrokerData(cluster="c", broker="a", addresses={0: "127.0.0.1:1"})},
        clusters={"c": ("a",)},
    ).to_json()

    async def slow(
        _pool: ConnectionPool, _address: str, command: RemotingCommand, *, timeout_s: float
    ) -> RemotingCommand:
        await asyncio.sleep(1)
        return RemotingCommand(0, body=body)

    monkeypatch.setattr(ConnectionPool, "request", slow)
    routes = RouteCache(["127.0.0.1:9"], ConnectionPool(), timeout_s=3)
    asking = spawn(routes.clusters(), name="ask")
    await asyncio.sleep(0.5)
    routes.doubt("a")
    await asking
    assert routes.known_master("a") is None
    assert await routes.find_master("a") == "127.0.0.1:1"
    assert routes.known_master("a") == "127.0.0.1:1"
