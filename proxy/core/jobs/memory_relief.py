"""Relief of the memory shared by all queues: the longest chains are spilled. Pure.

The owner of a chain does not matter: a stuck key in one queue must not stop another queue, topic or
group of the process. All chains are cut to the same number of bytes, and keep at least their first
job, so the longest ones free most. If that is not enough, first jobs that cannot be delivered now
are unloaded (``unloaded.py``).
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Protocol

#: All chains are examined again once arrivals reach this part (1/n) of the jobs held.
_WORTH_A_LOOK = 16


class Holder(Protocol):
    """Holds memory in chains of jobs."""

    @property
    def held_jobs(self) -> int:
        """Number of jobs in memory."""

    def tails(self) -> Iterable[tuple[int, bytes]]:
        """Yield the spillable bytes of each chain, and its key. O(jobs)."""

    def spill_beyond(self, key: bytes, tail_bytes: int) -> None:
        """Spill the chain of *key* beyond *tail_bytes*."""

    def unload(self, wanted_bytes: int) -> int:
        """Unload first jobs for *wanted_bytes*, as far as possible; return the freed bytes."""


@dataclass(slots=True, eq=False)
class Relief:
    """The queues that share a memory budget."""

    holders: dict[Holder, None] = field(default_factory=dict)
    _arrivals: int = 0
    _looked_at: int | None = None  # ``_arrivals`` at the last examination

    def note_arrivals(self, jobs: int) -> None:
        """Count *jobs* that entered memory, or were skipped for lack of it."""
        self._arrivals += jobs

    def relieve(self, wanted_bytes: int) -> None:
        """Free *wanted_bytes* if possible: spill the longest chains, then unload first jobs."""
        if wanted_bytes <= 0:
            return
        wanted_bytes -= self._cut(wanted_bytes)
        for holder in self.holders:
            if wanted_bytes <= 0:
                return
            wanted_bytes -= holder.unload(wanted_bytes)

    def _cut(self, wanted_bytes: int) -> int:
        """Spill about *wanted_bytes* of the longest chains; return the freed bytes. Does nothing if
        few jobs arrived since the last examination, which is O(jobs held).
        """
        held = sum(holder.held_jobs for holder in self.holders)
        if (
            self._looked_at is not None
            and self._arrivals - self._looked_at <= held // _WORTH_A_LOOK
        ):
            return 0
        self._looked_at = self._arrivals
        tails = [(size, key, holder) for holder in self.holders for size, key in holder.tails()]
        level = _level([size for size, _, _ in tails], wanted_bytes)
        for size, key, holder in tails:
            if size > level:
                holder.spill_beyond(key, level)
        return sum(size - level for size, _, _ in tails if size > level)


def _level(sizes: list[int], wanted: int) -> int:
    """Return the level to which cutting *sizes* frees *wanted*; 0 if they are too small."""
    sizes.sort(reverse=True)
    above = 0
    for count, size in enumerate(sizes, 1):
        above += size
        following = sizes[count] if count < len(sizes) else 0
        if above - count * following >= wanted:
            return (above - wanted) // count
    return 0
