"""What there is of each order key of a queue, in memory or spilled. Pure; nothing changes here."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import islice

from proxy.core.jobs.chains import Job, JobChains
from proxy.core.jobs.spilled_chains import SpilledChains


class JobsByKey:
    """A view of the chains in memory, and of the spilled ones, which follow behind.

    Caller: parking, operator actions, views of keys. Affects: nothing.
    """

    def __init__(self, chains: JobChains, spilled: SpilledChains) -> None:
        """Both are changed by others."""
        self._chains = chains
        self._spilled = spilled

    # ---- all keys -------------------------------------------------------------------------------

    def __len__(self) -> int:
        """Order keys with unfinished jobs. O(spilled keys)."""
        here, spilled = self._chains.keys, self._spilled.keys
        return len(here) + sum(key not in here for key in spilled)

    def __iter__(self) -> Iterator[bytes]:
        """These keys."""
        here = self._chains.keys
        yield from here
        yield from (key for key in self._spilled.keys if key not in here)

    # ---- one key --------------------------------------------------------------------------------

    def __contains__(self, key: bytes) -> bool:
        """True if *key* has an unfinished job, in memory or not."""
        return self._chains.jobs_of(key) > 0 or key in self._spilled.keys

    def in_memory(self, key: bytes) -> Iterator[Job]:
        """The unfinished jobs of *key* that are in memory, in order: its first ones."""
        return self._chains.jobs(key)

    def head(self, key: bytes) -> Job | None:
        """The first of them; None if there is none."""
        return next(self._chains.jobs(key), None)

    def unfinished(self, key: bytes) -> int:
        """How many unfinished jobs of *key* were read."""
        never_spilled = sum(not job.refilled for job in self._chains.jobs(key))
        return never_spilled + len(self.spilled_offsets(key))

    def lowest(self, key: bytes) -> int | None:
        """The lowest offset of an unfinished job of *key* that was read; None without any."""
        here = [job.offset for job in islice(self._chains.jobs(key), 1)]
        return min([*here, *self.spilled_offsets(key)[:1]], default=None)

    def backlog(self, key: bytes) -> int:
        """How many jobs of *key* are unfinished, those included that are being read again. O(1)."""
        return self._chains.jobs_of(key) + self.waiting(key)

    def waiting(self, key: bytes) -> int:
        """How many unfinished jobs of *key* are not in memory. O(1)."""
        chain = self._spilled.of(key)
        return 0 if chain is None else chain.waiting

    def spilled_offsets(self, key: bytes) -> Sequence[int]:
        """Offsets of the unfinished jobs of *key* that were spilled once."""
        chain = self._spilled.of(key)
        return () if chain is None else chain.offsets[chain.head :]

    def first_stored(self, key: bytes) -> int | None:
        """The first unfinished offset of *key* if none of it is in memory, or being read: so it is
        with parked copies. None otherwise.
        """
        chain = self._spilled.of(key)
        if chain is None or self._chains.jobs_of(key) or chain.wanted > chain.loaded:
            return None
        return chain.offsets[chain.head]
