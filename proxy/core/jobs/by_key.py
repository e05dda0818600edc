"""What there is of each order key of a queue, in memory or spilled. Pure; nothing changes here."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterator, Sequence
from itertools import islice

from proxy.core.jobs.chains import Job, JobChains
from proxy.core.jobs.spilled_chains import SpilledChain, SpilledChains


class JobsByKey:
    """Chains in memory, and behind what of them was read again the spilled ones."""

    def __init__(self, chains: JobChains, spilled: SpilledChains) -> None:
        """Whoever extends it changes both."""
        self._chains = chains
        self._spilled = spilled

    # ---- all keys -------------------------------------------------------------------------------

    @property
    def ready(self) -> int:
        """Jobs that ``poll`` would give now."""
        return self._chains.ready

    def ready_jobs(self) -> Iterator[Job]:
        """Those that ``poll`` would give. O(ready)."""
        return self._chains.ready_jobs()

    @property
    def stale(self) -> Counter[Job]:
        """Entries of ``ready_queues`` that are no ready jobs, as they are at any time."""
        return self._chains.stale

    @property
    def ready_queues(self) -> tuple[Collection[Job], Collection[Job]]:
        """Those in their queues, as they are at any time, and ``stale`` entries."""
        return self._chains.queues

    @property
    def keys(self) -> int:
        """Order keys with unfinished jobs. O(spilled keys)."""
        here, spilled = self._chains.keys, self._spilled.keys
        return len(here) + sum(key not in here for key in spilled)

    @property
    def spilled(self) -> int:
        """Jobs that are not in memory."""
        return self._spilled.waiting

    @property
    def spilled_keys(self) -> Collection[bytes]:
        """Order keys with a spilled chain."""
        return self._spilled.keys

    @property
    def changed_chains(self) -> set[bytes]:
        """Keys of spilled chains that changed in any way, until it is cleared."""
        return self._spilled.changed

    def spilled_chain(self, key: bytes) -> SpilledChain | None:
        """That of *key*."""
        return self._spilled.of(key)

    @property
    def rewritten_chains(self) -> set[bytes]:
        """Keys of chains that changed otherwise than at their ends, until it is cleared."""
        return self._spilled.rewritten

    @property
    def emptied(self) -> set[bytes]:
        """Keys whose last spilled job ended, where somebody looks; it takes them out."""
        return set() if self._spilled.emptied is None else self._spilled.emptied

    def spilled_chains(self) -> Iterator[tuple[bytes, SpilledChain]]:
        """By order key."""
        return iter(self._spilled)

    @property
    def held_keys(self) -> Collection[bytes]:
        """Held keys that have jobs in memory."""
        return self._chains.held_keys

    def take_stirred(self) -> set[bytes]:
        """Held keys whose first job came, or waits for older ones no longer, each told once."""
        stirred, self._chains.stirred = self._chains.stirred, set()
        return stirred

    def heads(self) -> Iterator[Job]:
        """The first unfinished job of each key that has some in memory."""
        return self._chains.heads()

    def all_keys(self) -> list[bytes]:
        """Order keys with unfinished jobs. O(keys)."""
        here = self._chains.keys
        return [*here, *(key for key in self._spilled.keys if key not in here)]

    # ---- one key --------------------------------------------------------------------------------

    def in_memory(self, key: bytes) -> Iterator[Job]:
        """The unfinished jobs of *key* that are in memory, in order: its first ones."""
        return self._chains.jobs(key)

    def knows_key(self, key: bytes) -> bool:
        """True if *key* has an unfinished job, in memory or not."""
        return self._chains.jobs_of(key) > 0 or key in self._spilled.keys

    def unfinished_of(self, key: bytes) -> int:
        """How many unfinished jobs of *key* were read."""
        never_spilled = sum(not job.refilled for job in self._chains.jobs(key))
        return never_spilled + len(self.spilled_offsets(key))

    def lowest_of(self, key: bytes) -> int | None:
        """The lowest offset of an unfinished job of *key* that was read; None without any."""
        here = [job.offset for job in islice(self._chains.jobs(key), 1)]
        return min([*here, *self.spilled_offsets(key)[:1]], default=None)

    def backlog_of(self, key: bytes) -> int:
        """The same, but those that are being read again counted as well. O(1)."""
        return self._chains.jobs_of(key) + self.waiting_of(key)

    def waiting_of(self, key: bytes) -> int:
        """How many unfinished jobs of *key* are not in memory. O(1)."""
        chain = self._spilled.of(key)
        return 0 if chain is None else chain.waiting

    def spilled_offsets(self, key: bytes) -> Sequence[int]:
        """Offsets of the unfinished jobs of *key* that were spilled once."""
        chain = self._spilled.of(key)
        return () if chain is None else chain.offsets[chain.head :]

    def first_stored(self, key: bytes) -> int | None:
        """The first unfinished offset of *key* if none of it is in memory, or being read."""
        chain = self._spilled.of(key)
        if chain is None or self._chains.jobs_of(key) or chain.wanted > chain.loaded:
            return None
        return chain.offsets[chain.head]
