"""Order topics: the operator configures the number of queues, whichever brokers are up."""

from __future__ import annotations

import pytest

from broker_core.client import BrokerClient
from broker_core.client.routes import RouteCache
from broker_core.errors import InvalidCommand
from broker_core.names import QueueName, Topic
from broker_core.remoting.route_bodies import BrokerData, QueueData, TopicRoute

ORDERS = Topic("orders")


def route(order_conf: str | None) -> TopicRoute:
    """One broker is up, with two queues."""
    return TopicRoute(
        queues=(QueueData(broker="b", read_queues=2, write_queues=2, perm=6),),
        brokers=(BrokerData(cluster="c", broker="b", addresses={0: "127.0.0.1:1"}),),
        order_conf=order_conf,
    )


@pytest.mark.parametrize(
    ("order_conf", "queues"),
    [
        (None, [("b", 0), ("b", 1)]),
        ("", [("b", 0), ("b", 1)]),
        ("b:1;a:2;", [("b", 0), ("a", 0), ("a", 1)]),
    ],
)
async def test_producers_number_the_queues_of_an_order_topic_as_it_says(
    monkeypatch: pytest.MonkeyPatch, order_conf: str | None, queues: list[tuple[str, int]]
) -> None:
    client = BrokerClient(nameservers=["127.0.0.1:1"], client_id="me@1")

    async def known(_routes: RouteCache, topic: Topic, *, fresh: bool = False) -> TopicRoute:
        return TopicRoute.from_json(route(order_conf).to_json())

    monkeypatch.setattr(RouteCache, "route", known)
    assert await client.writable_queues(ORDERS) == [QueueName(ORDERS, *each) for each in queues]
    assert await client.queues(ORDERS) == [QueueName(ORDERS, "b", 0), QueueName(ORDERS, "b", 1)]


@pytest.mark.parametrize("order_conf", ["b", "b:", ":1", "b:-1", "b:1;;a:1", "b:x"])
def test_an_order_topic_that_cannot_be_read_is_named(order_conf: str) -> None:
    with pytest.raises(InvalidCommand, match="expected broker:queues"):
        route(order_conf).order_queues()
