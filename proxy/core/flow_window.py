"""How much a queue may hold in memory, and when reading it pauses. Pure.

All unfinished jobs count, chained ones too: back-pressure on the ready ones alone lets the chains
of a blocked key grow without bound.

Up to half of its jobs the window fills whoever wants them. Beyond that a queue is read on only for
the sake of waiting clients: what they could have lies behind jobs that nobody can have now. Then
long chains are spilled (``spilled_chains``), so that the rest of the window is left for others.
"""

from __future__ import annotations

from dataclasses import dataclass

from proxy.core.spilled_chains import OFFSET_BYTES

#: A long chain may have so many jobs in memory, whatever its settings say, while all such chains
#: take no more than one part in so many of the window, and of the memory that is left. They go out
#: in long runs, and are read again many at a time.
_MOST_OF_A_KEY, _PARTS = 512, 4


@dataclass(slots=True)
class Budget:
    """A limit that several queues share: bytes of a process, live leases of a group."""

    limit: int
    used: int = 0

    @property
    def left(self) -> int:
        """What may still be taken; never negative."""
        return max(0, self.limit - self.used)


@dataclass(slots=True)
class FlowWindow:
    """The window of one queue. ``jobs`` are in memory, ``spilled`` ones are not; ``used_bytes`` (of
    bodies, and of spilled offsets) is what both hold. ``memory`` counts the whole process.
    """

    max_jobs: int
    memory: Budget
    jobs: int = 0
    spilled: int = 0
    used_bytes: int = 0
    _half: int = 0
    full: bool = False
    """Once full, reading waits for a quarter of it: no reads of one. Never ``pressed`` without."""

    def __post_init__(self) -> None:
        self.change_limit(self.max_jobs)

    def room(self, *, demand: bool) -> int:
        """How many more messages may be read now; *demand*: clients wait for want of ready jobs.

        An empty window always has room, or queues that hold nothing would wait for others' memory.
        """
        if self.jobs and not self.memory.left:
            return 0
        if demand:
            return max(0, self.max_jobs - self.jobs)
        return 0 if self.full else max(0, self._half - self.jobs - self.spilled)

    @property
    def pressed(self) -> bool:
        """True beyond the half that fills whoever wants it: long chains have to be spilled."""
        return self.jobs + self.spilled >= self._half

    @property
    def body_bytes(self) -> int:
        """How long a body in memory is, on average; 0 without any."""
        return (self.used_bytes - OFFSET_BYTES * self.spilled) // max(1, self.jobs)

    def most_of_a_key(self, chains: int, *, least: int) -> int:
        """How many jobs each of so many *chains* may have in memory, once the window is pressed:
        *least*, or more if all of them together are few.
        """
        roomy = min(self.max_jobs, self.memory.left // max(1, self.body_bytes))
        return max(least, min(_MOST_OF_A_KEY, roomy // _PARTS // max(1, chains)))

    def share(self, chains: int, *, most: int) -> int:
        """*most*, but so many *chains* together never take more than half of the window."""
        return min(most, max(1, self.max_jobs // 2 // max(1, chains)))

    def largest_share(self, chains: int, *, least: int) -> int:
        """What ``share`` of ``most_of_a_key`` is never above, however much memory is left; *chains*
        is 1 or more.
        """
        most = self.max_jobs // (_PARTS * chains)  # min() and max() cost more than all of this
        if most > _MOST_OF_A_KEY:
            most = _MOST_OF_A_KEY
        if most < least:
            most = least
        share = self.max_jobs // (2 * chains)
        return most if most < share else share or 1

    def change_limit(self, max_jobs: int) -> None:
        """Another *max_jobs*; above it nothing is read until so many have left."""
        self.max_jobs = max_jobs
        self._half = -(-max_jobs // 2)
        self._look()

    def admit(self, body_bytes: int) -> None:
        """A job entered memory."""
        self.jobs += 1
        self.used_bytes += body_bytes
        self.memory.used += body_bytes
        if self.jobs + self.spilled >= self._half:
            self.full = True

    def leave(self, body_bytes: int, *, jobs: int = 1) -> None:
        """So many *jobs*, of so many bytes together, left memory."""
        self.jobs -= jobs
        self.used_bytes -= body_bytes
        self.memory.used -= body_bytes
        if self.full:
            self._look()

    def spill(self, jobs: int) -> None:
        """So many jobs more (or, negative, fewer) are spilled."""
        self.spilled += jobs
        self.used_bytes += jobs * OFFSET_BYTES
        self.memory.used += jobs * OFFSET_BYTES
        self._look()

    def _look(self) -> None:
        left = self._half - self.jobs - self.spilled
        self.full = left <= 0 or (self.full and left * 4 < self._half)

    def clear(self) -> None:
        """The queue was dropped with all it held."""
        self.memory.used -= self.used_bytes
        self.jobs = self.spilled = self.used_bytes = 0
        self.full = False
