"""Read-only view of a queue's jobs by order key, in memory and spilled. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import islice

from proxy.core.jobs.chains import Job, JobChains
from proxy.core.jobs.spilled_chains import SpilledChains


class JobsByKey:
    """A view of the chains in memory and of the spilled chains, which follow them.

    Caller: parking, operator actions, views of keys. Affects: nothing.
    """

    def __init__(self, chains: JobChains, spilled: SpilledChains) -> None:
        self._chains = chains
        self._spilled = spilled

    # ---- all keys -------------------------------------------------------------------------------

    def __len__(self) -> int:
        """Return the number of order keys with unfinished jobs. O(spilled keys)."""
        here, spilled = self._chains.keys, self._spilled.keys
        return len(here) + sum(key not in here for key in spilled)

    def __iter__(self) -> Iterator[bytes]:
        """Iterate over order keys with unfinished jobs."""
        here = self._chains.keys
        yield from here
        yield from (key for key in self._spilled.keys if key not in here)

    # ---- one key --------------------------------------------------------------------------------

    def __contains__(self, key: bytes) -> bool:
        """Return True if *key* has an unfinished job, in memory or not."""
        return self._chains.jobs_of(key) > 0 or key in self._spilled.keys

    def in_memory(self, key: bytes) -> Iterator[Job]:
        """Return the unfinished jobs of *key* that are in memory, in order: its first ones."""
        return self._chains.jobs(key)

    def head(self, key: bytes) -> Job | None:
        """Return the first job of *key* in memory; None if there is none."""
        return next(self._chains.jobs(key), None)

    def unfinished(self, key: bytes) -> int:
        """Return the number of unfinished jobs of *key* that were read."""
        never_spilled = sum(not job.refilled for job in self._chains.jobs(key))
        return never_spilled + len(self.spilled_offsets(key))

    def lowest(self, key: bytes) -> int | None:
        """Return the lowest unfinished offset of *key* that was read; None without any."""
        here = [job.offset for job in islice(self._chains.jobs(key), 1)]
        return min([*here, *self.spilled_offsets(key)[:1]], default=None)

    def backlog(self, key: bytes) -> int:
        """Return the number of unfinished jobs of *key*, including those being read again. O(1)."""
        return self._chains.jobs_of(key) + self.waiting(key)

    def waiting(self, key: bytes) -> int:
        """Return the number of unfinished jobs of *key* that are not in memory. O(1)."""
        chain = self._spilled.of(key)
        return 0 if chain is None else chain.waiting

    def spilled_offsets(self, key: bytes) -> Sequence[int]:
        """Return the offsets of the unfinished jobs of *key* that were ever spilled."""
        chain = self._spilled.of(key)
        return () if chain is None else chain.offsets[chain.head :]

    def first_stored(self, key: bytes) -> int | None:
        """Return the first unfinished offset of *key* if no job of it is in memory or being read,
        as for parked copies; None otherwise.
        """
        chain = self._spilled.of(key)
        if chain is None or self._chains.jobs_of(key) or chain.wanted > chain.loaded:
            return None
        return chain.offsets[chain.head]
