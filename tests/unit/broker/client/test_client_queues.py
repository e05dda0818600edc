"""The queues of a route that a client uses."""

from __future__ import annotations

import pytest

from broker_core.client import BrokerClient
from broker_core.client.routes import RouteCache
from broker_core.names import QueueName, Topic
from broker_core.remoting.route_bodies import BrokerData, Perm, QueueData, TopicRoute

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
