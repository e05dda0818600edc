"""Virtual time: ordered events, and processes that wait for them.

A process is a generator. It yields a function that receives the callback for the end of the wait,
so that the loops of the shells keep their form here.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Generator, Iterable
from functools import partial
from heapq import heappop, heappush
from typing import Any

SECOND = 1_000_000_000
MS = 1_000_000

Resume = Callable[[Any], None]
Wait = Callable[[Resume], None]
Process = Generator[Wait, Any, Any]


class Events:
    """Events by time; at the same instant in the order of planning."""

    def __init__(self) -> None:
        self.now_ns = 0
        self.count = 0
        self._heap: list[tuple[int, int, Callable[..., object], tuple[Any, ...]]] = []

    def after(self, wait_ns: int, do: Callable[..., object], *arguments: Any) -> None:
        """Call *do* after this time."""
        self.count += 1
        heappush(self._heap, (self.now_ns + wait_ns, self.count, do, arguments))

    def run_until(self, end_ns: int) -> None:
        """Run all events up to *end_ns*."""
        heap = self._heap
        while heap and heap[0][0] <= end_ns:
            self.now_ns, _, do, arguments = heappop(heap)
            do(*arguments)
        self.now_ns = end_ns

    # ---- waits ----------------------------------------------------------------------------------

    def sleep(self, wait_ns: int) -> Wait:
        """Wait for this time."""
        return lambda resume: self.after(wait_ns, resume, None)

    def start(self, process: Process, done: Resume | None = None) -> None:
        """Run *process*, resuming it after each wait; call *done* with its value."""

        def step(value: Any) -> None:
            try:
                wait = process.send(value)
            except StopIteration as end:
                if done is not None:
                    done(end.value)
                return
            wait(step)

        step(None)

    def all_of(self, processes: Iterable[Process]) -> Wait:
        """Start all *processes* and wait for their ends; values are in their order."""
        each = list(processes)
        values: list[Any] = [None] * len(each)

        def begin(resume: Resume) -> None:
            left = len(each)
            if not left:
                resume(values)

            def ended(index: int, value: Any) -> None:
                nonlocal left
                values[index] = value
                left -= 1
                if not left:
                    resume(values)

            for index, process in enumerate(each):
                self.start(process, partial(ended, index))

        return begin


class Turns:
    """A lock with a first-in, first-out queue, like ``asyncio.Lock``."""

    def __init__(self) -> None:
        self._taken = False
        self._waiting: deque[Resume] = deque()

    def take(self) -> Wait:
        """Wait for the lock."""

        def begin(resume: Resume) -> None:
            if self._taken:
                self._waiting.append(resume)
                return
            self._taken = True
            resume(None)

        return begin

    def give_back(self) -> None:
        """Release the lock."""
        if self._waiting:
            self._waiting.popleft()(None)
        else:
            self._taken = False
