"""Lock, unlock and renewal of one queue form one sequence, however late a request arrives.

Real brokers and clients in a simulated world, with links that delay requests. W1 and W2 of the
history checker find the effects of two owners of a queue.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any

import pytest

from broker_core.client import BrokerClient
from broker_core.errors import RemotingError
from broker_core.names import Group, QueueName, Topic
from broker_core.remoting_channel import RemotingChannel
from broker_core.tasks import spawn
from testkit.simulation.world import ClientNode, simulate
from testkit.simulation.world import World as SimulatedWorld

GROUP = Group("billing")
BROKER = "broker-a"
QUEUE = QueueName(Topic("orders"), BROKER, 0)
Play = Callable[["_Two"], Coroutine[Any, Any, None]]


class _Client(BrokerClient):
    """Can drop its connections without ending the requests in progress."""

    def reconnect(self) -> list[RemotingChannel]:
        return self._pool.renew()


class _Two:
    """Two processes that want the lock of a queue, *us* behind a link that can be held."""

    def __init__(self, world: SimulatedWorld) -> None:
        self.world = world

    async def start(self) -> None:
        await self.world.start({BROKER: {}})
        await self.world.make_topic(QUEUE.topic, 1)
        self.us, self.them = await self._client("us"), await self._client("them")

    async def _client(self, name: str) -> tuple[ClientNode, _Client]:
        node = self.world.add(ClientNode, name)
        await node.start()
        client = _Client(nameservers=[self.world.nameserver.address], client_id=f"{name}@1#1")
        await node.do(client.start())
        return node, client

    async def lock(self, who: tuple[ClientNode, _Client]) -> bool:
        node, client = who
        answer = await node.do(client.lock(GROUP, [QUEUE], timeout_s=0.5))
        return QUEUE in answer.granted

    async def unlock(self, who: tuple[ClientNode, _Client]) -> bool:
        node, client = who
        try:
            await node.do(client.unlock(GROUP, [QUEUE], timeout_s=0.5))
        except RemotingError:
            return False
        return True


def played(play: Play) -> None:
    async def run(world: SimulatedWorld) -> None:
        two = _Two(world)
        await two.start()
        await play(two)

    simulate(run, seed=1)


async def _late(two: _Two, request: Callable[[], Coroutine[Any, Any, bool]]) -> None:
    """Let *request* of ours arrive 3 s late, over a connection that is replaced meanwhile."""
    network = two.world.loop.network
    network.delay("us", BROKER, 3_000_000_000)
    assert not await request()
    network.delay("us", BROKER, 0)
    node, client = two.us
    await node.do(_close(client.reconnect()))


async def _close(channels: list[RemotingChannel]) -> None:
    for channel in channels:
        spawn(channel.close(), name="close")  # it waits for requests in progress


async def _unlock_behind_a_lock(two: _Two) -> None:
    assert await two.lock(two.us)
    await _late(two, lambda: two.unlock(two.us))
    while not await two.lock(two.us):  # noqa: ASYNC110
        await asyncio.sleep(0.2)
    for _ in range(20):
        assert not await two.lock(two.them)
        assert await two.lock(two.us)
        await asyncio.sleep(0.2)


async def _renewal_behind_an_unlock(two: _Two) -> None:
    assert await two.lock(two.us)
    await _late(two, lambda: two.lock(two.us))
    assert await two.unlock(two.us)
    await asyncio.sleep(4)
    assert await two.lock(two.them)


async def _unlock_behind_lock_and_unlock(two: _Two) -> None:
    """Send an unlock that finds the lock with another process, which keeps it."""
    assert await two.lock(two.us)
    await _late(two, lambda: two.unlock(two.us))
    while not await two.lock(two.us):  # noqa: ASYNC110
        await asyncio.sleep(0.2)
    assert await two.unlock(two.us)
    assert await two.lock(two.them)
    await asyncio.sleep(4)
    assert not await two.lock(two.us)


@pytest.mark.parametrize(
    "play", [_unlock_behind_a_lock, _renewal_behind_an_unlock, _unlock_behind_lock_and_unlock]
)
def test_a_late_request_neither_takes_nor_frees_a_lock(play: Play) -> None:
    played(play)
