"""``on_exhausted: park``: the parked keys of a queue, and the jobs to copy. Pure.

A parked key is held: none of its jobs is delivered. Once it is in the ownership records, copies of
its jobs are appended to the twin (``twin_pipeline``) in order, and each job finishes when its copy
is stored. So the messages of the key are in the twin in order, and later ones join them. When the
twin has none of them left, the key leaves the parked list, first in the records, and its jobs are
delivered as usual.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from itertools import islice

from proxy.core.jobs.chains import Job
from proxy.core.jobs.jobs import Jobs
from proxy.core.jobs.residency import LONGEST_KEY
from proxy.core.jobs.tracked_dict import TrackedDict
from proxy.core.keys.ids import Epoch
from proxy.core.keys.retry_policy import OnExhausted
from proxy.core.leases.lease_book import LeaseBook
from proxy.core.pipeline.effects import Effects
from proxy.core.pipeline.exhausted import DeadLetters
from proxy.core.records.parked_key import FAILURE_POLICY, ParkedKey, plain_text


class Parking:
    """Parks keys whose jobs are given up, if the retry policy says so, and keys that an operator
    parks; dead-letters jobs that cannot be parked.

    Caller: settlement and dispatch, as of any strategy; ``proxy.upstream.parking`` copies. Affects:
    ``parked``, held keys of the chains.
    """

    timed = False

    def __init__(
        self, jobs: Jobs, leases: LeaseBook, parked: TrackedDict[bytes, ParkedKey], epoch: Epoch
    ) -> None:
        """*parked*: the keys in the queue's records, or on their way there."""
        self._jobs, self._leases, self._epoch = jobs, leases, epoch
        self._dead_letters = DeadLetters()
        self.under_way = self._dead_letters.under_way
        self._parked = parked
        self.held: Collection[bytes | None] = parked
        self.watched: Collection[bytes | None] = parked
        #: Parked keys in the records: their jobs may be copied. Read-only for others.
        self.recorded: set[bytes] = set(parked)
        #: Parked keys not yet in the records, in the order of parking. Read-only.
        self.unrecorded: dict[bytes, None] = {}
        #: Keys removed from the parked list, but not yet from the records: they are still held.
        self.leaving: set[bytes] = set()
        #: Reason why copies cannot be stored, in a sentence; "" if they can.
        self.trouble = ""
        self._freed: set[bytes] = set()
        self._held_back_keys: dict[int, bytes] = {}
        jobs.residency.unloaded.keep(parked)
        for key in parked:
            jobs.chains.hold(key)

    # ---- jobs given up; caller: settlement, dispatch, pipeline ----------------------------------

    def give_up(self, job: Job, effects: Effects) -> None:
        """Park the key of *job* if the policy says so and it is possible, or dead-letter *job*."""
        parks = self._leases.failures.policy.on_exhausted is OnExhausted.PARK
        key = job.key
        if parks and key is not None and (key in self._parked or self.park(key, reason=job.reason)):
            effects.note_parking()
        else:
            self._dead_letters.give_up(job, effects)

    def dead_letter(self, job: Job, effects: Effects) -> None:
        """Dead-letter *job*, because no copy of it can be stored."""
        self._dead_letters.give_up(job, effects)

    def stored(self, job: Job) -> None:
        """Note that the dead letter of *job* is stored."""
        self._dead_letters.stored(job)

    def failed(self, job: Job) -> None:
        """Do nothing: the job waits."""

    def freed(self, key: bytes) -> None:
        """Note that more jobs of the parked *key* may be copied now."""
        self._freed.add(key)

    def is_back(self, job: Job) -> None:
        """Note that *job* may be copied now, if its key is parked."""
        if job.key is not None and job.key in self._parked:
            self._freed.add(job.key)

    def held_back_no_more(self, offset: int) -> None:
        """Note that the job at *offset* may be copied now, if requested before."""
        if (key := self._held_back_keys.pop(offset, None)) is not None:
            self._freed.add(key)

    def on_time(self, now_ns: int) -> None:
        """Do nothing."""

    def conclude(self, effects: Effects) -> None:
        """Note that held keys may need attention."""
        if self._jobs.chains.held_keys:
            effects.note_parking()

    # ---- the parked list; caller: ``proxy.upstream.parking``, the operator ----------------------

    def park(self, key: bytes, *, by: str = FAILURE_POLICY, reason: str = "") -> bool:
        """Park *key* from its first unfinished job on, as requested by *by*. Return False if it is
        parked already, or has no job in memory. Clients may finish the jobs that they hold.
        """
        head = self._jobs.by_key.head(key)
        if head is None or key in self._parked or key in self.leaving or len(key) > LONGEST_KEY:
            return False
        by, reason = plain_text(by), plain_text(reason)
        self._list(key, ParkedKey(head.offset, self._epoch, by=by, reason=reason))
        self._jobs.residency.read_back(head)
        return True

    def found(self, keys: Mapping[bytes, ParkedKey]) -> None:
        """Park *keys*, which have copies in the twin but no records. Call before the first message
        is read.
        """
        for key in [each for each in keys if each not in self._parked]:
            self._list(key, keys[key])

    def _list(self, key: bytes, how: ParkedKey) -> None:
        self._parked[key] = how
        self.unrecorded[key] = None
        self._jobs.chains.hold(key)

    def is_recorded(self, keys: Iterable[bytes]) -> None:
        """Note that a stored record lists *keys* as parked."""
        for key in keys:
            self.unrecorded.pop(key, None)
            if key in self._parked:
                self.recorded.add(key)
                self._freed.add(key)

    def leaves(self, keys: Iterable[bytes]) -> None:
        """Remove *keys* from the parked list; they stay held until ``left``."""
        for key in keys:
            del self._parked[key]
            self.recorded.discard(key)
            self.leaving.add(key)

    def left(self, keys: Iterable[bytes]) -> None:
        """Release *keys*, which the records of queue and twin no longer list as parked."""
        for key in keys:
            self.leaving.discard(key)
            self._jobs.chains.release(key)
            self._jobs.unparked([key])

    def failing(self, *, stored_before_ms: float) -> list[bytes]:
        """Return keys, not parked, whose first unfinished message failed and was stored before that
        time. A fresh retry begins without failures. O(keys in memory).
        """
        stored_ms_of = self._jobs.residency.unloaded.stored_ms
        return [
            head.key
            for head in self._jobs.chains.heads()
            if head.key is not None
            and head.key not in self._parked
            and self._leases.attempts.get(head.offset)
            and (stored_ms := stored_ms_of(head)) is not None
            and stored_ms < stored_before_ms
        ]

    # ---- copying; caller: ``proxy.upstream.parking`` --------------------------------------------

    def copying_fails(self, why: str) -> None:
        """Note the reason *why* copies cannot be stored; "" if they can."""
        self.trouble = why

    def keys_to_copy(self) -> list[bytes]:
        """Return keys for which ``to_copy`` may have new jobs, each once per change."""
        keys, self._freed = self._freed | self._jobs.chains.take_woken(), set()
        return sorted(keys)

    def look_again(self, keys: Iterable[bytes]) -> None:
        """Return *keys* from ``keys_to_copy`` again, because copying failed."""
        self._freed.update(keys)

    def to_copy(self, key: bytes, *, jobs: int, body_bytes: int) -> list[Job]:
        """Return the next jobs of *key* to copy, in order: at least one if any, at most *jobs*;
        none while a client has the first, or it is being dead-lettered.
        """
        run: list[Job] = []
        if key not in self.recorded:
            return run
        for job in islice(self._jobs.by_key.in_memory(key), jobs):
            body_bytes -= job.body_bytes
            if job.offset in self._leases.held_back.numbers:
                self._held_back_keys[job.offset] = key
            is_out = self._leases.may_be_out(job.offset) or self.is_given_up(job)
            if is_out or self._jobs.waits(job) or (run and body_bytes < 0):
                break
            if self._jobs.residency.read_back(job):
                break  # ``is_back`` follows
            run.append(job)
        return run

    def is_given_up(self, job: Job) -> bool:
        """Return True while a dead letter of *job* is being stored."""
        return job.offset in self.under_way

    @property
    def uncopied(self) -> int:
        """Number of jobs of held keys without a copy. O(their jobs in memory)."""
        jobs = self._jobs
        return sum(jobs.by_key.unfinished(key) for key in jobs.chains.held_keys)
