"""The queue of waiting pulls of a group. No I/O, no clock."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable
from dataclasses import dataclass, field
from typing import Any

from broker_core.names import Topic
from proxy.core.group.group_buffer import Batch, PullWish


@dataclass(slots=True, eq=False)
class Waiter:
    """One waiting pull. ``answer`` is called once, with batches or without."""

    wish: PullWish
    answer: Callable[[list[Batch]], None]
    timeout: Any = None  # timer for the empty answer; cancelled when the wait ends
    number: int = 0

    def end(self) -> None:
        """Cancel the timer and forget ``answer``: it refers to this waiter, and to the messages of
        its answer.
        """
        self.timeout.cancel()
        self.timeout = None  # it may refer to this waiter as well
        self.answer = _answered


def _answered(_batches: list[Batch]) -> None:
    raise RuntimeError("a waiting pull was answered twice")


@dataclass(slots=True)
class Waiters:
    """Waiting pulls of one group, in order of arrival; O(1) per step.

    A pull is listed under each topic that it wants, or under None for any topic.
    """

    _lists: dict[Topic | None, dict[int, Waiter]] = field(default_factory=dict)
    _last: int = 0
    _count: int = 0

    def __len__(self) -> int:
        return self._count

    @property
    def topics(self) -> Collection[Topic | None]:
        """Topics that pulls wait for; contains None if some wait for any."""
        return self._lists.keys()

    def add(self, waiter: Waiter) -> None:
        """Append *waiter*."""
        self._last += 1
        self._count += 1
        waiter.number = self._last
        for topic in _places(waiter):
            self._lists.setdefault(topic, {})[waiter.number] = waiter

    def remove(self, waiter: Waiter) -> bool:
        """Remove *waiter*; return False if it was not listed."""
        found = False
        for topic in _places(waiter):
            waiting = self._lists.get(topic, {})
            found = waiting.pop(waiter.number, None) is not None or found
            if not waiting:
                self._lists.pop(topic, None)
        self._count -= found
        return found

    def all(self) -> list[Waiter]:
        """Return all waiters, each once; O(waiters)."""
        found = {each.number: each for some in self._lists.values() for each in some.values()}
        return list(found.values())

    def any(self) -> Waiter:
        """Return some waiter without removing it. Raises StopIteration if there is none."""
        return next(iter(next(iter(self._lists.values())).values()))

    def first(self, topics: Iterable[Topic]) -> Waiter | None:
        """Return the longest waiting pull for one of *topics*, without removing it."""
        candidates = [
            next(iter(waiting.values()))
            for topic in (None, *topics)
            if (waiting := self._lists.get(topic))
        ]
        return min(candidates, key=lambda waiter: waiter.number, default=None)


def _places(waiter: Waiter) -> Iterable[Topic | None]:
    return (None,) if waiter.wish.topics is None else waiter.wish.topics
