"""Fair sharing of the event loop: limits the time of one kind of work per pass."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable
from typing import TypeVar

from broker_core.clock import now_ns

T = TypeVar("T")

_SLICE_NS = 10_000_000
#: Below this amount of work the end of the pass does not matter: finding it would cost more.
_NOTABLE_NS = 1_000_000


class TimeSlices:
    """Runs pieces of work in order of arrival, for at most *slice_ns* per pass of the event loop.

    An event loop runs all ready callbacks before it looks at sockets and timers again. If hundreds
    of answers arrive at once, that takes a second in which no lock is renewed and no other client
    is served. A piece that has begun is always finished, however long it takes.
    """

    def __init__(self, slice_ns: int = _SLICE_NS, *, clock: Callable[[], int] = now_ns) -> None:
        self._slice_ns = slice_ns
        self._clock = clock
        self._waiting: deque[Callable[[], object]] = deque()
        self._spent_ns = 0  # in this pass, with short earlier ones
        self._resting = False  # until the next pass

    def run(self, work: Callable[[], object]) -> None:
        """Run *work*: now, or in a later pass after the work before it."""
        if self._waiting or self._spent_ns >= self._slice_ns:
            self._wait(work)
        else:
            self._do(work)

    async def result(self, work: Callable[[], T]) -> T:
        """Run *work* in its turn and return its result, or raise its error. Cancelling skips it if
        it has not begun.
        """
        if not self._waiting and self._spent_ns < self._slice_ns:
            return self._do(work)
        turn: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        result: list[T] = []
        failed: list[Exception] = []

        def wake() -> None:
            if turn.done():
                return
            try:
                result.append(work())
            except Exception as error:
                failed.append(error)
            turn.set_result(None)

        self._wait(wake)
        await turn
        if failed:
            raise failed.pop()  # kept in no variable: it will refer to this frame, and so to *work*
        return result[0]

    def _wait(self, work: Callable[[], object]) -> None:
        self._waiting.append(work)
        self._rest()

    def _do(self, work: Callable[[], T]) -> T:
        began_ns = self._clock()
        try:
            return work()
        finally:
            self._spent_ns += self._clock() - began_ns
            if self._spent_ns >= _NOTABLE_NS:
                self._rest()

    def _rest(self) -> None:
        if not self._resting:
            self._resting = True
            asyncio.get_running_loop().call_soon(self._next_pass)

    def _next_pass(self) -> None:
        self._resting = False
        self._spent_ns = 0
        try:
            while self._waiting and self._spent_ns < self._slice_ns:
                self._do(self._waiting.popleft())
        finally:
            if self._waiting:
                self._rest()
