"""Parked keys: the pipeline of a queue that can park them. Pure.

A key that is parked is held: none of its jobs is handed out. Once its ownership record says so,
copies of its jobs are appended to the twin (``twin_pipeline``) in order, and each finishes when its
copy is stored. So the messages of the key stand in the twin, one behind the other, and later ones
join them. When the twin holds none of it any more the key leaves the parked list, in the record
first, and its jobs are handed out again as any other.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import replace
from itertools import islice
from typing import TYPE_CHECKING, Any

from proxy.core.jobs.chains import RUNNING, Job
from proxy.core.jobs.residency import LONGEST_KEY
from proxy.core.keys.key_rules import KeyRule
from proxy.core.keys.retry_policy import OnExhausted
from proxy.core.leases.verdicts import Nack, Outcome
from proxy.core.pipeline.effects import Effects, PipelineStatistics
from proxy.core.pipeline.queue_pipeline import QueuePipeline
from proxy.core.records.parked_key import FAILURE_POLICY, ParkedKey, plain_text

if TYPE_CHECKING:
    from proxy.core.parking.twin_pipeline import TwinPipeline  # which knows its origin


class ParkingPipeline(QueuePipeline):
    """A pipeline whose keys can be parked; ``parked`` are those in its records, or on their way."""

    twin: TwinPipeline | None

    def __init__(self, **arguments: Any) -> None:
        """The arguments are those of ``QueuePipeline``."""
        super().__init__(**arguments)
        #: Parked keys that a record lists: their jobs may be copied.
        self.recorded: set[bytes] = set(self.parked)
        #: Those that no record lists yet, in the order in which they were parked.
        self.unrecorded: dict[bytes, None] = {}
        self._watched = self.parked
        self.jobs.residency.down.keep(self.parked)
        self._held_back_keys: dict[int, bytes] = {}
        #: Keys that left the parked list, which no record says yet: they are held still.
        self.leaving: set[bytes] = set()
        #: Why no copies can be stored, in a sentence; "" if they can.
        self.trouble = ""
        for key in self.parked:
            self.jobs.chains.hold(key)

    def park(self, key: bytes, *, by: str = FAILURE_POLICY, reason: str = "") -> bool:
        """Park *key* from its first unfinished job on, because *by* asks for it; False if it is
        parked already, or has none in memory. What clients have of it they may finish.
        """
        head = self.jobs.by_key.head(key)
        if head is None or key in self.parked or key in self.leaving or len(key) > LONGEST_KEY:
            return False
        by, reason = plain_text(by), plain_text(reason)
        self.parked[key] = ParkedKey(head.offset, self.epoch, by=by, reason=reason)
        self.unrecorded[key] = None
        self.jobs.chains.hold(key)
        self.jobs.residency.read_back(head)
        return True

    def note(self, key: bytes, text: str) -> None:
        """Keep *text* with *key* while that is paused or parked; "" for no note."""
        if (paused := self.paused.get(key)) is not None:
            self.paused[key] = replace(paused, note=text)
        if (parked := self.parked.get(key)) is not None:
            self.parked[key] = replace(parked, note=text)

    def note_of(self, key: bytes) -> str:
        """What ``note`` keeps."""
        kept = (self.paused.get(key), self.parked.get(key))
        return next((each.note for each in kept if each is not None and each.note), "")

    def found_parked(self, keys: Mapping[bytes, ParkedKey]) -> None:
        """*keys* have copies in the twin, and no record is left that lists them; before the first
        message is read.
        """
        for key in [each for each in keys if each not in self.parked]:
            self.parked[key] = keys[key]
            self.unrecorded[key] = None
            self.jobs.chains.hold(key)
        if self.key_record.before is not None:
            self._begin_key_change()  # anew: older messages may be among those copied

    def failing(self, *, stored_before_ms: float) -> list[bytes]:
        """Keys, not parked, whose first unfinished message was stored before that time, and failed.
        O(keys in memory).
        """
        return [
            head.key
            for head in self.jobs.chains.heads()
            if head.key is not None
            and head.key not in self.parked
            and head.offset in self.leases.attempts
            and (stored_ms := self.jobs.residency.down.stored_ms(head)) is not None
            and stored_ms < stored_before_ms
        ]

    def is_recorded(self, keys: Iterable[bytes]) -> None:
        """A record that lists *keys* as parked is stored."""
        for key in keys:
            self.unrecorded.pop(key, None)
            if key in self.parked:
                self.recorded.add(key)
                self._freed.add(key)

    def keys_to_copy(self) -> list[bytes]:
        """Keys of which ``to_copy`` may have something that it had not before, each told once."""
        keys, self._freed = self._freed | self.jobs.chains.take_stirred(), set()
        return sorted(keys)

    def look_again(self, keys: Iterable[bytes]) -> None:
        """Tell of *keys* once more: nothing became of their copies."""
        self._freed.update(keys)

    def to_copy(self, key: bytes, *, jobs: int, body_bytes: int) -> list[Job]:
        """The next jobs of *key* to be copied, in order: at least one if there is one; none while a
        client has the first, or it is being dead-lettered. So many that they are hardly spilled
        meanwhile: only where chains are cut to their share, or by other limits.
        """
        run: list[Job] = []
        if key not in self.recorded:
            return run
        for job in islice(self.jobs.by_key.in_memory(key), min(jobs, self.rules.max_jobs_per_key)):
            body_bytes -= job.body_bytes
            if job.offset in self._held_back.numbers:
                self._held_back_keys[job.offset] = key
            if self._is_out(job) or self.jobs.waits(job) or (run and body_bytes < 0):
                break
            if self.jobs.residency.read_back(job):
                break  # ``_is_back`` tells of it
            run.append(job)
        return run

    def is_given_up(self, job: Job) -> bool:
        """True while a dead letter of *job* is on its way."""
        return job.offset in self._dead_lettering

    def _is_out(self, job: Job) -> bool:
        """True if a client has *job*, or may have it from an owner before, or a dead letter of it
        is on its way.
        """
        offset = job.offset
        return self.leases.may_be_out(offset) or self.is_given_up(job)

    def _held_back_no_more(self, offset: int) -> None:
        if (key := self._held_back_keys.pop(offset, None)) is not None:
            self._freed.add(key)

    def copied(self, jobs: Sequence[Job], *, at: Sequence[int] = ()) -> Effects:
        """The copies of *jobs*, the first ones of their keys, are stored, *at* these offsets of the
        twin if that is known. Those that were spilled meanwhile are copied once more; the twin
        passes over what it has.
        """
        effects = Effects()
        if self.closed:
            return effects
        changed: set[bytes] = set()  # keys whose first jobs are others by now
        places = dict(zip(jobs, at, strict=bool(at)))
        for job in jobs:
            if job.key is None or job.key in changed:
                continue
            self._freed.add(job.key)  # there may be more
            if self.jobs.by_key.head(job.key) is not job:
                changed.add(job.key)
                continue
            if job.state is RUNNING:
                self._withdraw(job)
            self.jobs.parks(job)
            self._finish(job, Outcome.PARKED, effects)
            effects.parked.append(job)
            if job in places:
                effects.copies[job.offset] = places[job]
        return self._with_refills(effects)

    def not_copyable(self, job: Job) -> Effects:
        """The broker takes no copy of *job*, the first one of its key: it is dead-lettered, as far
        as that is possible, and the others of the key go on to be copied.
        """
        effects = Effects()
        if self.closed or job.key is None or self.jobs.by_key.head(job.key) is not job:
            return effects
        if job.state is RUNNING:
            self._withdraw(job)
        job.reason = job.reason or "the broker takes no copy that is so long"
        super()._give_up(job, effects)
        return self._with_refills(effects)

    def leave(self, *, but: Collection[bytes] = ()) -> list[bytes]:
        """Take the keys out of the parked list of which the twin, all of it read, holds none while
        they are redriven. They are held until ``left``. Not those of which nobody knows whether
        copies are on their way: *but*. None once the queue is given up: what is to be the last
        word of a reset may have been made already, and lists them.
        """
        twin = self.twin
        if twin is None or not twin.is_read or self.draining:
            return []
        keys = [
            key
            for key in twin.emptied()
            if key in self.recorded and key not in but and self._may_leave(key, twin)
        ]
        for key in keys:
            del self.parked[key]
            self.recorded.discard(key)
            self.leaving.add(key)
        return keys

    def _may_leave(self, key: bytes, twin: TwinPipeline) -> bool:
        head = self.jobs.by_key.head(key)
        if key in twin.jobs.by_key or (head is not None and head.state is RUNNING):
            return False  # the head was given up
        # An owner before may have copied messages that are unfinished here: first they are again.
        read = twin.parked[key].first
        lowest = self.jobs.by_key.lowest(key)
        return self.position >= read and (lowest is None or lowest >= read)

    def left(self, keys: Iterable[bytes]) -> Effects:
        """Records of the queue and of its twin say that *keys* are parked no more."""
        for key in keys:
            self.leaving.discard(key)
            self.jobs.chains.release(key)
            self.jobs.unparked([key])
        return self._with_refills(Effects())

    # ---- what the pipeline does otherwise for them ----------------------------------------------

    @property
    def key_change_due(self) -> bool:
        """As elsewhere, but not before it is known what was copied: a copy has its key by the rule
        that its message has.
        """
        return super().key_change_due and self.copies_known

    @property
    def key_change_in_words(self) -> str:
        """As elsewhere; it may not have begun."""
        waits = super().key_change_due and not self.copies_known
        words = f"to {KeyRule.of(self.rules)}: copies of parked messages are being read"
        return words if waits else super().key_change_in_words

    @property
    def copies_known(self) -> bool:
        """True once all copies that are stored for sure were read."""
        return not self.parked or (self.twin is not None and self.twin.is_read)

    @property
    def copied_below(self) -> int:
        """The end of what the twin has, as far as it was read."""
        parked = {} if self.twin is None else self.twin.parked
        return max((each.first for each in parked.values()), default=0)

    def _next_job(self) -> Job | None:
        job = self._polled()
        while job is not None and (job.state is not RUNNING or job.key in self.parked):
            job = self._polled()  # that one was copied, or is going to be
        return job

    def _failed(self, job: Job, *, nack: Nack | None, now_ns: int, effects: Effects) -> None:
        if job.key in self.parked:
            self._failures.next_try_ns(job, nack, now_ns=now_ns)
            self._free(job)
            effects.parking = True
        else:
            super()._failed(job, nack=nack, now_ns=now_ns, effects=effects)

    def _is_back(self, job: Job) -> None:
        super()._is_back(job)
        if job.key in self.parked and job.key is not None:
            self._freed.add(job.key)

    def _give_up(self, job: Job, effects: Effects) -> None:
        parks = self.rules.retry.on_exhausted is OnExhausted.PARK and job.key is not None
        if (
            parks
            and job.key is not None
            and (job.key in self.parked or self.park(job.key, reason=job.reason))
        ):
            effects.parking = True
        else:
            super()._give_up(job, effects)

    def _with_refills(self, effects: Effects) -> Effects:
        if self.jobs.quiet:
            return effects  # as nearly always
        if self.jobs.chains.held_keys:
            effects.parking = True
        return super()._with_refills(effects)

    def statistics(self) -> PipelineStatistics:
        """A frozen record of this moment."""
        statistics = super().statistics()
        if self.trouble or self.jobs.chains.held_keys:
            uncopied = sum(self.jobs.by_key.unfinished(key) for key in self.jobs.chains.held_keys)
            trouble = "; ".join(filter(None, (self.trouble, statistics.trouble)))
            return replace(statistics, uncopied=uncopied, trouble=trouble)
        return statistics  # mostly

    def drain(self) -> None:
        """Both hand out nothing more."""
        super().drain()
        if self.twin is not None:
            self.twin.drain()

    @property
    def leases_end_ns(self) -> int:
        """When the last live lease ends, of a copy too."""
        twin_ns = 0 if self.twin is None else self.twin.leases_end_ns
        return max(super().leases_end_ns, twin_ns)

    def may_unlock(self, now_ns: int) -> bool:
        """True if no lease is alive, of a copy neither."""
        return super().may_unlock(now_ns) and (self.twin is None or self.twin.may_unlock(now_ns))
