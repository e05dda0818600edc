"""The unfinished jobs of a queue whose order key may change meanwhile. Pure."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable, Sequence
from itertools import chain
from typing import Any

from broker_core.remoting.message import StoredMessage
from proxy.core.jobs.chains import Job
from proxy.core.jobs.jobs import QueueJobs
from proxy.core.jobs.key_change import KeyChange
from proxy.core.jobs.measures import Measures, Moment
from proxy.core.jobs.refills import Refill
from proxy.core.keys.key_rules import KeyRecord


class ChangingJobs(QueueJobs):
    """``change`` is there while messages that have their keys by an older rule are unfinished, or
    parked.
    """

    def __init__(self, *arguments: Any, **named: Any) -> None:
        """As ``QueueJobs``."""
        super().__init__(*arguments, **named)
        self.change: KeyChange | None = None

    def begin_change(self, record: KeyRecord, *, parked: bool) -> None:
        """From the switch in *record* on messages have their keys by another rule. *parked*: some
        older ones are parked. O(unfinished).
        """
        self.change = KeyChange(
            record, unfinished=self._all_read(), in_memory=self._in_memory(), parked=parked
        )
        self._chains.waits = self.change.waits

    def settle_change(self) -> bool:
        """Let go on what waits for older messages no longer; True if none of these is left now."""
        if (change := self.change) is None:
            return False
        through = (
            not (change.counting or change.waits_for_parked)
            and min(self.position, self.committable) >= change.since
        )
        if through:
            self.change = self._chains.waits = None
        opened = change.take_opened()
        for key in list(self._chains.keys) if through or opened is None else opened:
            self._chains.open(key)
        return through

    @property
    def now(self) -> Moment:
        """Whoever says when something happens says it there."""
        return self._chains.now

    def measured_by(self, measures: Measures) -> None:
        """Add what jobs wait for one another to those from now on."""
        self._chains.measures = measures

    @property
    def quiet(self) -> bool:
        """True if nothing is to be read again, no key is held, and no order key changes."""
        return not self._refills and self.change is None and not self._chains.held_keys

    @property
    def older(self) -> int:
        """How many unfinished messages have their keys by an older rule. O(unfinished)."""
        return 0 if self.change is None else bisect_left(self._all_read(), self.change.since)

    def waits(self, job: Job) -> bool:
        """True if *job* waits for older messages, though none may be ahead of it in its chain."""
        return self.change is not None and self.change.waits(job)

    def parks(self, job: Job) -> None:
        """*job* is about to finish: a copy of it is parked."""
        if self.change is not None and job.key is not None:
            self.change.parked(job.key, job.offset)

    def unparked(self, keys: Iterable[bytes]) -> None:
        """*keys* are parked no more: they have no copies."""
        if self.change is not None:
            self.change.unparked(keys)

    def finish(self, job: Job) -> None:
        """As elsewhere; it may be the last one of its new key."""
        QueueJobs.finish(self, job)  # cheaper than super(), which counts at a message
        if self.change is not None:
            self._finished(job.offset)

    def finish_all(self, jobs: Sequence[Job]) -> None:
        """As elsewhere."""
        if self.change is None:
            QueueJobs.finish_all(self, jobs)
        else:
            for job in jobs:
                self.finish(job)

    def refilled(self, refill: Refill, jobs: Sequence[Job]) -> bool:
        """As elsewhere; those that are gone have finished."""
        wanted = super().refilled(refill, jobs)
        if wanted and self.change is not None:
            for offset in set(refill.offsets).difference(job.offset for job in jobs):
                self._finished(offset)
        return wanted

    def skip_stored(self, key: bytes) -> int | None:
        """As elsewhere; nobody looked at that message."""
        offset = super().skip_stored(key)
        if offset is not None:
            self._finished(offset)
        return offset

    def _finished(self, offset: int) -> None:
        if self.change is not None and not self.change.finished(offset):
            self.change.recount(self._all_read(), self._in_memory())

    def _all_read(self) -> list[int]:
        spilled = (each.offsets[each.head :] for _, each in self._spilled)
        return sorted([*self._tracker.unfinished(), *chain.from_iterable(spilled)])

    def _in_memory(self) -> dict[int, StoredMessage]:
        again = chain.from_iterable(self.in_memory(key) for key in self._spilled.keys)
        jobs = chain(self._tracker.started(), (job for job in again if job.refilled))
        return {job.offset: job.message for job in jobs if job.message is not None}
