"""When each queue of a group needs its lane's timer. No I/O, no clock."""

from __future__ import annotations

from itertools import count

from proxy.core.jobs.ranking import Ranking
from proxy.core.pipeline.queue_pipeline import QueuePipeline


class DueQueues:
    """Queues by a time no later than their next due one; O(log n) per step.

    A time stays when it turns out to be too early, because leases mostly end before their deadline.
    """

    __slots__ = ("_by_number", "_counter", "_numbers", "_times")

    def __init__(self) -> None:
        self._counter = count()
        self._numbers: dict[QueuePipeline, int] = {}
        self._by_number: dict[int, QueuePipeline] = {}
        self._times: Ranking[int] = Ranking()

    def add(self, pipeline: QueuePipeline) -> None:
        """Add a queue; those due at the same time keep the order in which they were added."""
        number = next(self._counter)
        self._numbers[pipeline], self._by_number[number] = number, pipeline

    def remove(self, pipeline: QueuePipeline) -> None:
        """Remove a queue."""
        if (number := self._numbers.pop(pipeline, None)) is not None:
            del self._by_number[number]
            self._times.remove(number)

    def note(self, pipeline: QueuePipeline, due_ns: int) -> bool:
        """Note that *pipeline* is due at *due_ns*; return False if it is due earlier or was
        removed.
        """
        if (number := self._numbers.get(pipeline)) is None:
            return False
        known_ns = self._times.numbers.get(number)
        if known_ns is not None and known_ns <= due_ns:
            return False
        self._times.set(number, due_ns)
        return True

    def take(self, now_ns: int) -> list[QueuePipeline]:
        """Return the queues that are due, the earliest first; their times are forgotten."""
        return [self._by_number[number] for _, number in self._times.up_to(now_ns)]

    @property
    def first_ns(self) -> int | None:
        """When a queue is due next; None if none is."""
        return self._times.lowest if self._times.numbers else None

    def clear(self) -> None:
        """Forget all times, but no queue."""
        self._times.clear()
