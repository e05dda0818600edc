"""Memory that queues share runs short: the longest chains of all of them are spilled. Pure.

Whose chains these are does not matter: a key that is stuck in one queue must not stop another
queue, topic or group of the process. Each chain keeps as many bytes as any other may, and at least
its first job, so the longest ones give most. Where that is not enough the first jobs that nobody
can have now are set down (``set_down``).
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Protocol

#: All chains are looked through once more when this part of what they held has come since.
_WORTH_A_LOOK = 16


class Holder(Protocol):
    """Whoever holds memory in chains of jobs."""

    @property
    def held_jobs(self) -> int:
        """Jobs in memory."""

    def tails(self) -> Iterable[tuple[int, bytes]]:
        """The bytes of each chain that could be spilled, and its key. O(jobs)."""

    def spill_beyond(self, key: bytes, tail_bytes: int) -> None:
        """Leave the chain of *key* so many of these bytes at most."""

    def set_down(self, wanted_bytes: int) -> int:
        """Set first jobs down for so many bytes, or what there is; returns how many it were."""


@dataclass(slots=True, eq=False)
class Relief:
    """The queues that hold a budget."""

    holders: dict[Holder, None] = field(default_factory=dict)
    _arrivals: int = 0
    _looked_at: int | None = None  # ``_arrivals`` then

    def note_arrivals(self, jobs: int) -> None:
        """Count *jobs* that came into memory, or passed by for want of it."""
        self._arrivals += jobs

    def relieve(self, wanted_bytes: int) -> None:
        """Spill so many bytes of the longest chains, then of first jobs, or what there is."""
        if wanted_bytes <= 0:
            return
        wanted_bytes -= self._cut(wanted_bytes)
        for holder in self.holders:
            if wanted_bytes <= 0:
                return
            wanted_bytes -= holder.set_down(wanted_bytes)

    def _cut(self, wanted_bytes: int) -> int:
        """Spill so many bytes of the longest chains; returns how many it were, about. Nothing, if
        all of them were looked through and not much has come since: a look costs as much as all
        that is held.
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
    """The height to which *sizes* are cut for the *wanted* sum; 0 if all of them are less."""
    sizes.sort(reverse=True)
    above = 0
    for count, size in enumerate(sizes, 1):
        above += size
        following = sizes[count] if count < len(sizes) else 0
        if above - count * following >= wanted:
            return (above - wanted) // count
    return 0
