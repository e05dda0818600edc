"""What queues that are taken over at the same time have in common.

A proxy that is alone, or comes back, gets thousands of queues by one lock request. Each asks
the broker a dozen things; all at once they would have to wait for each other for longer than any
of them may wait, and none would ever be through.
"""

from __future__ import annotations

import asyncio
from collections import defaultdict
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field

from broker_core.client import BrokerClient
from broker_core.clock import now_ns
from broker_core.errors import RemotingError
from broker_core.names import Group, Topic

#: Enough to keep a broker busy that is far away; few enough that each is through in a moment.
_AT_ONCE = 32
#: Who came to the same group and topic within so long came by the same take-over.
_SAME_NS = 10_000_000_000


@dataclass(slots=True)
class _Asked:
    """When a broker was started, as it says: who comes while it is asked shares the next answer."""

    turn: asyncio.Lock = field(default_factory=asyncio.Lock)
    begun: int = 0  # requests so far
    answered: int = 0  # the number of the one that ``start_ms`` is the answer of
    start_ms: int = 0
    failure: RemotingError | None = None


def _some() -> asyncio.Semaphore:
    return asyncio.Semaphore(_AT_ONCE)


@dataclass(slots=True)
class _FirstStart:
    turn: asyncio.Lock = field(default_factory=asyncio.Lock)
    done_ns: int | None = None


class TakeOvers:
    """One per process."""

    def __init__(self, client: BrokerClient) -> None:
        self._client = client
        # Of each broker its own: one that does not answer holds up nobody else's queues.
        self._some: defaultdict[str, asyncio.Semaphore] = defaultdict(_some)
        self._asked: dict[str, _Asked] = {}
        self._first_starts: dict[tuple[Group, Topic], _FirstStart] = {}

    @asynccontextmanager
    async def turn(self, broker: str) -> AsyncIterator[None]:
        """Wait until a queue of *broker* may be taken over, or its records be looked at after its
        trust lapsed; its lock is renewed meanwhile.
        """
        async with self._some[broker]:
            yield

    async def broker_start_ms(self, broker: str) -> int:
        """As the client's, by an answer to a request that was made after this call, or by its
        failure: one after the other they would fail for minutes.
        """
        asked = self._asked.setdefault(broker, _Asked())
        before = asked.begun
        async with asked.turn:
            if asked.answered <= before:
                asked.begun += 1
                number = asked.begun
                try:
                    asked.start_ms, asked.failure = await self._client.broker_start_ms(broker), None
                except RemotingError as error:
                    asked.failure = error
                asked.answered = number
            if asked.failure is not None:
                # Anew: each who raises it would lengthen the traceback of all.
                raise asked.failure.with_traceback(None)
            return asked.start_ms

    @asynccontextmanager
    async def first_start(self, group: Group, topic: Topic) -> AsyncIterator[bool]:
        """Look for where *group* begins in all queues of *topic*, one at a time; False if that was
        done just now.
        """
        start = self._first_starts.setdefault((group, topic), _FirstStart())
        async with start.turn:
            lately = start.done_ns is not None and now_ns() - start.done_ns < _SAME_NS
            yield not lately
            if not lately:
                start.done_ns = now_ns()

    def forget(self, group: Group) -> None:
        """The group is gone."""
        for key in [key for key in self._first_starts if key[0] == group]:
            del self._first_starts[key]
