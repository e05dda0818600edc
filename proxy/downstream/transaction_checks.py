"""Questions of brokers about open transactions, and the producers that wait for them. No I/O, no
clock.

A question goes to the producer of its group that has waited longest among those that know its
topic. While none waits, because all of them are handling questions, it is held for a short time.
A question that is lost is no loss: its broker asks again, perhaps through another proxy.
"""

from __future__ import annotations

from collections.abc import Set
from dataclasses import dataclass, field
from typing import Any, Generic, NamedTuple, Protocol, TypeVar

from broker_core.names import Group, Topic

#: A question that is not fetched within this time is dropped.
HELD_NS = 20_000_000_000
#: Limits of what is held, over all groups.
MOST_HELD, MOST_HELD_BYTES = 1000, 16 * 1024 * 1024
#: Limits of one answer; a single question may exceed the second one.
_MOST_AT_ONCE, _MOST_BYTES_AT_ONCE = 64, 2 * 1024 * 1024


class Waiting(Protocol):
    """A producer's request that waits for questions, compared by identity."""

    @property
    def group(self) -> Group:
        """Its producer group."""

    @property
    def topics(self) -> Set[Topic]:
        """The topics of the transactions that it knows."""


class Question(NamedTuple):
    """A broker's question about the transaction ``message_id``, with the ``check`` to hand out."""

    topic: Topic
    message_id: str
    size_bytes: int
    check: Any


class _Held(NamedTuple):
    question: Question
    until_ns: int


W = TypeVar("W", bound=Waiting)


@dataclass(slots=True)
class TransactionChecks(Generic[W]):
    """The questions and the waiting producers of all groups."""

    _waiting: dict[Group, dict[W, None]] = field(default_factory=dict)  # in order of arrival
    _held: dict[Group, dict[str, _Held]] = field(default_factory=dict)  # by message id
    _count: int = 0
    _size_bytes: int = 0

    @property
    def held(self) -> int:
        """Number of questions that wait for a producer."""
        return self._count

    def wait(self, request: W) -> None:
        """Add *request* behind all others of its group."""
        self._waiting.setdefault(request.group, {})[request] = None

    def remove(self, request: W) -> bool:
        """Remove *request*; return False if it did not wait."""
        waiting = self._waiting.get(request.group, {})
        if request not in waiting:
            return False
        del waiting[request]
        if not waiting:
            del self._waiting[request.group]
        return True

    def all(self) -> list[W]:
        """Return all waiting requests."""
        return [request for waiting in self._waiting.values() for request in waiting]

    def taker(self, group: Group, topic: Topic) -> W | None:
        """Remove and return the request that has waited longest for *topic*; None without one."""
        for request in self._waiting.get(group, {}):
            if topic in request.topics:
                self.remove(request)
                return request
        return None

    def hold(self, group: Group, question: Question, *, now_ns: int) -> bool:
        """Keep *question* for the next request; return False if there is no room.

        It replaces an earlier one about the same transaction.
        """
        self._drop(group, question.message_id)
        if self._count >= MOST_HELD or self._size_bytes + question.size_bytes > MOST_HELD_BYTES:
            return False
        held = self._held.setdefault(group, {})
        held[question.message_id] = _Held(question, now_ns + HELD_NS)
        self._count += 1
        self._size_bytes += question.size_bytes
        return True

    def take(self, group: Group, topics: Set[Topic], *, now_ns: int) -> list[Question]:
        """Remove and return held questions about *topics*, oldest first, up to one answer's
        limits.
        """
        self.expire(now_ns)
        taken: list[Question] = []
        size_bytes = 0
        for question, _ in list(self._held.get(group, {}).values()):
            if question.topic not in topics:
                continue
            size_bytes += question.size_bytes
            if taken and (size_bytes > _MOST_BYTES_AT_ONCE or len(taken) == _MOST_AT_ONCE):
                break
            taken.append(question)
            self._drop(group, question.message_id)
        return taken

    def expire(self, now_ns: int) -> None:
        """Drop questions that were held too long. O(groups), and O(1) for each dropped one."""
        for group, held in list(self._held.items()):
            while held and (first := next(iter(held.values()))).until_ns <= now_ns:
                self._drop(group, first.question.message_id)

    def forget(self, group: Group) -> None:
        """Drop the questions of a group that has no producer any more."""
        for message_id in list(self._held.get(group, {})):
            self._drop(group, message_id)

    def _drop(self, group: Group, message_id: str) -> None:
        held = self._held.get(group, {})
        dropped = held.pop(message_id, None)
        if dropped is None:
            return
        self._count -= 1
        self._size_bytes -= dropped.question.size_bytes
        if not held:
            del self._held[group]
