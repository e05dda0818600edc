"""Faults of the elected master of a broker. At most one replica serves at any time."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping

from broker_core.errors import RemotingError
from testkit.explorer.topic_changes import Fault
from testkit.simulation.world import BrokerNode, World

_LOOK_S = 0.25
_ELECTED_S = 60.0
#: Another master is elected meanwhile.
_AWAY_S = 12.0


class Masters:
    """Faults of masters in *world*. ``several``: moments in which more than one replica served."""

    def __init__(
        self,
        world: World,
        *,
        fault: Fault,
        start_again: Callable[[BrokerNode], Awaitable[None]],
    ) -> None:
        """Create the actor."""
        self.several: list[str] = []
        self._world = world
        self._fault = fault
        self._start_again = start_again
        self._watch: asyncio.Task[None] | None = None

    async def begin(self, topics: Mapping[str, int]) -> None:
        """Watch the replicas from now on, and create *topics* (queues by name) once one serves."""
        self._watch = asyncio.get_running_loop().create_task(self._look())
        async with asyncio.timeout(_ELECTED_S):
            for topic, queues in topics.items():
                await self._make(topic, queues)

    async def _make(self, topic: str, queues: int) -> None:
        while True:
            try:
                await self._world.make_topic(topic, queues)
            except RemotingError:
                await asyncio.sleep(_LOOK_S)
            else:
                return

    def end(self) -> None:
        """End the watch."""
        if self._watch is not None:
            self._watch.cancel()

    async def act(self, how: str, for_s: float) -> bool:
        """Let something happen to the master.

        *how*: "kill", "power" or "freeze" it, or cut it "apart" from the other replicas; "behind":
        cut a slave off instead, and kill the master when the slave returns with less data.
        """
        if not (serving := self._serving()):
            return False
        master = serving[0]
        if how == "apart":
            heal = self._cut_off(master)
            await self._fault("apart", master.name, for_s, heal)
            return True
        if how == "behind":
            slaves = [each for each in self._world.brokers if each is not master and each.runs]
            return bool(slaves) and await self._return_behind(slaves[0], for_s)
        process = master.process
        if how == "freeze":
            master.pause()
        else:
            master.kill(power=how == "power")

        async def again() -> None:
            if how != "freeze":
                await self._start_again(master)
            elif master.process is process:
                master.resume()

        await self._fault(f"master {how}", master.name, for_s, again)
        return True

    async def _return_behind(self, slave: BrokerNode, for_s: float) -> bool:
        heal = self._cut_off(slave)

        async def end() -> None:
            dead = [each for each in self._serving() if each is not slave]
            for each in dead:
                each.kill()
            await heal()
            await asyncio.sleep(_AWAY_S)
            for each in dead:
                await self._start_again(each)

        await self._fault("behind", slave.name, for_s, end)
        return True

    def _cut_off(self, node: BrokerNode) -> Callable[[], Awaitable[None]]:
        """Cut *node* off from the other replicas; return what heals that."""
        network = self._world.loop.network
        others = [each.name for each in self._world.brokers if each is not node]
        pairs = [pair for each in others for pair in ((node.name, each), (each, node.name))]
        for pair in pairs:
            network.cut(*pair)

        async def heal() -> None:
            for pair in pairs:
                network.heal(*pair)

        return heal

    def _serving(self) -> list[BrokerNode]:
        return [
            each for each in self._world.brokers if each.replica is not None and each.replica.serves
        ]

    async def _look(self) -> None:
        while True:
            await asyncio.sleep(_LOOK_S)
            if len(serving := self._serving()) > 1:
                names = " and ".join(each.name for each in serving)
                self.several.append(f"{names} serve at the same time")
