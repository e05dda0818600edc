"""Memory of a queue, and when its reading pauses. Pure.

All unfinished jobs count, including chained ones: if only ready jobs counted, the chains of a
blocked key would grow without limit.

Half of the window, in jobs and in shared memory, is filled without demand. Beyond that, a queue is
read only for waiting clients, whose messages lie behind jobs that cannot be delivered now. Then
long chains are spilled, of this queue (``spilled_chains``) or of all (``memory_relief``), so that
the rest is left for others.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from proxy.core.jobs.memory_relief import Relief
from proxy.core.jobs.spilled_chains import OFFSET_BYTES

#: Most jobs in memory of a long chain, regardless of its settings, as long as all such chains use
#: at most one part (1/n) of the window and of the free memory. They are delivered in long runs and
#: read again many at a time.
_MOST_OF_A_KEY, _PARTS = 512, 4
#: Long chains of all queues are spilled once the free memory is below this part (1/n).
_SCARCE_PARTS = 4
#: Nothing is read while the free memory is below this part (1/n), to avoid reads of one message.
_WORTH_A_READ = 16
#: Number of messages read for a queue without ready jobs while memory is full.
_FEW = 32


@dataclass(slots=True)
class Budget:
    """A limit shared by several queues: bytes of a process, live leases of a group. ``relief``
    lists the queues that can give memory back.
    """

    limit: int
    used: int = 0
    relief: Relief = field(default_factory=Relief)

    @property
    def left(self) -> int:
        """Amount that is still free; never negative."""
        return max(0, self.limit - self.used)

    def take(self, amount: int) -> None:
        """Use *amount* more, even beyond the limit."""
        self.used += amount

    def give_back(self, amount: int) -> None:
        """Use *amount* less."""
        self.used -= amount

    def clear(self) -> None:
        """Give everything back."""
        self.used = 0

    @property
    def pressed(self) -> bool:
        """True if more than half is used: the rest needs demand."""
        return self.used * 2 >= self.limit

    def relieve(self) -> None:
        """If little is left, spill the longest chains of all queues, down to half of the limit if
        possible.
        """
        if self.left * _SCARCE_PARTS < self.limit:
            self.relief.relieve(self.used - self.limit // 2)

    def resize(self, limit: int) -> None:
        """Change the limit; usage beyond it stays."""
        self.limit = limit


@dataclass(slots=True)
class FlowWindow:
    """The window of one queue. ``jobs`` are in memory, ``spilled`` ones are not; ``used_bytes``
    counts both (spilled offsets have a size, too). ``memory`` counts the whole process.
    """

    max_jobs: int
    memory: Budget
    jobs: int = 0
    spilled: int = 0
    used_bytes: int = 0
    kept_bytes: int = 0  # of these: bytes kept of unloaded jobs
    _half: int = 0
    full: bool = False
    """Once full, reading waits until a quarter is free, to avoid single reads. Set if ``pressed``.
    """

    def __post_init__(self) -> None:
        self.change_limit(self.max_jobs)

    def room(self, *, demand: bool) -> int:
        """Return how many more messages may be read now. *demand*: clients wait for ready jobs.

        An empty window always has room; otherwise empty queues would wait for the memory of others.
        """
        if demand:
            room = max(0, self.max_jobs - self.jobs)
        else:
            room = 0 if self.full else max(0, self._half - self.jobs - self.spilled)
        return min(room, self._room_in_memory(demand=demand)) if self.jobs else room

    @property
    def short_of_memory(self) -> bool:
        """True if lack of memory prevents reading even with demand."""
        return bool(self.jobs) and not self._room_in_memory(demand=True)

    def _room_in_memory(self, *, demand: bool) -> int:
        memory = self.memory
        free = (memory.limit if demand else memory.limit // 2) - memory.used
        if free <= 0 or free * _WORTH_A_READ < memory.limit:
            return 0
        return max(1, free // max(1, self.job_bytes))

    def few(self) -> int:
        """Return how many messages to read for a queue without ready jobs while memory is full.
        Most may be spilled at once, so they are limited to a part of the memory.
        """
        fit = self.memory.limit // _SCARCE_PARTS // max(1, self.job_bytes)
        return max(1, min(_FEW, fit, self.max_jobs - self.jobs))

    @property
    def pressed(self) -> bool:
        """True if more than half is used: long chains must be spilled."""
        return self.jobs + self.spilled >= self._half

    @property
    def job_bytes(self) -> int:
        """Average bytes of a job in memory; 0 without any."""
        beside = OFFSET_BYTES * self.spilled + self.kept_bytes
        return (self.used_bytes - beside) // max(1, self.jobs)

    def most_of_a_key(self, chains: int, *, least: int) -> int:
        """Return how many jobs each of *chains* chains may have in memory once the window is
        pressed:
        *least*, or more if the total stays small. No chain gets more than a part of this queue's
        memory, nor do all together once memory is pressed, but each keeps one job.
        """
        memory, job_bytes, chains = self.memory, max(1, self.job_bytes), max(1, chains)
        roomy = min(self.max_jobs, memory.left // job_bytes)
        most = max(least, min(_MOST_OF_A_KEY, roomy // _PARTS // chains))
        queues = max(1, len(memory.relief.holders))
        fit = memory.limit // _PARTS // queues // job_bytes
        return max(1, min(most, fit // chains if memory.pressed else fit))

    def share(self, chains: int, *, most: int) -> int:
        """Return *most*, limited so that *chains* chains use at most half of the window."""
        return min(most, max(1, self.max_jobs // 2 // max(1, chains)))

    def largest_share(self, chains: int, *, least: int) -> int:
        """Return an upper bound of ``share`` of ``most_of_a_key`` for any amount of free memory;
        *chains* is at least 1.
        """
        most = self.max_jobs // (_PARTS * chains)  # min() and max() would dominate the cost
        if most > _MOST_OF_A_KEY:
            most = _MOST_OF_A_KEY
        if most < least:
            most = least
        share = self.max_jobs // (2 * chains)
        return most if most < share else share or 1

    def change_limit(self, max_jobs: int) -> None:
        """Set *max_jobs*; if more are in memory, nothing is read until they have left."""
        self.max_jobs = max_jobs
        self._half = -(-max_jobs // 2)
        self._look()

    @property
    def until_full(self) -> int:
        """Number of jobs that may enter memory until the window is ``full``."""
        return 0 if self.full else self._half - self.jobs - self.spilled

    def admit(self, held_bytes: int, *, jobs: int = 1) -> None:
        """Count *jobs* with *held_bytes* in total that entered memory."""
        self.jobs += jobs
        self.used_bytes += held_bytes
        self.memory.used += held_bytes
        if self.jobs + self.spilled >= self._half:
            self.full = True

    def leave(self, held_bytes: int, *, jobs: int = 1) -> None:
        """Count *jobs* with *held_bytes* in total that left memory."""
        self.jobs -= jobs
        self.used_bytes -= held_bytes
        self.memory.used -= held_bytes
        if self.full:
            self._look()

    def keep(self, kept_bytes: int) -> None:
        """Count *kept_bytes* more (or, negative, fewer) kept of unloaded jobs."""
        self.kept_bytes += kept_bytes
        self.used_bytes += kept_bytes
        self.memory.used += kept_bytes

    def spill(self, jobs: int) -> None:
        """Count *jobs* more (or, negative, fewer) spilled jobs."""
        self.spilled += jobs
        self.used_bytes += jobs * OFFSET_BYTES
        self.memory.used += jobs * OFFSET_BYTES
        self._look()

    def _look(self) -> None:
        left = self._half - self.jobs - self.spilled
        self.full = left <= 0 or (self.full and left * 4 < self._half)

    def clear(self) -> None:
        """Give back all memory, because the queue was dropped."""
        self.memory.used -= self.used_bytes
        self.jobs = self.spilled = self.used_bytes = self.kept_bytes = 0
        self.full = False
