"""Deadlines for many items of one kind, with a single timer."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Generic, TypeVar

import structlog

from proxy.observe.logs import NoisyLog

T = TypeVar("T")

_noisy = NoisyLog(structlog.get_logger("net"))


class Overdue(Generic[T]):
    """Passes every item that has been active for *longest_s* to *late*, and removes it.

    Each step is O(1): all items have the same time limit, so the first to begin is the first due.
    No timer runs while no item is active.
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

    def begin(self, item: T) -> None:
        """Start the time limit of *item*; no effect if it is running."""
        if item in self._due_s:
            return
        loop = asyncio.get_running_loop()
        self._due_s[item] = loop.time() + self._longest_s
        if self._timer is None:
            self._timer = loop.call_later(self._longest_s, self._look)

    def end(self, item: T) -> None:
        """Stop the time limit of *item*, if it is running."""
        self._due_s.pop(item, None)

    def close(self) -> None:
        """Remove all items and stop the timer."""
        self._due_s.clear()
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _look(self) -> None:
        self._timer = None
        loop = asyncio.get_running_loop()
        while self._due_s:
            item, due_s = next(iter(self._due_s.items()))
            if due_s > loop.time():
                self._timer = loop.call_at(due_s, self._look)
                return
            del self._due_s[item]
            with _noisy.confined("bug", "the end of a time limit had no effect"):
                self._late(item)
