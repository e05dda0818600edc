"""Virtual time: events in their order, and processes that wait for them.

A process is a generator. It yields what it waits for, a function that is given the one to call when
the waiting is over; so the loops of the shells read here as they do there.
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
    """What happens when; of the same instant, what was planned first."""

    def __init__(self) -> None:
        self.now_ns = 0
        self.count = 0
        self._heap: list[tuple[int, int, Callable[..., object], tuple[Any, ...]]] = []

    def after(self, wait_ns: int, do: Callable[..., object], *arguments: Any) -> None:
        """Have *do* called in so long."""
        self.count += 1
        heappush(self._heap, (self.now_ns + wait_ns, self.count, do, arguments))

    def run_until(self, end_ns: int) -> None:
        """Let all happen that is due by *end_ns*."""
        heap = self._heap
        while heap and heap[0][0] <= end_ns:
            self.now_ns, _, do, arguments = heappop(heap)
            do(*arguments)
        self.now_ns = end_ns

    # ---- what processes wait for ----------------------------------------------------------------

    def sleep(self, wait_ns: int) -> Wait:
        """For so long."""
        return lambda resume: self.after(wait_ns, resume, None)

    def start(self, process: Process, done: Resume | None = None) -> None:
        """Run *process* until it has to wait, and on whenever it has not; *done* with its value."""

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
        """Until all *processes*, which begin now, have ended; the values are in their order."""
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
    """One at a time, the first first, as ``asyncio.Lock``."""

    def __init__(self) -> None:
        self._taken = False
        self._waiting: deque[Resume] = deque()

    def take(self) -> Wait:
        """Wait for the turn."""

        def begin(resume: Resume) -> None:
            if self._taken:
                self._waiting.append(resume)
                return
            self._taken = True
            resume(None)

        return begin

    def give_back(self) -> None:
        """The turn is over."""
        if self._waiting:
            self._waiting.popleft()(None)
        else:
            self._taken = False
