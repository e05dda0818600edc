"""Floods up to the limits of a broker or proxy: the first one too many is refused, the rest is
served.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import suppress

from broker_core.errors import RemotingError
from testkit.explorer.topic_changes import Fault
from testkit.simulation.world import THRIFT_PORT, ClientNode, Died, ProxyNode, World

#: No flood is larger.
_MOST = 400
#: A connection that is open for that long was accepted.
_ACCEPTED_S = 0.05


class _Held(asyncio.Protocol):
    """A connection that sends nothing. ``closed``: set at its end."""

    def __init__(self) -> None:
        self.closed = asyncio.Event()

    def connection_lost(self, exc: Exception | None) -> None:
        self.closed.set()


class Floods:
    """Floods in *world*. ``unlimited``: floods that were not refused."""

    def __init__(
        self, world: World, *, fault: Fault, wait: Callable[[float], Awaitable[None]]
    ) -> None:
        """Create the actor. *wait*: waits for a time, or until all is healed."""
        self.unlimited: list[str] = []
        self._world = world
        self._fault = fault
        self._wait = wait
        self._floods = 0

    async def topics(self, for_s: float) -> bool:
        """Create topics until one is refused; delete them *for_s* later.

        A fault meanwhile: keys cannot be parked without a topic for their copies.
        """
        made: list[str] = []
        self._floods += 1
        refused = False
        for number in range(_MOST):
            name = f"flood-{self._floods}-{number}"
            try:
                await self._world.make_topic(name, 1)
            except (RemotingError, Died) as error:  # perhaps the broker does not run
                refused = "max_topics" in str(error)
                break
            made.append(name)
        else:
            self.unlimited.append(f"{_MOST} topics were created")

        async def delete() -> None:
            for name in made:
                for _ in range(60):
                    with suppress(RemotingError, Died):
                        await self._world.delete_topic(name)
                        break
                    await asyncio.sleep(1)

        await self._fault("flood", "topics", for_s, delete)
        return refused

    async def connections(self, node: str, for_s: float) -> bool:
        """Open connections to a proxy from one host until one is refused; close them *for_s* later.

        No fault: other hosts are served as before.
        """
        proxy = self._world.nodes[node]
        assert isinstance(proxy, ProxyNode)
        if not proxy.runs:
            return False
        self._floods += 1
        flooder = self._world.add(ClientNode, f"flooder-{self._floods}")
        await flooder.start()
        refused = await flooder.do(self._connect(proxy.host))
        if not refused and proxy.runs:
            self.unlimited.append(f"{_MOST} connections to {node} were accepted")
        await self._wait(for_s)
        flooder.kill()
        return refused

    async def _connect(self, host: str) -> bool:
        """Open connections until one is closed by the proxy; return whether that happened."""
        loop = asyncio.get_running_loop()
        for _ in range(_MOST):
            try:
                _, held = await loop.create_connection(_Held, host, THRIFT_PORT)
                async with asyncio.timeout(_ACCEPTED_S):
                    await held.closed.wait()
            except TimeoutError:
                continue
            except OSError:
                pass
            return True
        return False
