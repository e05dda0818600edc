"""Redrives of keys of a parked twin: their pace and their end. Pure.

A redrive delivers the copies of a key in order. It ends when none is left, when an operator stops
it, or when a copy is given up: copies are not copied again, so that one stays in its place.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from dataclasses import replace

from proxy.core.jobs.chains import Job
from proxy.core.jobs.jobs import Jobs
from proxy.core.jobs.ranking import Ranking
from proxy.core.jobs.tracked_dict import TrackedDict
from proxy.core.keys.ids import Epoch
from proxy.core.leases.lease_book import LeaseBook
from proxy.core.pipeline.effects import Effects
from proxy.core.records.parked_key import ParkedKey, cut_parked, plain_text


class Redrives:
    """The redrives of one twin: its strategy for jobs that are given up.

    Caller: the twin's pipeline. Affects: ``parked`` of the twin, the keys to read again, and
    attempts, which each redrive counts from 0.
    """

    def __init__(
        self, jobs: Jobs, leases: LeaseBook, parked: TrackedDict[bytes, ParkedKey], _epoch: Epoch
    ) -> None:
        """*parked*: how far each parked key was read; redrives in the records continue."""
        assert jobs.residency.wanted is not None
        assert jobs.spilled_chains.emptied is not None
        self._jobs, self._leases, self._parked = jobs, leases, parked
        self._emptied = jobs.spilled_chains.emptied
        #: Keys whose copies are delivered. Read-only for others.
        self.keys = jobs.residency.wanted
        self._to_stop: set[bytes] = set()
        self._stopping: set[bytes] = set()  # until their leases have ended
        self.watched: Collection[bytes | None] = self._stopping
        self.held: Collection[bytes | None] = ()
        self.under_way: Collection[int] = ()
        self._paces_ns: Ranking[bytes] = (
            Ranking()
        )  # time between two deliveries, of keys with a rate
        self._next_ns = 0  # time of the next delivery of a redrive with a rate
        self._pausing = False  # until then
        self.keys.update(key for key, each in parked.items() if each.redriven)
        for key in sorted(self.keys):
            self._pace(key, parked[key].rate)
            self._want(key)

    # ---- jobs given up; caller: settlement, dispatch --------------------------------------------

    def give_up(self, job: Job, effects: Effects) -> None:
        """Stop the redrive of the job's key: copies are not copied again, the job stays in its
        place.
        """
        assert job.key is not None
        self._to_stop.add(job.key)
        effects.stopped.append(job.key)

    def stored(self, job: Job) -> None:
        """Raise KeyError: copies are never dead-lettered."""
        raise KeyError(job.offset)

    def failed(self, job: Job) -> None:
        """Stop the redrive of its key if that was requested while a client had the job."""
        if job.key is not None and job.key not in self.keys:
            self._to_stop.add(job.key)

    def freed(self, key: bytes) -> None:
        """Note that the redrive of *key*, which is stopping, may end now."""
        self._to_stop.add(key)

    def is_back(self, job: Job) -> None:
        """Do nothing."""

    def held_back_no_more(self, offset: int) -> None:
        """Do nothing."""

    def conclude(self, effects: Effects) -> None:
        """Do nothing: the twin calls ``to_stop`` at every event."""

    # ---- copies; caller: the intake of the twin --------------------------------------------------

    def note_copy(self, key: bytes, parked: ParkedKey, *, origin: int) -> bool:
        """Note that a copy of *key*, *parked* according to the queue, was read, of the message at
        *origin*. Return False if it is a repeat.
        """
        known = self._parked.get(key, parked)
        if origin < max(known.first, parked.first):
            return False
        by = known.by if known is not parked else ""
        self._parked[key] = ParkedKey(origin + 1, parked.epoch, known.redriven, known.rate, by)
        return True

    # ---- pace; caller: the twin's pipeline ------------------------------------------------------

    @property
    def pace_ns(self) -> int:
        """Time between two deliveries of the slowest redrive with a rate; 0 without any."""
        return self._paces_ns.last or 0

    @property
    def timed(self) -> bool:
        """True while ``on_time`` must be called."""
        return self._pausing

    def may_go_on(self, now_ns: int) -> bool:
        """Return False while a redrive with a rate must wait."""
        return now_ns >= self._next_ns

    def handed_out(self, now_ns: int) -> None:
        """Note that a copy was delivered while a redrive has a rate."""
        self._next_ns = now_ns + self.pace_ns
        self._pausing = True

    def on_time(self, now_ns: int) -> None:
        """End the pause if it is over."""
        self._pausing = self._pausing and now_ns < self._next_ns

    @property
    def next_ns(self) -> int | None:
        """End of the pause; None without one."""
        return self._next_ns if self._pausing else None

    def _pace(self, key: bytes, rate: float) -> None:
        if rate:
            self._paces_ns.set(key, int(1e9 / rate))
        else:
            self._paces_ns.remove(key)

    # ---- operator actions; caller: ``proxy.upstream.parking``, by the twin's pipeline -----------

    def begin(self, key: bytes, known: ParkedKey, *, rate: float, by: str) -> None:
        """Deliver the copies of *key*, parked as *known*, as requested by *by*. Attempts count from
        0; at most *rate* per second (0: no limit).
        """
        self._parked[key] = replace(
            self._parked.get(key, known), redriven=True, rate=rate, by=plain_text(by), reason=""
        )
        self.keys.add(key)
        self._to_stop.discard(key)
        self._stopping.discard(key)
        self._pace(key, rate)
        for offset in self._jobs.by_key.spilled_offsets(key):
            self._leases.failures.reset(offset)
        self._want(key)

    def _want(self, key: bytes) -> None:
        """Read the copies of *key*, which is redriven; it may have none."""
        if key not in self._jobs.by_key:
            self._emptied.add(key)
        self._jobs.residency.refill(key)

    def change_pace(self, key: bytes, *, rate: float) -> None:
        """Change the *rate* of *key*, which is redriven; its deliveries keep counting."""
        self._parked[key] = replace(self._parked[key], rate=rate)
        self._pace(key, rate)
        self._next_ns = 0

    def stop(self, key: bytes) -> None:
        """Stop the redrive of *key*, if any."""
        if key in self._parked and self._parked[key].redriven:
            self._to_stop.add(key)

    @property
    def stopping(self) -> Collection[bytes]:
        """Keys with a stopped redrive of which clients still hold copies."""
        return self._to_stop | self._stopping

    def emptied(self) -> list[bytes]:
        """Return redriven keys that have no unfinished copies here."""
        emptied, by_key = self._emptied, self._jobs.by_key
        emptied -= {key for key in emptied if key not in self.keys or key in by_key}
        return sorted(emptied)

    # ---- stopping; caller: the twin's pipeline ---------------------------------------------------

    def to_stop(self) -> list[bytes]:
        """Return keys whose redrives end now; the caller reports each with ``stopped``."""
        return sorted(self._to_stop)

    def stopped(self, key: bytes) -> None:
        """Note that the redrive of *key* has ended."""
        self._to_stop.discard(key)
        self._stopping.discard(key)
        self.keys.discard(key)
        self._paces_ns.remove(key)
        if key in self._parked:
            self._parked[key] = replace(self._parked[key], redriven=False, rate=0.0, by="")

    def stop_later(self, key: bytes) -> None:
        """Stop *key* again when its lease has ended, because a client holds a copy of it."""
        self._stopping.add(key)

    # ---- the parked list -------------------------------------------------------------------------

    def forget(self, keys: Iterable[bytes]) -> None:
        """Forget *keys*, which are no longer parked and have no copies in the twin."""
        for key in keys:
            self._parked.pop(key, None)
            self.keys.discard(key)
            self._paces_ns.remove(key)

    def origin_lost(self, end: int) -> None:
        """Note that the queue lost its messages from offset *end* on. All copies are read."""
        for key, cut in cut_parked(self._parked, end).items():
            self._parked[key] = cut
