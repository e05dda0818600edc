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
    """A pipeline whose strategy is ``Parking``, and which answers for its twin where both count:
    draining, unlocking and a change of the order key.
    """

    twin: TwinPipeline | None

    def __init__(
        self, *, rules: TopicRules, resume: Snapshot | None = None, **period: Unpack[Period]
    ) -> None:
        """The arguments are those of ``QueuePipeline``."""
        super().__init__(rules=rules, resume=resume, exhausted=Parking, **period)
        assert isinstance(self.exhausted, Parking)
        #: Which keys are parked, and what is to be copied.
        self.parking = self.exhausted

    # ---- the twin; caller: ``proxy.upstream.parking`` -------------------------------------------

    def open_twin(self, twin: TwinPipeline) -> None:
        """*twin* holds the parked messages from now on."""
        self.twin = twin

    def drop_twin(self) -> None:
        """The twin is not owned any more."""
        self.twin = None

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
        self.parking.found(keys)
        if self.keys.record.before is not None:
            self.keys.begin()  # anew: older messages may be among those copied

    def to_copy(self, key: bytes, *, jobs: int, body_bytes: int) -> list[Job]:
        """The next jobs of *key* to be copied, as ``Parking`` gives them: so few that they are
        hardly spilled meanwhile, only where chains are cut to their share, or by other limits.
        """
        most = min(jobs, self.rules.max_jobs_per_key)
        return self.parking.to_copy(key, jobs=most, body_bytes=body_bytes)

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
            self.parking.freed(job.key)  # there may be more
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
        """The broker takes no copy of *job*, the first one of its key: it is dead-lettered, as far
        as that is possible, and the others of the key go on to be copied.
        """
        effects = Effects()
        if self.closed or job.key is None or self.jobs.by_key.head(job.key) is not job:
            return effects
        if job.state is RUNNING:
            self.settlement.withdraw(job)
        job.note_reason(job.reason or "the broker takes no copy that is so long")
        self.parking.dead_letter(job, effects)
        return self._concluded(effects)

    def leave(self, *, but: Collection[bytes] = ()) -> list[bytes]:
        """Take the keys out of the parked list of which the twin, all of it read, holds none while
        they are redriven. They are held until ``left``. Not those of which nobody knows whether
        copies are on their way: *but*. None once the queue is given up: what is to be the last
        word of a reset may have been made already, and lists them.
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
        # An owner before may have copied messages that are unfinished here: first they are again.
        read = twin.parked[key].first
        lowest = self.jobs.by_key.lowest(key)
        return self.position >= read and (lowest is None or lowest >= read)

    def left(self, keys: Iterable[bytes]) -> Effects:
        """Records of the queue and of its twin say that *keys* are parked no more."""
        self.parking.left(keys)
        return self._concluded(Effects())

    # ---- both together --------------------------------------------------------------------------

    @property
    def copies_known(self) -> bool:
        """True once all copies that are stored for sure were read."""
        return not self.parked or (self.twin is not None and self.twin.is_read)

    @property
    def copied_below(self) -> int:
        """The end of what the twin has, as far as it was read."""
        parked = {} if self.twin is None else self.twin.parked
        return max((each.first for each in parked.values()), default=0)

    @property
    def key_change_due(self) -> bool:
        """True if one is wanted and may be planned; not before it is known what was copied: a copy
        has its key by the rule that its message has.
        """
        return super().key_change_due and self.copies_known

    @property
    def key_change_in_words(self) -> str:
        """What a change of the order key waits for, to begin too; "" if there is none."""
        waits = super().key_change_due and not self.copies_known
        words = f"to {KeyRule.of(self.rules)}: copies of parked messages are being read"
        return words if waits else super().key_change_in_words

    def statistics(self) -> PipelineStatistics:
        """A frozen record of this moment."""
        statistics = super().statistics()
        if self.parking.trouble or self.jobs.chains.held_keys:
            trouble = "; ".join(filter(None, (self.parking.trouble, statistics.trouble)))
            return replace(statistics, uncopied=self.parking.uncopied, trouble=trouble)
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
