"""Relief of the memory shared by all queues: the longest chains are spilled. Pure.

The owner of a chain does not matter: a stuck key in one queue must not stop another queue, topic or
group of the process. All chains are cut to the same number of bytes, and keep at least their first
job, so the longest ones free most. If that is not enough, first jobs that cannot be delivered now
are unloaded (``unloaded.py``).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
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
    #: Called with a bug of one holder, so that it does not hit the queue that needs memory; None:
    #: the bug is raised.
    on_bug: Callable[[Exception], None] | None = None
    _arrivals: int = 0
    _looked_at: int | None = None  # ``_arrivals`` at the last examination
    _held: int = 0  # jobs held then
    # Since an attempt that freed too little: whether more jobs may be unloaded, and calls.
    _falls_short: bool = False
    _has_news: bool = True
    _calls: int = 0

    def note_arrivals(self, jobs: int) -> None:
        """Count *jobs* that entered memory, or were skipped for lack of it."""
        self._arrivals += jobs

    def note_waiting(self) -> None:
        """Note a first job that cannot be delivered now and may be unloaded."""
        self._has_news = True

    def relieve(self, wanted_bytes: int) -> None:
        """Free *wanted_bytes* if possible: spill the longest chains, then unload first jobs.

        Each queue without room calls it, and it is O(queues). So after an attempt that freed too
        little, the next one is made once there are news, or after as many calls as queues.
        """
        if wanted_bytes <= 0:
            return
        self._calls += 1
        if self._falls_short and not (
            self._has_news or self._is_worth_a_look(self._held) or self._calls >= len(self.holders)
        ):
            return
        self._has_news, self._calls = False, 0
        wanted_bytes -= self._cut(wanted_bytes)
        for holder in self.holders:
            if wanted_bytes <= 0:
                break
            try:
                wanted_bytes -= holder.unload(wanted_bytes)
            except Exception as bug:
                self._report(bug)
        self._falls_short = wanted_bytes > 0

    def _cut(self, wanted_bytes: int) -> int:
        """Spill about *wanted_bytes* of the longest chains; return the freed bytes. Does nothing if
        few jobs arrived since the last examination, which is O(jobs held).
        """
        self._held = sum(holder.held_jobs for holder in self.holders)
        if not self._is_worth_a_look(self._held):
            return 0
        self._looked_at = self._arrivals
        tails: list[tuple[int, bytes, Holder]] = []
        for holder in self.holders:
            try:
                tails += [(size, key, holder) for size, key in holder.tails()]
            except Exception as bug:
                self._report(bug)
        level = _level([size for size, _, _ in tails], wanted_bytes)
        freed = 0
        for size, key, holder in tails:
            if size > level:
                try:
                    holder.spill_beyond(key, level)
                except Exception as bug:
                    self._report(bug)
                else:
                    freed += size - level
        return freed

    def _report(self, bug: Exception) -> None:
        if self.on_bug is None:
            raise bug
        self.on_bug(bug)

    def _is_worth_a_look(self, held: int) -> bool:
        """Return whether enough jobs arrived since the last examination, with *held* in memory."""
        since = self._looked_at
        return since is None or self._arrivals - since > held // _WORTH_A_LOOK


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
