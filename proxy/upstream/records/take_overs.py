"""Limits and shares requests of queues that are taken over, or handed over, at the same time.

A proxy that is alone, or returns, gets thousands of queues by one lock request. Each sends its
broker a dozen requests; all at once would exceed their time limits, and no take-over would
complete.
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

#: Enough for a distant broker to stay busy; few enough that each completes quickly.
_AT_ONCE = 32
#: Take-overs of the same group and topic within that time belong together.
_SAME_NS = 10_000_000_000


@dataclass(slots=True)
class _Asked:
    """``locks_since_ms`` of a broker; callers during a request share the next answer."""

    lock: asyncio.Lock = field(default_factory=asyncio.Lock)
    begun: int = 0  # requests so far
    answered: int = 0  # number of the request answered by ``since_ms``
    since_ms: int = 0
    failure: RemotingError | None = None


def _slots() -> asyncio.Semaphore:
    return asyncio.Semaphore(_AT_ONCE)


@dataclass(slots=True)
class _FirstStart:
    lock: asyncio.Lock = field(default_factory=asyncio.Lock)
    done_ns: int | None = None


class TakeOvers:
    """Coordinates the take-overs of one process."""

    def __init__(self, client: BrokerClient) -> None:
        self._client = client
        # One per broker, so that one that does not answer delays no other.
        self._slots: defaultdict[str, asyncio.Semaphore] = defaultdict(_slots)
        self._leaving: defaultdict[str, asyncio.Semaphore] = defaultdict(_slots)
        self._asked: dict[str, _Asked] = {}
        self._first_starts: dict[tuple[Group, Topic], _FirstStart] = {}

    @asynccontextmanager
    async def slot(self, broker: str) -> AsyncIterator[None]:
        """Wait for a free slot at *broker*, to take a queue over or check its records; locks are
        renewed meanwhile.
        """
        async with self._slots[broker]:
            yield

    @asynccontextmanager
    async def end_slot(self, broker: str) -> AsyncIterator[None]:
        """Wait for a free slot at *broker*, to record the end of an ownership period.

        Not one of ``slot``: a take-over that waits for its broker delays no hand-over.
        """
        async with self._leaving[broker]:
            yield

    async def locks_since_ms(self, broker: str) -> int:
        """Return since when the broker has forgotten no lock, from a request made after this call.

        Concurrent callers share a failure: one after the other they would fail for minutes.
        """
        asked = self._asked.setdefault(broker, _Asked())
        before = asked.begun
        async with asked.lock:
            if asked.answered <= before:
                asked.begun += 1
                number = asked.begun
                try:
                    asked.since_ms, asked.failure = await self._client.locks_since_ms(broker), None
                except RemotingError as error:
                    asked.failure = error.with_traceback(None)
                asked.answered = number
            if asked.failure is not None:
                # Raised without its traceback, which every caller would lengthen.
                raise asked.failure.with_traceback(None)
            return asked.since_ms

    @asynccontextmanager
    async def first_start(self, group: Group, topic: Topic) -> AsyncIterator[bool]:
        """Serialize the search for the start of *group* in all queues of *topic*.

        Yield False if it was done just now.
        """
        start = self._first_starts.setdefault((group, topic), _FirstStart())
        async with start.lock:
            recent = start.done_ns is not None and now_ns() - start.done_ns < _SAME_NS
            yield not recent
            if not recent:
                start.done_ns = now_ns()

    def forget(self, group: Group) -> None:
        """Forget a removed group."""
        for key in [key for key in self._first_starts if key[0] == group]:
            del self._first_starts[key]
