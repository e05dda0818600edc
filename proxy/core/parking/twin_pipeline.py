"""The pipeline of a queue's parked twin: copies of parked messages, delivered by redrives. Pure.

All its jobs are spilled (one offset each), and those of a key are read again only while it is
redriven. ``copy_intake`` reads the copies.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import replace
from functools import partial
from typing import Unpack

from proxy.core.jobs.chains import FINISHED, RUNNING
from proxy.core.keys.topic_rules import TopicRules
from proxy.core.leases.lease_book import Holder, Lease
from proxy.core.parking.copy_intake import CopyIntake
from proxy.core.parking.redrives import Redrives
from proxy.core.pipeline.effects import Effects
from proxy.core.pipeline.queue_pipeline import Period, QueuePipeline
from proxy.core.records.parked_key import ParkedKey
from proxy.core.records.record import Snapshot

_NEVER = ParkedKey(0, 0)


class TwinPipeline(QueuePipeline):
    """The parked messages of a queue. ``parked`` contains how far each parked key was read. The
    strategy is ``Redrives``, which sets the pace; ``CopyIntake`` reads copies as their original
    messages.
    """

    def __init__(
        self,
        *,
        twin_of: QueuePipeline,
        must_read: int,
        rules: TopicRules,
        resume: Snapshot | None = None,
        **period: Unpack[Period],
    ) -> None:
        """Take the arguments of ``QueuePipeline``. Copies below *must_read* were there before."""
        super().__init__(
            twin_of=twin_of,
            rules=_of_copies(rules),
            resume=None if resume is None else _still_parked(resume, twin_of.parked),
            exhausted=Redrives,
            intake=partial(CopyIntake, origin=twin_of),
            **period,
        )
        assert isinstance(self.exhausted, Redrives)
        #: The redrives of keys.
        self.redrives = self.exhausted
        self._must_read = must_read
        self._given = rules

    def has_rules(self, rules: TopicRules) -> bool:
        """Return whether *rules* were given last; its own lack what filters messages as they are
        read.
        """
        return rules is self._given

    def change_rules(self, rules: TopicRules) -> Effects:
        """Apply *rules* except what filters messages as they are read."""
        self._given = rules
        return super().change_rules(_of_copies(rules))

    # ---- reading --------------------------------------------------------------------------------

    def copies_end_at(self, end: int) -> None:
        """Note that copies below *end* are stored and must be read."""
        self._must_read = max(self._must_read, end)

    @property
    def is_read(self) -> bool:
        """True if all copies known to be stored are read."""
        return self.position >= self._must_read

    # ---- handing out ----------------------------------------------------------------------------

    def may_hand_out(self, now_ns: int) -> bool:
        """Return True if the queue itself may deliver, too."""
        return super().may_hand_out(now_ns) and self.origin.may_hand_out(now_ns)

    @property
    def ready(self) -> int:
        """Number of jobs available to ``lease`` now, within the rate of redrives."""
        return 0 if self.redrives.timed else super().ready

    def lease(self, *, max_jobs: int, max_bytes: int, now_ns: int, holder: Holder) -> list[Lease]:
        """Lease up to *max_jobs*, but only one at a time if a redrive has a rate: the slowest rate
        applies to all.
        """
        redrives = self.redrives
        has_rate = redrives.pace_ns > 0
        if has_rate and not redrives.may_go_on(now_ns):
            return []
        leases = super().lease(
            max_jobs=min(max_jobs, 1) if has_rate else max_jobs,
            max_bytes=max_bytes,
            now_ns=now_ns,
            holder=holder,
        )
        if leases and has_rate:
            redrives.handed_out(now_ns)
        return leases

    def lengthen(
        self, firsts: Collection[Lease], *, max_run: int, max_jobs: int, max_bytes: int
    ) -> list[Lease]:
        """Return *firsts* unchanged if a redrive has a rate: no runs then."""
        if self.redrives.pace_ns:
            return list(firsts)
        return super().lengthen(firsts, max_run=max_run, max_jobs=max_jobs, max_bytes=max_bytes)

    def next_due_ns(self, now_ns: int) -> int | None:
        """Return when ``on_time`` is due next."""
        due_ns, next_ns = super().next_due_ns(now_ns), self.redrives.next_ns
        return due_ns if next_ns is None else min(due_ns or next_ns, next_ns)

    # ---- redrives; caller: ``proxy.upstream.parking`` -------------------------------------------

    def redrive(self, key: bytes, *, rate: float = 0.0, by: str = "") -> Effects:
        """Deliver the copies of the parked *key* in order, as requested by *by*. Attempts count
        from 0; at most *rate* per second (0: no limit).
        """
        return self.redrive_all([key], rate=rate, by=by)

    def redrive_all(self, keys: Iterable[bytes], *, rate: float = 0.0, by: str = "") -> Effects:
        """``redrive`` each of *keys*."""
        for key in keys:
            self.redrives.begin(key, self.origin.parked[key], rate=rate, by=by)
        return self._concluded(Effects().note_parking())

    def pace(self, key: bytes, *, rate: float) -> Effects:
        """Change the *rate* of *key*, which is redriven; its deliveries keep counting."""
        self.redrives.change_pace(key, rate=rate)
        return self._concluded(Effects().note_parking())

    def stop(self, key: bytes) -> Effects:
        """Stop the redrive of *key*; clients may finish the copies that they hold."""
        self.redrives.stop(key)
        return self._concluded(Effects().note_parking())

    def _concluded(self, effects: Effects) -> Effects:
        """Return *effects* after ending redrives; they always let the queue check its twin."""
        for key in self.redrives.to_stop():
            self._stop(key)
        effects.note_parking()
        return super()._concluded(effects)

    def _stop(self, key: bytes) -> None:
        self.redrives.stopped(key)
        in_memory = list(self.jobs.by_key.in_memory(key))
        if any(self.leases.at(job.offset) is not None for job in in_memory):
            self.redrives.stop_later(key)
            return
        self.jobs.residency.put_back(key)
        for job in in_memory:
            if job.state is RUNNING:  # offered again, or about to be
                self.settlement.withdraw(job)
                job.move(RUNNING, FINISHED)


def _of_copies(rules: TopicRules) -> TopicRules:
    """Return *rules* without what filters messages as they are read: the originals passed that."""
    return replace(rules, tags=None, drops_shadow_traffic=False)


def _still_parked(resume: Snapshot, parked: Mapping[bytes, ParkedKey]) -> Snapshot:
    """Return *resume* without keys that have left the parked list according to the queue's records:
    its owner may have ended before it wrote those of the twin. All copies of such keys are
    finished, even if a later owner *parked* the key again.
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
