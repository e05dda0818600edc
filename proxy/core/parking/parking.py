"""``on_exhausted: park``: which keys of a queue are parked, and what is to be copied. Pure.

A key that is parked is held: none of its jobs is handed out. Once its ownership record says so,
copies of its jobs are appended to the twin (``twin_pipeline``) in order, and each finishes when its
copy is stored. So the messages of the key stand in the twin, one behind the other, and later ones
join them. When the twin holds none of it any more the key leaves the parked list, in the record
first, and its jobs are handed out again as any other.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from itertools import islice

from proxy.core.jobs.chains import Job
from proxy.core.jobs.changes import Noted
from proxy.core.jobs.jobs import Jobs
from proxy.core.jobs.residency import LONGEST_KEY
from proxy.core.keys.ids import Epoch
from proxy.core.keys.retry_policy import OnExhausted
from proxy.core.leases.lease_book import LeaseBook
from proxy.core.pipeline.effects import Effects
from proxy.core.pipeline.exhausted import DeadLetters
from proxy.core.records.parked_key import FAILURE_POLICY, ParkedKey, plain_text


class Parking:
    """Parks keys whose jobs are given up, where the retry policy says so, and where an operator
    does; dead-letters what cannot be parked.

    Caller: settlement and dispatch, as of any strategy; ``proxy.upstream.parking`` copies.
    Affects: ``parked``, held keys of the chains.
    """

    timed = False

    def __init__(
        self, jobs: Jobs, leases: LeaseBook, parked: Noted[bytes, ParkedKey], epoch: Epoch
    ) -> None:
        """*parked* are the keys in the queue's records, or on their way."""
        self._jobs, self._leases, self._epoch = jobs, leases, epoch
        self._dead_letters = DeadLetters()
        self.under_way = self._dead_letters.under_way
        self._parked = parked
        self.held: Collection[bytes | None] = parked
        self.watched: Collection[bytes | None] = parked
        #: Parked keys that a record lists: their jobs may be copied. Read-only for others.
        self.recorded: set[bytes] = set(parked)
        #: Those that no record lists yet, in the order in which they were parked. Read-only.
        self.unrecorded: dict[bytes, None] = {}
        #: Keys that left the parked list, which no record says yet: they are held still.
        self.leaving: set[bytes] = set()
        #: Why no copies can be stored, in a sentence; "" if they can.
        self.trouble = ""
        self._freed: set[bytes] = set()
        self._held_back_keys: dict[int, bytes] = {}
        jobs.residency.down.keep(parked)
        for key in parked:
            jobs.chains.hold(key)

    # ---- what is given up; caller: settlement, dispatch, pipeline -------------------------------

    def give_up(self, job: Job, effects: Effects) -> None:
        """Park the key of *job*, if the policy says so and it can be, or dead-letter *job*."""
        parks = self._leases.failures.policy.on_exhausted is OnExhausted.PARK
        key = job.key
        if parks and key is not None and (key in self._parked or self.park(key, reason=job.reason)):
            effects.note_parking()
        else:
            self._dead_letters.give_up(job, effects)

    def dead_letter(self, job: Job, effects: Effects) -> None:
        """Have *job*, of which no copy can be stored, dead-lettered instead."""
        self._dead_letters.give_up(job, effects)

    def stored(self, job: Job) -> None:
        """The dead letter of *job* is stored."""
        self._dead_letters.stored(job)

    def failed(self, job: Job) -> None:
        """Nothing: it waits."""

    def freed(self, key: bytes) -> None:
        """More of *key*, which is parked, may be copied now."""
        self._freed.add(key)

    def is_back(self, job: Job) -> None:
        """*job* may be copied now, if its key is parked."""
        if job.key is not None and job.key in self._parked:
            self._freed.add(job.key)

    def held_back_no_more(self, offset: int) -> None:
        """The job there may be copied now, if that was asked for."""
        if (key := self._held_back_keys.pop(offset, None)) is not None:
            self._freed.add(key)

    def on_time(self, now_ns: int) -> None:
        """Nothing."""

    def conclude(self, effects: Effects) -> None:
        """While keys are held they may have to be looked after."""
        if self._jobs.chains.held_keys:
            effects.note_parking()

    # ---- the parked list; caller: ``proxy.upstream.parking``, the operator ----------------------

    def park(self, key: bytes, *, by: str = FAILURE_POLICY, reason: str = "") -> bool:
        """Park *key* from its first unfinished job on, because *by* asks for it; False if it is
        parked already, or has none in memory. What clients have of it they may finish.
        """
        head = self._jobs.by_key.head(key)
        if head is None or key in self._parked or key in self.leaving or len(key) > LONGEST_KEY:
            return False
        by, reason = plain_text(by), plain_text(reason)
        self._list(key, ParkedKey(head.offset, self._epoch, by=by, reason=reason))
        self._jobs.residency.read_back(head)
        return True

    def found(self, keys: Mapping[bytes, ParkedKey]) -> None:
        """*keys* have copies in the twin, and no record is left that lists them; before the first
        message is read.
        """
        for key in [each for each in keys if each not in self._parked]:
            self._list(key, keys[key])

    def _list(self, key: bytes, how: ParkedKey) -> None:
        self._parked[key] = how
        self.unrecorded[key] = None
        self._jobs.chains.hold(key)

    def is_recorded(self, keys: Iterable[bytes]) -> None:
        """A record that lists *keys* as parked is stored."""
        for key in keys:
            self.unrecorded.pop(key, None)
            if key in self._parked:
                self.recorded.add(key)
                self._freed.add(key)

    def leaves(self, keys: Iterable[bytes]) -> None:
        """*keys* leave the list; they are held until ``left``."""
        for key in keys:
            del self._parked[key]
            self.recorded.discard(key)
            self.leaving.add(key)

    def left(self, keys: Iterable[bytes]) -> None:
        """Records of the queue and of its twin say that *keys* are parked no more."""
        for key in keys:
            self.leaving.discard(key)
            self._jobs.chains.release(key)
            self._jobs.unparked([key])

    def failing(self, *, stored_before_ms: float) -> list[bytes]:
        """Keys, not parked, whose first unfinished message was stored before that time, and failed.
        O(keys in memory).
        """
        stored_ms_of = self._jobs.residency.down.stored_ms
        return [
            head.key
            for head in self._jobs.chains.heads()
            if head.key is not None
            and head.key not in self._parked
            and head.offset in self._leases.attempts
            and (stored_ms := stored_ms_of(head)) is not None
            and stored_ms < stored_before_ms
        ]

    # ---- copying; caller: ``proxy.upstream.parking`` --------------------------------------------

    def copying_fails(self, why: str) -> None:
        """No copies can be stored, for the reason *why*; "": they can."""
        self.trouble = why

    def keys_to_copy(self) -> list[bytes]:
        """Keys of which ``to_copy`` may have something that it had not before, each told once."""
        keys, self._freed = self._freed | self._jobs.chains.take_stirred(), set()
        return sorted(keys)

    def look_again(self, keys: Iterable[bytes]) -> None:
        """Tell of *keys* once more: nothing became of their copies."""
        self._freed.update(keys)

    def to_copy(self, key: bytes, *, jobs: int, body_bytes: int) -> list[Job]:
        """The next jobs of *key* to be copied, in order: at least one if there is one, *jobs* at
        most; none while a client has the first, or it is being dead-lettered.
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
                break  # ``is_back`` tells of it
            run.append(job)
        return run

    def is_given_up(self, job: Job) -> bool:
        """True while a dead letter of *job* is on its way."""
        return job.offset in self.under_way

    @property
    def uncopied(self) -> int:
        """Jobs of held keys that have no copy yet. O(their jobs in memory)."""
        jobs = self._jobs
        return sum(jobs.by_key.unfinished(key) for key in jobs.chains.held_keys)
