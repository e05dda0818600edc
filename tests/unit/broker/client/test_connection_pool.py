"""A caller that is cancelled while it waits for a connection ends, whatever happens at that
moment.
"""

from __future__ import annotations

import asyncio
from typing import Any, cast

from broker_core.client.connection_pool import ConnectionPool
from broker_core.client.requests import BrokerRequests
from broker_core.remoting.command import RemotingCommand
from broker_core.remoting_channel import RemotingChannel
from broker_core.tasks import spawn


class Channel:
    """A connected, silent channel."""

    is_closed = False

    async def request(self, command: RemotingCommand, *, timeout_s: float) -> None:
        await asyncio.Event().wait()


async def ended(task: asyncio.Task[Any]) -> bool:
    done, _ = await asyncio.wait([task], timeout=1)
    task.cancel()
    return bool(done)


async def test_a_cancel_at_the_moment_of_connecting_is_not_lost() -> None:
    """A hand-over waits for its reader to end: otherwise forever."""
    connected: asyncio.Future[Channel] = asyncio.get_running_loop().create_future()

    class Pool(ConnectionPool):
        async def _connect(self, address: str) -> RemotingChannel:
            return cast(RemotingChannel, await connected)

    pool = Pool()
    task = spawn(pool.request("x:1", RemotingCommand(11), timeout_s=5), name="ask")
    await asyncio.sleep(0.01)
    connected.set_result(Channel())
    for _ in range(2):  # the connection exists, but the caller has not resumed
        await asyncio.sleep(0)
    task.cancel()

    assert await ended(task)


async def test_a_cancel_at_the_moment_of_finding_a_broker_is_not_lost() -> None:
    found: asyncio.Future[str] = asyncio.get_running_loop().create_future()

    class Routes:
        def known_master(self, _broker: str) -> None:
            return None

        async def find_master(self, _broker: str) -> str:
            return await found

    class Pool:
        async def request(self, *_: object, **__: object) -> None:
            await asyncio.Event().wait()

    requests = BrokerRequests(Pool(), Routes(), timeout_s=5)  # type: ignore[arg-type]
    task = spawn(requests.ask("broker-a", 11), name="ask")  # type: ignore[arg-type]
    await asyncio.sleep(0.01)
    found.set_result("x:1")
    for _ in range(2):
        await asyncio.sleep(0)
    task.cancel()

    assert await ended(task)
