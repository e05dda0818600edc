"""The queue of a key changes once when the queues of its topic change, although clients select it
for the batches that they encode, and the proxy for other messages.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from itertools import groupby
from typing import Any

import pytest

from testkit.simulation.clients import add_producer
from testkit.simulation.world import ProxyNode, World, simulate
from thin_client import AsyncProducer, Outgoing

KEYS = tuple(f"k{number}" for number in range(20))
#: Messages of a key in a batch: enough that a batch is encoded for 16 queues.
PER_KEY = 16
Change = Callable[[World], Awaitable[None]]


async def more_queues(world: World) -> None:
    await world.make_topic("orders", 16, broker="broker-a")


async def fewer_queues(world: World) -> None:
    await world.make_topic("orders", 8, write_queues=3, broker="broker-a")


async def another_broker(world: World) -> None:
    await world.make_topic("orders", 8, broker="broker-b")


async def begin(world: World) -> None:
    world.write_settings([{"name": "billing", "topics": [{"name": "orders", "order_key": "KEY"}]}])
    await world.start({"broker-a": {}, "broker-b": {}})
    await world.make_topic("orders", 8, broker="broker-a")
    await world.add(ProxyNode, "proxy").start()


class Sender:
    """Sends messages whose ids name key and number, with an AsyncProducer in its own process."""

    def __init__(self, world: World, servers: list[str]) -> None:
        self._node = add_producer(world, "client")
        self._node.new_process()
        self._producer = AsyncProducer(servers)
        self._number = 0

    async def send(self, per_key: int) -> None:
        """Send *per_key* messages of each key: one by one, or together."""
        messages = [self._message(key) for _ in range(per_key) for key in KEYS]
        if per_key == 1:
            for each in messages:
                await self._node.do(self._producer.send_batch([each]))
        else:
            await self._node.do(self._producer.send_batch(messages))

    def _message(self, key: str) -> Outgoing:
        self._number += 1
        name = f"{key}-{self._number}"
        return Outgoing("orders", b"x", key=key, properties={"UNIQ_KEY": name})


def moves(world: World) -> dict[str, list[str]]:
    """Return the queues of each key, one after the other."""
    stored = [each for each in world.events if each["e"] == "send_ok"]
    return {
        key: [
            queue
            for queue, _ in groupby(
                each["queue"] for each in stored if each["msg"].split("-")[0] == key
            )
        ]
        for key in KEYS
    }


def moved_once(found: dict[str, list[str]]) -> bool:
    """Return whether some keys moved, and none more than once."""
    return {len(queues) for queues in found.values()} in ({1, 2}, {2})


def in_world(main: Callable[[World], Awaitable[Any]]) -> None:
    simulate(main, seed=5)  # type: ignore[arg-type]


@pytest.mark.parametrize("change", [more_queues, fewer_queues, another_broker])
def test_a_key_moves_once_in_batches_and_single_messages(change: Change) -> None:
    """The proxy asks for the route before the client does, 30 s after its first batch."""

    async def main(world: World) -> None:
        await begin(world)
        await asyncio.sleep(20)
        sender = Sender(world, [world.proxies[0].thrift])
        await sender.send(PER_KEY)
        await change(world)
        for _ in range(20):
            await asyncio.sleep(2)
            await sender.send(1)
            await sender.send(PER_KEY)
        assert world.failures == []
        assert moved_once(moves(world)), moves(world)

    in_world(main)


def test_a_key_stays_moved_when_its_batches_go_to_a_proxy_with_an_older_route() -> None:
    async def main(world: World) -> None:
        await begin(world)
        first = world.proxies[0]
        await asyncio.sleep(10)
        second = world.add(ProxyNode, "proxy-2")
        await second.start()
        await Sender(world, [second.thrift]).send(1)  # so that it knows the route
        await more_queues(world)
        await asyncio.sleep(20)  # now the first proxy has the new route
        sender = Sender(world, [first.thrift, second.thrift])
        await sender.send(PER_KEY)
        await first.stop()
        await sender.send(PER_KEY)
        await asyncio.sleep(20)
        await sender.send(PER_KEY)
        assert moved_once(moves(world)), moves(world)

    in_world(main)
