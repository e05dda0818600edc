"""How much a queue may hold in memory before its reading pauses. Pure.

All unfinished jobs count, chained ones too: back-pressure on the ready ones alone lets the chains
of a blocked key grow without bound.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(slots=True)
class Budget:
    """A limit that several queues share: body bytes of a process, live leases of a group."""

    limit: int
    used: int = 0

    @property
    def left(self) -> int:
        """What may still be taken; never negative."""
        return max(0, self.limit - self.used)


@dataclass(slots=True)
class FlowWindow:
    """The window of one queue. ``jobs`` and ``used_bytes`` (of bodies) are what it holds now;
    ``memory`` counts the bytes of the whole process.
    """

    max_jobs: int
    memory: Budget
    jobs: int = 0
    used_bytes: int = 0
    _full: bool = False  # once full, reading waits for a quarter of the window: no reads of one

    @property
    def room(self) -> int:
        """How many more messages may be read now.

        An empty window always has room, or queues that hold nothing would wait for others' memory.
        """
        if self._full or (self.jobs and not self.memory.left):
            return 0
        return max(0, self.max_jobs - self.jobs)

    def admit(self, body_bytes: int) -> None:
        """A message entered memory."""
        self.jobs += 1
        self._full = self._full or self.jobs >= self.max_jobs
        self.used_bytes += body_bytes
        self.memory.used += body_bytes

    def leave(self, body_bytes: int) -> None:
        """A message left memory."""
        self.jobs -= 1
        self._full = self._full and (self.max_jobs - self.jobs) * 4 < self.max_jobs
        self.used_bytes -= body_bytes
        self.memory.used -= body_bytes

    def clear(self) -> None:
        """The queue was dropped with all it held."""
        self.memory.used -= self.used_bytes
        self.jobs = self.used_bytes = 0
        self._full = False
