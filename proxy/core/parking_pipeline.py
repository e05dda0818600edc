"""Parked keys: the pipeline of a queue that can park them, and that of its parked twin. Pure.

A key that is parked is held: none of its jobs is handed out. Once its ownership record says so,
copies of its jobs are appended to the twin in order, and each finishes when its copy is stored. So
the messages of the key stand in the twin, one behind the other, and later ones join them.

In the twin all jobs are spilled (an offset each), and those of a key are read again only while it
is redriven. When the twin holds none of it any more the key leaves the parked list, in the record
first, and its jobs are handed out again as any other.

Whoever takes over may copy a message once more that has a copy. Offsets of messages rise among the
copies of a key, so one that does not is a repeat, and passed over.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import replace
from itertools import islice
from typing import Any

from broker_core.remoting.message import StoredMessage
from proxy.core.effects import Effects, Nack, Outcome, PipelineStatistics
from proxy.core.job_chains import Job, JobState
from proxy.core.key_rules import KeyRule
from proxy.core.parked_copy import origin_of
from proxy.core.parked_key import FAILURE_POLICY, ParkedKey, plain_text
from proxy.core.pull_buffer import Holder, Lease
from proxy.core.queue_jobs import LONGEST_KEY
from proxy.core.queue_pipeline import QueuePipeline
from proxy.core.retry_policy import OnExhausted
from proxy.core.rules import TopicRules


class ParkingPipeline(QueuePipeline):
    """A pipeline whose keys can be parked; ``parked`` are those in its records, or on their way."""

    twin: TwinPipeline | None

    def __init__(self, **arguments: Any) -> None:
        """The arguments are those of ``QueuePipeline``."""
        super().__init__(**arguments)
        #: Parked keys that a record lists: their jobs may be copied.
        self.recorded: set[bytes] = set(self.parked)
        #: Keys that left the parked list, which no record says yet: they are held still.
        self.leaving: set[bytes] = set()
        #: Why no copies can be stored, in a sentence; "" if they can.
        self.trouble = ""
        for key in self.parked:
            self.jobs.hold_key(key)

    def park(self, key: bytes, *, by: str = FAILURE_POLICY, reason: str = "") -> bool:
        """Park *key* from its first unfinished job on, because *by* asks for it; False if it is
        parked already, or has none in memory. What clients have of it they may finish.
        """
        head = next(self.jobs.in_memory(key), None)
        if head is None or key in self.parked or key in self.leaving or len(key) > LONGEST_KEY:
            return False
        by, reason = plain_text(by), plain_text(reason)
        self.parked[key] = ParkedKey(head.offset, self.epoch, by=by, reason=reason)
        self.jobs.hold_key(key)
        return True

    def found_parked(self, keys: Mapping[bytes, ParkedKey]) -> None:
        """*keys* have copies in the twin, and no record is left that lists them; before the first
        message is read.
        """
        for key in keys.keys() - self.parked.keys():
            self.parked[key] = keys[key]
            self.jobs.hold_key(key)

    def failing(self, *, stored_before_ms: float) -> list[bytes]:
        """Keys, not parked, whose first unfinished message was stored before that time, and failed.
        O(keys in memory).
        """
        return [
            head.key
            for head in self.jobs.heads()
            if head.key is not None
            and head.key not in self.parked
            and head.offset in self.attempts
            and head.message is not None
            and head.message.store_ms < stored_before_ms
        ]

    def is_recorded(self, keys: Iterable[bytes]) -> None:
        """A record that lists *keys* as parked is stored."""
        self.recorded.update(self.parked.keys() & keys)

    def to_copy(self, key: bytes, *, jobs: int, body_bytes: int) -> list[Job]:
        """The next jobs of *key* to be copied, in order: at least one if there is one; none while a
        client has the first. So many that none of them is spilled meanwhile.
        """
        run: list[Job] = []
        if key not in self.recorded:
            return run
        for job in islice(self.jobs.in_memory(key), min(jobs, self.rules.max_jobs_per_key)):
            body_bytes -= job.body_bytes
            if self._is_out(job) or self.jobs.waits(job) or (run and body_bytes < 0):
                break
            run.append(job)
        return run

    def _is_out(self, job: Job) -> bool:
        """True if a client has *job*, or may have it from an owner before."""
        return self._buffer.live_at(job.offset) is not None or job.offset in self._held_back_ns

    def copied(self, jobs: Iterable[Job]) -> Effects:
        """The copies of *jobs*, the first ones of their key, are stored."""
        effects = Effects()
        if self.closed:
            return effects
        for job in jobs:
            if job.state is JobState.RUNNING:
                self._withdraw(job)
            self.jobs.parks(job)
            self._finish(job, Outcome.PARKED, effects)
            effects.parked.append(job)
        return self._with_refills(effects)

    def leave(self, *, but: Collection[bytes] = ()) -> list[bytes]:
        """Take the keys out of the parked list of which the twin, all of it read, holds none while
        they are redriven. They are held until ``left``. Not those of which nobody knows whether
        copies are on their way: *but*.
        """
        twin = self.twin
        if twin is None or not twin.is_read:
            return []
        may = self.recorded.difference(but)
        keys = [key for key in twin.redriven if key in may and self._may_leave(key, twin)]
        for key in keys:
            del self.parked[key]
            self.recorded.discard(key)
            self.leaving.add(key)
        return keys

    def _may_leave(self, key: bytes, twin: TwinPipeline) -> bool:
        head = next(self.jobs.in_memory(key), None)
        if twin.jobs.knows_key(key) or (head is not None and head.state is JobState.RUNNING):
            return False  # the head was given up
        # An owner before may have copied messages that are unfinished here: first they are again.
        read = twin.parked[key].first
        lowest = self.jobs.lowest_of(key)
        return self.position >= read and (lowest is None or lowest >= read)

    def left(self, keys: Iterable[bytes]) -> Effects:
        """Records of the queue and of its twin say that *keys* are parked no more."""
        for key in keys:
            self.leaving.discard(key)
            self.jobs.release_key(key)
            self.jobs.unparked([key])
        return self._with_refills(Effects())

    # ---- what the pipeline does otherwise for them ----------------------------------------------

    def _next_job(self) -> Job | None:
        while (job := super()._next_job()) is not None:
            if job.state is JobState.RUNNING and job.key not in self.parked:
                return job  # else it was copied, or is going to be
        return None

    def _failed(self, job: Job, *, nack: Nack | None, now_ns: int, effects: Effects) -> None:
        if job.key in self.parked:
            self._failures.next_try_ns(job, nack, now_ns=now_ns)
            effects.parking = True
        else:
            super()._failed(job, nack=nack, now_ns=now_ns, effects=effects)

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
        effects.parking |= bool(self.jobs.held_keys)
        return super()._with_refills(effects)

    def statistics(self) -> PipelineStatistics:
        """A frozen record of this moment."""
        uncopied = sum(self.jobs.unfinished_of(key) for key in self.jobs.held_keys)
        return replace(super().statistics(), uncopied=uncopied, trouble=self.trouble)

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


class TwinPipeline(QueuePipeline):
    """The parked messages of a queue. ``parked`` says what was read of each parked key."""

    origin: ParkingPipeline

    def __init__(
        self, *, twin_of: ParkingPipeline, must_read: int, rules: TopicRules, **arguments: Any
    ) -> None:
        """The arguments are those of ``QueuePipeline``. What stands below *must_read* was there
        before. All tags are wanted: whatever was parked was wanted when it came.
        """
        super().__init__(twin_of=twin_of, rules=replace(rules, tags=None), **arguments)
        self.must_read = must_read
        # A key that left the parked list may be in a record of the twin still.
        self.parked = {key: each for key, each in self.parked.items() if key in twin_of.parked}
        self._to_stop: set[bytes] = set()
        self._next_ns = 0  # when a redrive with a rate hands out the next
        self._pausing = False  # until then
        self.jobs.wanted = {key for key, each in self.parked.items() if each.redriven}
        for key in self.jobs.wanted:
            self.jobs.refill(key)

    def change_rules(self, rules: TopicRules) -> Effects:
        """As elsewhere, but for the tags."""
        return super().change_rules(replace(rules, tags=None))

    @property
    def redriven(self) -> Collection[bytes]:
        """Keys whose copies are handed out."""
        return self.jobs.wanted or ()

    @property
    def is_read(self) -> bool:
        """True if all copies that are stored for sure were read."""
        return self.position >= self.must_read

    def room(self, *, demand: bool = False) -> int:
        """Reading never pauses but for full memory: what is not redriven costs an offset each."""
        return 0 if self.draining or self.closed else self.jobs.room(demand=True)

    def may_hand_out(self, now_ns: int) -> bool:
        """As long as the queue itself is owned."""
        return super().may_hand_out(now_ns) and self.origin.may_hand_out(now_ns)

    @property
    def ready(self) -> int:
        """Jobs that ``lease`` would give now, by the rate of redrives too."""
        return 0 if self._pausing else super().ready

    def lease(self, *, max_jobs: int, max_bytes: int, now_ns: int, holder: Holder) -> list[Lease]:
        """As elsewhere, but one at a time if a redrive has a rate: the slowest counts for all."""
        pace_ns = self._pace_ns
        if pace_ns and now_ns < self._next_ns:
            return []
        leases = super().lease(
            max_jobs=min(max_jobs, 1) if pace_ns else max_jobs,
            max_bytes=max_bytes,
            now_ns=now_ns,
            holder=holder,
        )
        if leases and pace_ns:
            self._next_ns = now_ns + pace_ns
            self._pausing = True
        return leases

    def lengthen(
        self, firsts: Collection[Lease], *, max_run: int, max_jobs: int, max_bytes: int
    ) -> list[Lease]:
        """No runs in a redrive with a rate."""
        if self._pace_ns:
            return list(firsts)
        return super().lengthen(firsts, max_run=max_run, max_jobs=max_jobs, max_bytes=max_bytes)

    def on_time(self, *, now_ns: int) -> Effects:
        """The pause of a redrive may be over, too."""
        self._pausing = self._pausing and now_ns < self._next_ns
        return super().on_time(now_ns=now_ns)

    def next_due_ns(self, now_ns: int) -> int | None:
        """When ``on_time`` has something to do."""
        due = super().next_due_ns(now_ns)
        return min(due or self._next_ns, self._next_ns) if self._pausing else due

    @property
    def _pace_ns(self) -> int:
        rates = [self.parked[key].rate for key in self.redriven if key in self.parked]
        slowest = min((rate for rate in rates if rate), default=0.0)
        return int(1e9 / slowest) if slowest else 0

    def redrive(self, key: bytes, *, rate: float = 0.0, by: str = "") -> Effects:
        """Hand the copies of *key*, which is parked, out because *by* asks for it: in order,
        attempts counted anew; *rate* of them a second at most (0: as many as clients take).
        """
        known = self.parked.get(key, self.origin.parked[key])
        self.parked[key] = replace(known, redriven=True, rate=rate, by=plain_text(by), reason="")
        self._wanted.add(key)
        self._to_stop.discard(key)
        for offset in self.jobs.spilled_offsets(key):
            self._failures.begin_anew(offset)
        self.jobs.refill(key)
        return self._with_refills(Effects(parking=True))

    def pace(self, key: bytes, *, rate: float) -> Effects:
        """Another *rate* for *key*, which is redriven; its hand-outs count on."""
        self.parked[key] = replace(self.parked[key], rate=rate)
        self._next_ns = 0
        return self._with_refills(Effects(parking=True))

    @property
    def stopping(self) -> Collection[bytes]:
        """Keys redriven no longer of which clients have something still."""
        return self._to_stop

    def stop(self, key: bytes) -> Effects:
        """Redrive *key* no longer; what a client has of it may be finished."""
        if key in self.parked and self.parked[key].redriven:
            self._to_stop.add(key)
        return self._with_refills(Effects(parking=True))

    def forget(self, keys: Iterable[bytes]) -> None:
        """*keys* are parked no more, and the twin holds none of them."""
        for key in keys:
            self.parked.pop(key, None)
            self._wanted.discard(key)

    @property
    def _wanted(self) -> set[bytes]:
        wanted = self.jobs.wanted
        assert wanted is not None
        return wanted

    def _admit(self, message: StoredMessage, effects: Effects) -> None:
        job = self._job(message)
        job.key = self._rule_of(message).chain_of(message)
        origin, epoch = origin_of(message)
        parked = None if job.key is None else self.origin.parked.get(job.key)
        if job.key is not None and parked is not None and epoch >= parked.epoch:
            known = self.parked.get(job.key, parked)
            if origin >= max(known.first, parked.first):
                by = known.by if known is not parked else ""
                self.parked[job.key] = ParkedKey(
                    origin + 1, parked.epoch, known.redriven, known.rate, by
                )
                self.jobs.admit(job)
                return
        self.jobs.pass_over(message.queue_offset)

    def _offset_of(self, _job: Job, message: StoredMessage) -> int:
        return origin_of(message)[0]

    def _rule_of(self, message: StoredMessage) -> KeyRule:
        """That of the message itself: keys are parked by the rule that it had."""
        return self.origin.key_record.rule_at(origin_of(message)[0])

    def _next_job(self) -> Job | None:
        while (job := super()._next_job()) is not None:
            if job.state is JobState.RUNNING:
                return job  # else it was put back
        return None

    def _failed(self, job: Job, *, nack: Nack | None, now_ns: int, effects: Effects) -> None:
        super()._failed(job, nack=nack, now_ns=now_ns, effects=effects)
        if job.key is not None and job.key not in self._wanted:
            self._to_stop.add(job.key)  # it was stopped while a client had it

    def _give_up(self, job: Job, effects: Effects) -> None:
        """Nothing is copied twice: its key's redrive stops, and it waits where it stands."""
        assert job.key is not None
        self._to_stop.add(job.key)
        effects.stopped.append(job.key)

    def _with_refills(self, effects: Effects) -> Effects:
        for key in list(self._to_stop):
            self._stop(key)
        effects.parking = True
        return super()._with_refills(effects)

    def _stop(self, key: bytes) -> None:
        self._wanted.discard(key)
        if key in self.parked:
            self.parked[key] = replace(self.parked[key], redriven=False, rate=0.0, by="")
        in_memory = list(self.jobs.in_memory(key))
        if any(self._buffer.live_at(job.offset) is not None for job in in_memory):
            return  # once more when that lease has ended
        self._to_stop.discard(key)
        self.jobs.put_back(key)
        for job in in_memory:
            if job.state is JobState.RUNNING:  # offered again, or about to be
                self._withdraw(job)
                job.move(JobState.RUNNING, JobState.FINISHED)
