"""The queue of waiting pulls of a group. No I/O, no clock."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from dataclasses import dataclass, field
from typing import Generic, Protocol, TypeVar

from broker_core.names import Topic
from proxy.core.group.group_buffer import PullWish


class Waiter(Protocol):
    """A waiting pull, compared by identity."""

    @property
    def wish(self) -> PullWish:
        """The messages that it wants."""


Pull = TypeVar("Pull", bound=Waiter)


@dataclass(slots=True)
class Waiters(Generic[Pull]):
    """Waiting pulls of one group, in order of arrival; O(1) per step.

    A pull is listed under each topic that it wants, or under None for any topic.
    """

    # Pulls with their numbers in order of arrival.
    _lists: dict[Topic | None, dict[Pull, int]] = field(default_factory=dict)
    _last: int = 0
    _count: int = 0

    def __len__(self) -> int:
        return self._count

    @property
    def topics(self) -> Collection[Topic | None]:
        """Topics that pulls wait for; contains None if some wait for any."""
        return self._lists.keys()

    def add(self, pull: Pull) -> None:
        """Append *pull*."""
        self._last += 1
        self._count += 1
        for topic in _places(pull):
            self._lists.setdefault(topic, {})[pull] = self._last

    def remove(self, pull: Pull) -> bool:
        """Remove *pull*; return False if it was not listed."""
        found = False
        for topic in _places(pull):
            waiting = self._lists.get(topic)
            if waiting is None:
                continue
            found = waiting.pop(pull, None) is not None or found
            if not waiting:
                del self._lists[topic]
        self._count -= found
        return found

    def all(self) -> list[Pull]:
        """Return all pulls, each once; O(pulls)."""
        return list(dict.fromkeys(pull for waiting in self._lists.values() for pull in waiting))

    def any(self) -> Pull:
        """Return some pull without removing it. Raises StopIteration if there is none."""
        return next(iter(next(iter(self._lists.values()))))

    def first(self, topics: Iterable[Topic]) -> Pull | None:
        """Return the longest waiting pull for one of *topics*, without removing it."""
        found: Pull | None = None
        lowest = self._last + 1
        for topic in (None, *topics):
            if waiting := self._lists.get(topic):
                pull, number = next(iter(waiting.items()))
                if number < lowest:
                    found, lowest = pull, number
        return found


def _places(pull: Waiter) -> Iterable[Topic | None]:
    return (None,) if pull.wish.topics is None else pull.wish.topics
