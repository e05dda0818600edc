"""How much a queue may hold in memory, and when reading it pauses. Pure.

All unfinished jobs count, chained ones too: back-pressure on the ready ones alone lets the chains
of a blocked key grow without bound.

Up to half of its jobs, and of the memory of all queues, the window fills whoever wants them. Beyond
that a queue is read on only for the sake of waiting clients: what they could have lies behind jobs
that nobody can have now. Then long chains are spilled (``spilled_chains``), of this queue or
(``memory_relief``) of all, so that the rest is left for others.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from proxy.core.jobs.memory_relief import Relief
from proxy.core.jobs.spilled_chains import OFFSET_BYTES

#: A long chain may have so many jobs in memory, whatever its settings say, while all such chains
#: take no more than one part in so many of the window, and of the memory that is left. They go out
#: in long runs, and are read again many at a time.
_MOST_OF_A_KEY, _PARTS = 512, 4
#: With less than one part in so many of the memory left, long chains of all queues are spilled.
_SCARCE_PARTS = 4
#: Nothing is read into less than one part in so many of the memory: no reads of one.
_WORTH_A_READ = 16
#: So many messages are read for a queue that has nothing to offer while memory is full.
_FEW = 32


@dataclass(slots=True)
class Budget:
    """A limit that several queues share: bytes of a process, live leases of a group. ``relief``
    knows the queues that hold what is used, if they can give some of it back.
    """

    limit: int
    used: int = 0
    relief: Relief = field(default_factory=Relief)

    @property
    def left(self) -> int:
        """What may still be taken; never negative."""
        return max(0, self.limit - self.used)

    def take(self, amount: int) -> None:
        """Use *amount* more, beyond the limit if need be."""
        self.used += amount

    def give_back(self, amount: int) -> None:
        """Use *amount* less."""
        self.used -= amount

    def clear(self) -> None:
        """Give everything back."""
        self.used = 0

    @property
    def pressed(self) -> bool:
        """True beyond the half that whoever wants it may take."""
        return self.used * 2 >= self.limit

    def relieve(self) -> None:
        """With little left, have the longest chains of all queues spilled, down to half of the
        limit if that is possible.
        """
        if self.left * _SCARCE_PARTS < self.limit:
            self.relief.relieve(self.used - self.limit // 2)

    def resize(self, limit: int) -> None:
        """Allow *limit* from now on; what is used beyond it stays used."""
        self.limit = limit


@dataclass(slots=True)
class FlowWindow:
    """The window of one queue. ``jobs`` are in memory, ``spilled`` ones are not; ``used_bytes`` (of
    jobs, and of spilled offsets) is what both hold. ``memory`` counts the whole process.
    """

    max_jobs: int
    memory: Budget
    jobs: int = 0
    spilled: int = 0
    used_bytes: int = 0
    kept_bytes: int = 0  # of these: what is kept of jobs that are set down
    _half: int = 0
    full: bool = False
    """Once full, reading waits for a quarter of it: no reads of one. Never ``pressed`` without."""

    def __post_init__(self) -> None:
        self.change_limit(self.max_jobs)

    def room(self, *, demand: bool) -> int:
        """How many more messages may be read now; *demand*: clients wait for want of ready jobs.

        An empty window always has room, or queues that hold nothing would wait for others' memory.
        """
        if demand:
            room = max(0, self.max_jobs - self.jobs)
        else:
            room = 0 if self.full else max(0, self._half - self.jobs - self.spilled)
        return min(room, self._room_in_memory(demand=demand)) if self.jobs else room

    @property
    def short_of_memory(self) -> bool:
        """True if it is memory for want of which nothing is read, whoever waits."""
        return bool(self.jobs) and not self._room_in_memory(demand=True)

    def _room_in_memory(self, *, demand: bool) -> int:
        memory = self.memory
        free = (memory.limit if demand else memory.limit // 2) - memory.used
        if free <= 0 or free * _WORTH_A_READ < memory.limit:
            return 0
        return max(1, free // max(1, self.job_bytes))

    def few(self) -> int:
        """How many messages are read while memory is full, for a queue that has nothing to offer:
        most of them may be spilled at once, so they are no more than fit into a part of it.
        """
        fit = self.memory.limit // _SCARCE_PARTS // max(1, self.job_bytes)
        return max(1, min(_FEW, fit, self.max_jobs - self.jobs))

    @property
    def pressed(self) -> bool:
        """True beyond the half that fills whoever wants it: long chains have to be spilled."""
        return self.jobs + self.spilled >= self._half

    @property
    def job_bytes(self) -> int:
        """What a job in memory takes, on average; 0 without any."""
        beside = OFFSET_BYTES * self.spilled + self.kept_bytes
        return (self.used_bytes - beside) // max(1, self.jobs)

    def most_of_a_key(self, chains: int, *, least: int) -> int:
        """How many jobs each of so many *chains* may have in memory, once the window is pressed:
        *least*, or more if all of them together are few. None takes more than a part of this
        queue's memory, nor all of them together once memory is pressed, but each has one job.
        """
        memory, job_bytes, chains = self.memory, max(1, self.job_bytes), max(1, chains)
        roomy = min(self.max_jobs, memory.left // job_bytes)
        most = max(least, min(_MOST_OF_A_KEY, roomy // _PARTS // chains))
        queues = max(1, len(memory.relief.holders))
        fit = memory.limit // _PARTS // queues // job_bytes
        return max(1, min(most, fit // chains if memory.pressed else fit))

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

    def admit(self, held_bytes: int) -> None:
        """A job entered memory."""
        self.jobs += 1
        self.used_bytes += held_bytes
        self.memory.used += held_bytes
        if self.jobs + self.spilled >= self._half:
            self.full = True

    def leave(self, held_bytes: int, *, jobs: int = 1) -> None:
        """So many *jobs*, of so many bytes together, left memory."""
        self.jobs -= jobs
        self.used_bytes -= held_bytes
        self.memory.used -= held_bytes
        if self.full:
            self._look()

    def keep(self, kept_bytes: int) -> None:
        """So many bytes more (or, negative, fewer) are kept of jobs that are set down."""
        self.kept_bytes += kept_bytes
        self.used_bytes += kept_bytes
        self.memory.used += kept_bytes

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
        self.jobs = self.spilled = self.used_bytes = self.kept_bytes = 0
        self.full = False
