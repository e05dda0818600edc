"""A group with a rate of its own, whose topics are at several brokers."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from testkit.simulation.clients import Flow, ProducerNode
from testkit.simulation.world import ProxyNode
from tests.world.stage import Stage, play


@pytest.mark.parametrize("limit", [{}, {"max_rate": 50}], ids=["no limit", "limit"])
def test_a_silent_broker_of_one_topic_does_not_stop_the_others(limit: dict[str, Any]) -> None:
    """The proxy starts while the nameserver still has the broker's route."""
    seen: list[int] = []

    async def main(stage: Stage) -> None:
        world = stage.world
        topics = [{"name": name, "order_key": "KEY"} for name in ("orders", "mail")]
        world.write_settings([{"name": "billing", **limit, "topics": topics}])
        await world.start({"broker-a": {}, "broker-b": {}})
        await world.make_topic("orders", 2, broker="broker-a")
        await world.make_topic("mail", 2, broker="broker-b")
        world.nodes["broker-b"].pause()  # it hangs; the nameserver still has its route
        await world.add(ProxyNode, "proxy-0").start()
        producer = world.add(ProducerNode, "producer")
        producer.begin([proxy.thrift for proxy in world.proxies])
        stage.consume("consumer-0", "billing")
        await producer.send(Flow("orders", ("a", "b", "c"), 0.01, 20))
        await asyncio.sleep(60)
        seen.append(len(stage.of("deliver", topic="orders")))

    play(main)
    assert seen[0] >= 20
