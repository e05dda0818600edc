"""The pipeline of a queue's parked twin: copies of parked messages, handed out by redrives. Pure.

All its jobs are spilled (an offset each), and those of a key are read again only while it is
redriven.

Whoever takes over may copy a message once more that has a copy. Offsets of messages rise among the
copies of a key, so one that does not is a repeat, and passed over.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import replace
from typing import Any

from broker_core.remoting.message import StoredMessage
from proxy.core.dead_letters.copies import as_sent
from proxy.core.jobs.chains import Job, JobState
from proxy.core.jobs.ranking import Ranking
from proxy.core.keys.key_rules import KeyRule
from proxy.core.keys.topic_rules import TopicRules
from proxy.core.leases.lease_book import Holder, Lease
from proxy.core.leases.verdicts import Nack
from proxy.core.parking.parked_copy import origin_of, parked_chain
from proxy.core.parking.parking_pipeline import ParkingPipeline
from proxy.core.pipeline.effects import Effects
from proxy.core.pipeline.queue_pipeline import QueuePipeline
from proxy.core.records.parked_key import ParkedKey, cut_parked, plain_text
from proxy.core.records.record import Snapshot

_NEVER = ParkedKey(0, 0)


class TwinPipeline(QueuePipeline):
    """The parked messages of a queue. ``parked`` says what was read of each parked key."""

    origin: ParkingPipeline

    def __init__(
        self,
        *,
        twin_of: ParkingPipeline,
        must_read: int,
        rules: TopicRules,
        resume: Snapshot | None = None,
        **arguments: Any,
    ) -> None:
        """The arguments are those of ``QueuePipeline``. What stands below *must_read* was there
        before. All tags are wanted: whatever was parked was wanted when it came.
        """
        super().__init__(
            twin_of=twin_of,
            rules=replace(rules, tags=None),
            resume=None if resume is None else _still_parked(resume, twin_of.parked),
            **arguments,
        )
        self.must_read = must_read
        self._to_stop: set[bytes] = set()
        self._stopping: set[bytes] = set()  # once their leases have ended
        self._watched = self._stopping
        self._next_ns = 0  # when a redrive with a rate hands out the next
        self._pausing = False  # until then
        self._paces_ns: Ranking[bytes] = Ranking()  # between two hand-outs, of redrives with a rate
        self._wanted.update(key for key, each in self.parked.items() if each.redriven)
        for key in sorted(self._wanted):
            self._pace(key, self.parked[key].rate)
            self._want(key)

    def change_rules(self, rules: TopicRules) -> Effects:
        """As elsewhere, but for the tags."""
        return super().change_rules(replace(rules, tags=None))

    @property
    def redriven(self) -> Collection[bytes]:
        """Keys whose copies are handed out."""
        return self.jobs.residency.wanted or ()

    @property
    def is_read(self) -> bool:
        """True if all copies that are stored for sure were read."""
        return self.position >= self.must_read

    def room(self, *, demand: bool = False) -> int:
        """Reading never pauses but for full memory: what is not redriven costs an offset each."""
        return 0 if self.draining or self.closed else self.jobs.residency.room(demand=True)

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

    def _on_time(self, now_ns: int) -> Effects:
        """The pause of a redrive may be over, too."""
        self._pausing = self._pausing and now_ns < self._next_ns
        return super()._on_time(now_ns)

    def next_due_ns(self, now_ns: int) -> int | None:
        """When ``on_time`` has something to do."""
        due = super().next_due_ns(now_ns)
        return min(due or self._next_ns, self._next_ns) if self._pausing else due

    @property
    def _pace_ns(self) -> int:
        return self._paces_ns.last or 0  # the slowest

    def _pace(self, key: bytes, rate: float) -> None:
        if rate:
            self._paces_ns.set(key, int(1e9 / rate))
        else:
            self._paces_ns.remove(key)

    def _want(self, key: bytes) -> None:
        """Read the copies of *key*, which is redriven; it may be without any."""
        if key not in self.jobs.by_key:
            self._emptied.add(key)
        self.jobs.residency.refill(key)

    def emptied(self) -> list[bytes]:
        """Keys that are redriven, and have no copy here that was read and has not ended."""
        emptied, redriven = self._emptied, self._wanted
        emptied -= {key for key in emptied if key not in redriven or key in self.jobs.by_key}
        return sorted(emptied)

    def redrive(self, key: bytes, *, rate: float = 0.0, by: str = "") -> Effects:
        """Hand the copies of *key*, which is parked, out because *by* asks for it: in order,
        attempts counted anew; *rate* of them a second at most (0: as many as clients take).
        """
        return self.redrive_all([key], rate=rate, by=by)

    def redrive_all(self, keys: Iterable[bytes], *, rate: float = 0.0, by: str = "") -> Effects:
        """``redrive`` each of *keys*."""
        by = plain_text(by)
        for key in keys:
            self._redrive(key, rate, by)
        return self._with_refills(Effects(parking=True))

    def _redrive(self, key: bytes, rate: float, by: str) -> None:
        known = self.parked.get(key, self.origin.parked[key])
        self.parked[key] = replace(known, redriven=True, rate=rate, by=by, reason="")
        self._wanted.add(key)
        self._to_stop.discard(key)
        self._stopping.discard(key)
        self._pace(key, rate)
        for offset in self.jobs.by_key.spilled_offsets(key):
            self._failures.begin_anew(offset)
        self._want(key)

    def pace(self, key: bytes, *, rate: float) -> Effects:
        """Another *rate* for *key*, which is redriven; its hand-outs count on."""
        self.parked[key] = replace(self.parked[key], rate=rate)
        self._pace(key, rate)
        self._next_ns = 0
        return self._with_refills(Effects(parking=True))

    @property
    def stopping(self) -> Collection[bytes]:
        """Keys redriven no longer of which clients have something still."""
        return self._to_stop | self._stopping

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
            self._paces_ns.remove(key)

    def origin_lost(self, end: int) -> None:
        """The queue itself lost its messages from offset *end* on. All copies are read."""
        for key, cut in cut_parked(self.parked, end).items():
            self.parked[key] = cut

    @property
    def _emptied(self) -> set[bytes]:
        emptied = self.jobs.spilled_chains.emptied
        assert emptied is not None
        return emptied

    @property
    def _wanted(self) -> set[bytes]:
        wanted = self.jobs.residency.wanted
        assert wanted is not None
        return wanted

    def _admit(self, message: StoredMessage, effects: Effects) -> None:
        key = parked_chain(message, self._rule_of(message))
        origin, epoch = origin_of(message)
        parked = None if key is None else self.origin.parked.get(key)
        if key is not None and parked is not None and epoch >= parked.epoch:
            known = self.parked.get(key, parked)
            if origin >= max(known.first, parked.first):
                by = known.by if known is not parked else ""
                self.parked[key] = ParkedKey(
                    origin + 1, parked.epoch, known.redriven, known.rate, by
                )
                if not self.jobs.residency.spill(key, message.queue_offset):
                    self.jobs.admit(self._job(message, key))
                return
        self.jobs.pass_over(message.queue_offset)

    def _job(self, message: StoredMessage, key: bytes | None) -> Job:
        """Of the message as it was sent, whatever its copy looks like."""
        return super()._job(as_sent(message), key)

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
        self._to_stop |= self._freed
        self._freed.clear()
        for key in sorted(self._to_stop):
            self._stop(key)
        effects.parking = True
        return super()._with_refills(effects)

    def _stop(self, key: bytes) -> None:
        self._to_stop.discard(key)
        self._stopping.discard(key)
        self._wanted.discard(key)
        self._paces_ns.remove(key)
        if key in self.parked:
            self.parked[key] = replace(self.parked[key], redriven=False, rate=0.0, by="")
        in_memory = list(self.jobs.by_key.in_memory(key))
        if any(self.leases.at(job.offset) is not None for job in in_memory):
            self._stopping.add(key)  # once more when that lease has ended
            return
        self.jobs.residency.put_back(key)
        for job in in_memory:
            if job.state is JobState.RUNNING:  # offered again, or about to be
                self._withdraw(job)
                job.move(JobState.RUNNING, JobState.FINISHED)


def _still_parked(resume: Snapshot, parked: Mapping[bytes, ParkedKey]) -> Snapshot:
    """*resume* without the keys that have left the parked list since: so the records of the queue
    say, and its owner may have ended before those of the twin did. All copies of them have ended,
    also where the key is *parked* once more, by a later owner.
    """
    left = {
        key
        for key in resume.parked.keys() | resume.spilled.keys()
        if key not in parked or resume.parked.get(key, _NEVER).epoch < parked[key].epoch
    }
    if not left:
        return resume
    ended = {offset for key in left for offset in resume.spilled.get(key, ())}
    return replace(
        resume,
        spilled={key: each for key, each in resume.spilled.items() if key not in left},
        parked={key: each for key, each in resume.parked.items() if key not in left},
        attempts={at: count for at, count in resume.attempts.items() if at not in ended},
        leases={at: ms for at, ms in resume.leases.items() if at not in ended},
    )
