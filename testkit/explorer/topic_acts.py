"""What people do to topics of a world, told in its history where and when it is done.

A broker that is away does nothing of it, and comes back with the queues that it had. So each is
asked by itself until it has done it, and a life of the topic ends or begins at that broker: what
was said of all while one was away would have messages of one life judged as those of two.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from contextlib import suppress

from broker_core.errors import RemotingError
from testkit.simulation.world import Died, World

#: ``Player._fault``: what, at what, for how long, and how it ends.
Fault = Callable[[str, str, float, Callable[[], Awaitable[None]]], Awaitable[None]]
#: Longer than any fault.
_TRIES = 60
_SENT_S = 8.0


class TopicActs:
    """Deletes and creates topics of *world*, and changes how many queues they have."""

    def __init__(
        self,
        world: World,
        queues: Mapping[str, int],
        *,
        fault: Fault,
        wait: Callable[[float], Awaitable[None]],
    ) -> None:
        """*queues*: how many each topic has at first; *wait*: that long, or until all is healed."""
        self.held: set[str] = set()
        """Topics that get no sends now."""
        self._world = world
        self._fault = fault
        self._wait = wait
        self._most = dict(queues)  # that the topic has had in this life

    async def recreate(
        self, topic: str, queues: int, for_s: float, broker: str | None = None
    ) -> bool:
        """Delete *topic*, at one *broker* perhaps, and create it again *for_s* later."""
        if topic in self.held:
            return False
        self.held.add(topic)
        await self._wait(_SENT_S)  # what is being sent has come in, or has failed
        self._most[topic] = queues
        brokers = [each.name for each in self._world.brokers if broker in (None, each.name)]
        for each in brokers:
            if not await self._insist(lambda at=each: self._world.delete_topic(topic, broker=at)):
                self.held.discard(topic)
                return False
            self._tell(topic, "deleted", each)
        if broker is None:
            await self._insist(lambda: self._world.forget_topic(topic))

        async def create() -> None:
            for each in brokers:
                if await self._insist(lambda at=each: self._read_all(topic, queues, at)):
                    self._tell(topic, "created", each)
            self.held.discard(topic)

        await self._fault("recreate", topic, for_s, create)
        return True

    async def queues(self, topic: str, read: int, write: int) -> bool:
        """Have *topic* read in more queues, never in fewer; False if no broker runs."""
        self._most[topic] = read = max(read, self._most.get(topic, 0))
        return await self._ask_those_there(topic, read, write)

    async def fewer_queues(self, topic: str, read: int, write: int, all: int, for_s: float) -> bool:
        """What stands in queues that are no longer read waits until they are read again."""
        if not await self._ask_those_there(topic, read, write):
            return False

        async def again() -> None:
            for each in self._world.brokers:
                await self._insist(lambda at=each.name: self._read_all(topic, all, at))

        await self._fault("fewer queues", topic, for_s, again)
        return True

    async def _read_all(self, topic: str, queues: int, broker: str) -> None:
        most = max(queues, self._most.get(topic, 0))  # more were made, perhaps
        await self._world.make_topic(topic, most, broker=broker)

    async def _ask_those_there(self, topic: str, read: int, write: int) -> bool:
        """False if none is; one that does not answer may do it all the same."""
        there = [each.name for each in self._world.brokers if each.runs]
        for name in there:
            with suppress(RemotingError, Died):
                await self._world.make_topic(topic, read, write_queues=write, broker=name)
        return bool(there)

    async def _insist(self, ask: Callable[[], Awaitable[None]]) -> bool:
        """Ask until it is done. If it cannot be done, that is a failure of the world."""
        for _ in range(_TRIES):
            try:
                await ask()
            except (RemotingError, Died) as error:
                last = error
                await asyncio.sleep(1)
            else:
                return True
        self._world.failures.append(last)
        return False

    def _tell(self, topic: str, what: str, broker: str) -> None:
        self._world.nemesis.write("topic", topic=topic, what=what, broker=broker)
