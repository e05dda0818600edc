"""Clients of a broadcast group have positions of their own, and the group has none."""

from __future__ import annotations

import asyncio
from typing import Any

from testkit.simulation.clients import ConsumerNode, Habits
from testkit.simulation.world import ProxyNode, World, simulate

GROUP: dict[str, Any] = {
    "name": "prices",
    "mode": "broadcast",
    "topics": [{"name": "orders", "on_exhausted": "dead_letter"}],
}


def test_a_reset_names_one_client_of_a_broadcast_group() -> None:
    async def main(world: World) -> tuple[Any, Any]:
        world.write_settings([GROUP])
        await world.start({"broker-a": {}})
        await world.make_topic("orders", 1)
        proxy = world.add(ProxyNode, "proxy-0")
        await proxy.start()
        client = world.add(ConsumerNode, "consumer-0")
        client.begin([proxy.thrift], group="prices", topics=None, habits=Habits(), broadcast=True)
        await asyncio.sleep(20)
        body = {"to": {"offset": 0}, "reason": "a test"}
        path = "topics/orders/queues/broker-a_0/reset"
        return (
            await world.http(proxy, f"/api/groups/prices/{path}", body),
            await world.http(proxy, f"/api/groups/prices%25consumer-0/{path}", body),
        )

    (of_all, why), (of_one, _) = simulate(main, seed=1)
    assert of_all == 409
    assert "one offset per client" in str(why)
    assert of_one == 200
