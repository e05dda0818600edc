"""Sharing the event loop: how much of one kind of work is done in one pass of it."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable
from typing import TypeVar

from broker_core.clock import now_ns

T = TypeVar("T")

_SLICE_NS = 10_000_000
#: Below that much work nobody need know where the pass ends: looking costs more than it brings.
_NOTABLE_NS = 1_000_000


class Turns:
    """Does pieces of work in the order of their coming, *slice_ns* of them a pass at most.

    An event loop does all that is ready before it looks at its sockets and timers again. Where
    hundreds of answers have come at the same time that is a second, in which no lock is renewed and
    no other client is heard. A piece that was begun is ended, however long it takes.
    """

    def __init__(self, slice_ns: int = _SLICE_NS, *, clock: Callable[[], int] = now_ns) -> None:
        self._slice_ns = slice_ns
        self._clock = clock
        self._waiting: deque[Callable[[], object]] = deque()
        self._spent_ns = 0  # in this pass, and little in those before
        self._resting = False  # until the next pass

    def run(self, work: Callable[[], object]) -> None:
        """Do *work*: now, or in a later pass after what came before it."""
        if self._must_wait:
            self._wait(work)
        else:
            self._do(work)

    async def result(self, work: Callable[[], T]) -> T:
        """What *work* returns, or raises, once it was done; if cancelled before, it is not."""
        if not self._must_wait:
            return self._do(work)
        turn: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        result: list[T] = []

        def wake() -> None:
            if turn.done():
                return
            try:
                result.append(work())
            except Exception as error:
                turn.set_exception(error)
            else:
                turn.set_result(None)

        self._wait(wake)
        await turn
        return result[0]

    @property
    def _must_wait(self) -> bool:
        return self._spent_ns >= self._slice_ns or bool(self._waiting)

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
