"""A broker that continues with other limits, and the handled messages."""

from __future__ import annotations

import asyncio
from typing import Any

from testkit.simulation.world import BrokerNode, World


async def restarted(world: World, **settings: Any) -> None:
    """Restart the broker with other settings."""
    (broker,) = world.brokers
    assert isinstance(broker, BrokerNode)
    await broker.stop()
    broker.configure(**settings)
    await broker.start()
    await asyncio.sleep(1)  # all clients see that their connections ended


def numbers(seen: list[Any], key: str) -> list[int]:
    """Return the handled messages of *key*, in order."""
    return [int(each[0][:3]) for each in seen if each[1] == key]
