"""A broker that goes on with other limits, and what was handled."""

from __future__ import annotations

from typing import Any

from testkit.simulation.world import BrokerNode, World


async def restarted(world: World, **settings: Any) -> None:
    """The broker goes on with other settings."""
    (broker,) = world.brokers
    assert isinstance(broker, BrokerNode)
    await broker.stop()
    broker.configure(**settings)
    await broker.start()


def numbers(seen: list[Any], key: str) -> list[int]:
    """Which messages of *key* were handled, in order."""
    return [int(each[0][:3]) for each in seen if each[1] == key]
