"""Changes to topics of a world, recorded in its history where and when they happen.

A stopped broker does not perform the change and returns with its old queues. So each broker is
asked individually until it succeeds, and the life of the topic ends or begins at that broker. A
single event for all brokers would let messages of one life be judged as those of two.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from contextlib import suppress

from broker_core.errors import RemotingError
from testkit.simulation.world import Died, World

#: ``Player._fault``: kind, target, duration, and how it ends.
Fault = Callable[[str, str, float, Callable[[], Awaitable[None]]], Awaitable[None]]
#: Longer than any fault.
_TRIES = 60
_SENT_S = 8.0


class TopicChanges:
    """Deletes and creates topics of *world*, and changes how many queues they have."""

    def __init__(
        self,
        world: World,
        queues: Mapping[str, int],
        *,
        fault: Fault,
        wait: Callable[[float], Awaitable[None]],
    ) -> None:
        """Create the actor.

        *queues*: initial number per topic; *wait*: waits for a time, or until all is healed.
        """
        self.held: set[str] = set()
        """Topics that currently get no sends."""
        self._world = world
        self._fault = fault
        self._wait = wait
        self._most = dict(queues)  # highest number of queues in this life of the topic

    async def recreate(
        self, topic: str, queues: int, for_s: float, broker: str | None = None
    ) -> bool:
        """Delete *topic*, optionally at one *broker* only, and create it again *for_s* later."""
        if topic in self.held:
            return False
        self.held.add(topic)
        await self._wait(_SENT_S)  # sends in progress arrive or fail meanwhile
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
        """Let *topic* be read in more queues, never in fewer; return False if no broker runs."""
        self._most[topic] = read = max(read, self._most.get(topic, 0))
        return await self._ask_those_there(topic, read, write)

    async def fewer_queues(self, topic: str, read: int, write: int, all: int, for_s: float) -> bool:
        """Reduce the queues that are read; messages in the others wait until they are read
        again.
        """
        if not await self._ask_those_there(topic, read, write):
            return False

        async def again() -> None:
            for each in self._world.brokers:
                await self._insist(lambda at=each.name: self._read_all(topic, all, at))

        await self._fault("fewer queues", topic, for_s, again)
        return True

    async def _read_all(self, topic: str, queues: int, broker: str) -> None:
        most = max(queues, self._most.get(topic, 0))  # perhaps more were created
        await self._world.make_topic(topic, most, broker=broker)

    async def _ask_those_there(self, topic: str, read: int, write: int) -> bool:
        """Ask the running brokers; return False if none runs.

        A broker without an answer may still have done it.
        """
        there = [each.name for each in self._world.brokers if each.runs]
        for name in there:
            with suppress(RemotingError, Died):
                await self._world.make_topic(topic, read, write_queues=write, broker=name)
        return bool(there)

    async def _insist(self, ask: Callable[[], Awaitable[None]]) -> bool:
        """Ask until it succeeds. A permanent failure is a failure of the world."""
        for _ in range(_TRIES):
            try:
                await ask()
            except (RemotingError, Died) as error:
                last = error.with_traceback(None)
                await asyncio.sleep(1)
            else:
                return True
        self._world.failures.append(last)
        return False

    def _tell(self, topic: str, what: str, broker: str) -> None:
        self._world.nemesis.write("topic", topic=topic, what=what, broker=broker)
