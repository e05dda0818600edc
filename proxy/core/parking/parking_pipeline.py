"""The pipeline of a queue that can park keys, together with its twin. Pure."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Unpack

from proxy.core.jobs.chains import RUNNING, Job
from proxy.core.keys.key_rules import KeyRule
from proxy.core.keys.topic_rules import TopicRules
from proxy.core.leases.verdicts import Outcome
from proxy.core.parking.parking import Parking
from proxy.core.parking.twin_pipeline import TwinPipeline
from proxy.core.pipeline.effects import Effects, PipelineStatistics
from proxy.core.pipeline.queue_pipeline import Period, QueuePipeline
from proxy.core.records.parked_key import ParkedKey
from proxy.core.records.record import Snapshot


class ParkingPipeline(QueuePipeline):
    """A pipeline whose strategy is ``Parking``. It includes its twin in draining, unlocking and
    changes of the order key.
    """

    twin: TwinPipeline | None

    def __init__(
        self, *, rules: TopicRules, resume: Snapshot | None = None, **period: Unpack[Period]
    ) -> None:
        """Take the arguments of ``QueuePipeline``."""
        super().__init__(rules=rules, resume=resume, exhausted=Parking, **period)
        assert isinstance(self.exhausted, Parking)
        #: Parked keys, and the jobs to copy.
        self.parking = self.exhausted

    # ---- the twin; caller: ``proxy.upstream.parking`` -------------------------------------------

    def open_twin(self, twin: TwinPipeline) -> None:
        """Use *twin* for parked messages from now on."""
        self.twin = twin

    def drop_twin(self) -> None:
        """Drop the twin, which is no longer owned."""
        self.twin = None

    def note(self, key: bytes, text: str) -> None:
        """Keep *text* with *key* while it is paused or parked; "" removes the note."""
        if (paused := self.paused.get(key)) is not None:
            self.paused[key] = replace(paused, note=text)
        if (parked := self.parked.get(key)) is not None:
            self.parked[key] = replace(parked, note=text)

    def note_of(self, key: bytes) -> str:
        """Return the note on *key*."""
        kept = (self.paused.get(key), self.parked.get(key))
        return next((each.note for each in kept if each is not None and each.note), "")

    def found_parked(self, keys: Mapping[bytes, ParkedKey]) -> None:
        """Park *keys*, which have copies in the twin but no records. Call before the first message
        is read.
        """
        self.parking.found(keys)
        if self.keys.record.before is not None:
            self.keys.begin()  # again, because copies may be of older messages

    def to_copy(self, key: bytes, *, jobs: int, body_bytes: int) -> list[Job]:
        """Return the next jobs of *key* to copy, as ``Parking`` does: so few that they are rarely
        spilled meanwhile.
        """
        most = min(jobs, self.rules.max_jobs_per_key)
        return self.parking.to_copy(key, jobs=most, body_bytes=body_bytes)

    def copied(self, jobs: Sequence[Job], *, at: Sequence[int] = ()) -> Effects:
        """Finish *jobs*, the first ones of their keys, whose copies are stored, *at* these offsets
        of the twin if known. Jobs that were spilled meanwhile are copied again; the twin skips the
        repeats.
        """
        effects = Effects()
        if self.closed:
            return effects
        changed: set[bytes] = set()  # keys with different first jobs by now
        places = dict(zip(jobs, at, strict=bool(at)))
        for job in jobs:
            if job.key is None or job.key in changed:
                continue
            self.parking.freed(job.key)  # more may follow
            if self.jobs.by_key.head(job.key) is not job:
                changed.add(job.key)
                continue
            if job.state is RUNNING:
                self.settlement.withdraw(job)
            self.jobs.parks(job)
            self.settlement.finish(job, Outcome.PARKED, effects)
            effects.parked.append(job)
            if job in places:
                effects.copies[job.offset] = places[job]
        return self._concluded(effects)

    def not_copyable(self, job: Job) -> Effects:
        """Dead-letter *job*, the first one of its key, because the broker refuses a copy; copying
        of the key continues.
        """
        effects = Effects()
        if self.closed or job.key is None or self.jobs.by_key.head(job.key) is not job:
            return effects
        if job.state is RUNNING:
            self.settlement.withdraw(job)
        job.note_reason(job.reason or "a copy would exceed the broker's size limit")
        self.parking.dead_letter(job, effects)
        return self._concluded(effects)

    def leave(self, *, but: Collection[bytes] = ()) -> list[bytes]:
        """Remove redriven keys without copies in the twin, all of it read, from the parked list,
        and return them; they are held until ``left``.

        *but*: keys that may have copies on their way; they stay. None is removed while draining,
        because the final records, which list them, may have been made already.
        """
        twin = self.twin
        if twin is None or not twin.is_read or self.draining:
            return []
        recorded = self.parking.recorded
        keys = [
            key
            for key in twin.redrives.emptied()
            if key in recorded and key not in but and self._may_leave(key, twin)
        ]
        self.parking.leaves(keys)
        return keys

    def _may_leave(self, key: bytes, twin: TwinPipeline) -> bool:
        head = self.jobs.by_key.head(key)
        if key in twin.jobs.by_key or (head is not None and head.state is RUNNING):
            return False  # the head was given up
        # An earlier owner may have copied messages that are unfinished here: they must finish
        # first.
        read = twin.parked[key].first
        lowest = self.jobs.by_key.lowest(key)
        return self.position >= read and (lowest is None or lowest >= read)

    def left(self, keys: Iterable[bytes]) -> Effects:
        """Release *keys*, which the records of queue and twin no longer list as parked."""
        self.parking.left(keys)
        return self._concluded(Effects())

    # ---- queue and twin -------------------------------------------------------------------------

    @property
    def copies_known(self) -> bool:
        """True once all copies known to be stored are read."""
        return not self.parked or (self.twin is not None and self.twin.is_read)

    @property
    def copied_below(self) -> int:
        """End of the twin's copies, as far as read."""
        parked = {} if self.twin is None else self.twin.parked
        return max((each.first for each in parked.values()), default=0)

    @property
    def key_change_due(self) -> bool:
        """True if a change is wanted and may be planned: not before all copies are known, because a
        copy has its key by the rule of its message.
        """
        return super().key_change_due and self.copies_known

    @property
    def key_change_in_words(self) -> str:
        """State of a change of the order key, including its start; "" if there is none."""
        waits = super().key_change_due and not self.copies_known
        words = f"to {KeyRule.of(self.rules)}: copies of parked messages are being read"
        return words if waits else super().key_change_in_words

    def statistics(self) -> PipelineStatistics:
        """Return the state at this moment."""
        statistics = super().statistics()
        if self.parking.trouble or self.jobs.chains.held_keys:
            trouble = "; ".join(filter(None, (self.parking.trouble, statistics.trouble)))
            return replace(statistics, uncopied=self.parking.uncopied, trouble=trouble)
        return statistics  # the usual case

    def drain(self) -> None:
        """Stop delivering, in the twin too."""
        super().drain()
        if self.twin is not None:
            self.twin.drain()

    @property
    def leases_end_ns(self) -> int:
        """Latest deadline of a live lease, in the twin too."""
        twin_ns = 0 if self.twin is None else self.twin.leases_end_ns
        return max(super().leases_end_ns, twin_ns)

    def may_unlock(self, now_ns: int) -> bool:
        """Return True if a clean end is possible, in the twin too."""
        return super().may_unlock(now_ns) and (self.twin is None or self.twin.may_unlock(now_ns))
