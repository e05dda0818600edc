"""States that may last so long and no longer, of many at a time, by one timer."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Generic, TypeVar

T = TypeVar("T")


class Overdue(Generic[T]):
    """Who has been in a state for *longest_s* leaves it and is given to *late*.

    O(1) a step. All are given the same time, so whoever came first is due first; and while nobody
    is in the state there is no timer, so those who never are in it cost nothing.
    """

    def __init__(self, longest_s: float, late: Callable[[T], None]) -> None:
        self._longest_s = longest_s
        self._late = late
        self._due_s: dict[T, float] = {}
        self._timer: asyncio.TimerHandle | None = None

    def __len__(self) -> int:
        return len(self._due_s)

    @property
    def has_timer(self) -> bool:
        """Whether a timer runs."""
        return self._timer is not None

    def begin(self, who: T) -> None:
        """*who* enters the state; the time of one that is in it goes on."""
        if who in self._due_s:
            return
        loop = asyncio.get_running_loop()
        self._due_s[who] = loop.time() + self._longest_s
        if self._timer is None:
            self._timer = loop.call_later(self._longest_s, self._look)

    def end(self, who: T) -> None:
        """*who* has left the state, or was never in it."""
        self._due_s.pop(who, None)

    def close(self) -> None:
        """Nobody is in the state any more, and nobody will be."""
        self._due_s.clear()
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _look(self) -> None:
        self._timer = None
        loop = asyncio.get_running_loop()
        while self._due_s:
            who, due_s = next(iter(self._due_s.items()))
            if due_s > loop.time():
                self._timer = loop.call_at(due_s, self._look)
                return
            del self._due_s[who]
            self._late(who)
