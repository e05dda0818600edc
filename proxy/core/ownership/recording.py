"""Ownership records to write for a queue: a delta, sometimes a snapshot, or nothing. Pure.

A delta costs as much as what changed, because the state tracks its own changes, and the recorder
collects them. Only when it continues the records of an earlier owner is everything compared, once.

Each owned queue gets a record at least once per hour, and no record builds on a snapshot that
retention is about to delete (``renew``).
"""

from __future__ import annotations

from array import array
from bisect import bisect_right
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import TypeVar
from weakref import ref

from proxy.core.jobs.tracked_dict import TrackedDict
from proxy.core.keys.key_rules import KeyRecord
from proxy.core.pipeline.queue_pipeline import QueuePipeline
from proxy.core.records.parked_key import ParkedKey
from proxy.core.records.paused_key import PausedKey
from proxy.core.records.record import Delta, Own, Record, Snapshot
from proxy.core.records.replay import LastOwner
from proxy.core.records.snapshot_parts import PART_BYTES, parts

K = TypeVar("K")
V = TypeVar("V")

#: A new owner reads all deltas since the last snapshot. So the next snapshot is written once they
#: list more offsets than it (and than MIN_OFFSETS), exceed MAX_DELTAS in number (or one per
#: _OFFSETS_A_DELTA of its offsets), or are too old.
MIN_OFFSETS = 16_384
MAX_DELTAS = 256
_OFFSETS_A_DELTA = 16
_MAX_AGE_NS = 3600 * 1_000_000_000


class Recording:
    """The records of one ownership period. After each ``due``, call ``written`` or ``failed``
    before the next.
    """

    def __init__(
        self, pipeline: QueuePipeline, last: LastOwner | None, own: Own | None = None
    ) -> None:
        """*last*: the earlier owner, whose snapshot *pipeline* resumed. *own* began the period: all
        snapshots repeat it, because retention may delete it during a long period.
        """
        # Weakly: a caller that keeps records by pipeline would otherwise keep both forever.
        self._of = ref(pipeline)
        self._own = own
        self._snapshot_at: int | None = None  # base of the deltas; None: a snapshot comes next
        self._serial = 0  # of the last snapshot
        self._last_at = 0  # offset of the last of these records
        self._in_snapshot = self._in_deltas = self._deltas = self._since_ns = 0
        # Recorded state; complete while it is compared with the current state.
        self._compares = True
        self._base = self._read = self._count = 0  # of unfinished
        self._unfinished: set[int] = set()
        self._attempts: Mapping[int, int] = {}
        self._spilled: dict[bytes, tuple[int, int]] = {}  # first and last offset; always
        self._parked: Mapping[bytes, ParkedKey] = {}
        self._longest_lease_ms = 0
        self._paused: Mapping[bytes | None, PausedKey] = {}
        self._keys: KeyRecord | None = None
        # Whether the own record names a wait whose end is not recorded yet, or is about to be.
        self._waits = own is not None and own.hold_ms > 0
        self._ends_wait = False
        self._lists_leases = False  # of earlier owners or, before a hand-over, live ones
        if last is not None and last.snapshot is not None and last.damage is None:
            self._lists_leases = bool(last.snapshot.leases)
            self._snapshot_at, self._last_at = last.snapshot_at, last.last_at
            self._set_baseline(last.snapshot)
            self._longest_lease_ms = 0  # belongs to another period

    @property
    def _pipeline(self) -> QueuePipeline:
        pipeline = self._of()
        assert pipeline is not None, "the caller keeps the pipeline"
        return pipeline

    def has_news(self, now_ns: int) -> bool:
        """Return False only if nothing is ``due``, as each second in idle queues."""
        pipeline, jobs = self._pipeline, self._pipeline.jobs
        if not self._since_ns or self._snapshot_at is None or self._is_old(now_ns):
            return True
        if pipeline.extensions_refused or self._compares or self._wait_is_over(now_ns):
            return True
        if self._listed_leases_ended:
            return True
        return bool(
            # With nothing read since, unfinished offsets can only have been removed.
            (jobs.committable, jobs.read) != (self._base, self._read)
            or jobs.never_spilled != self._count
            or jobs.spilled_chains.changed
            or pipeline.leases.attempts.changed
            or pipeline.parked.changed
            or pipeline.recorded_pauses.changed
            or pipeline.keys.recorded != self._keys
            or pipeline.raised_lease_ms != self._longest_lease_ms
        )

    def due(self, now_ns: int, *, whole: bool = False, most: int = PART_BYTES) -> list[Record]:
        """Return the records to write now. *whole*: a snapshot in any case. *most*: bytes of each
        of its records, encoded; a longer delta must be reported as ``failed``.

        Leases that outlive a hand-over are listed only in snapshots.
        """
        self._since_ns = self._since_ns or now_ns
        self._ends_wait = self._wait_is_over(now_ns)
        if self._pipeline.extensions_refused and self._pipeline.lease_times(now_ns):
            whole = True
        if self._listed_leases_ended:  # otherwise later owners would wait for them again
            whole = True
        if not whole and self._snapshot_at is not None:
            delta = self._delta(self._snapshot_at)
            if delta is None and not self._is_old(now_ns):
                return []
            if delta is not None and not self._outgrown(now_ns):
                return [delta]
        self._snapshot_at = None
        snapshot = self._pipeline.snapshot(now_ns=now_ns)
        self._lists_leases = bool(snapshot.leases)
        self._set_baseline(snapshot)
        self._clear_changes()
        self._since_ns = now_ns
        self._serial += 1
        own = self._own
        if own is not None and self._ends_wait:
            own = replace(own, hold_ms=0)
        return [*parts(snapshot, own, serial=self._serial, most=most)]

    def written(self, records: Sequence[Record], *, at: int) -> None:
        """Note that the *records* that were due are stored, the first one at offset *at*."""
        self._last_at = at
        self._pipeline.raised_lease_recorded(self._longest_lease_ms)
        self._pipeline.recorded_to(self._base)
        if self._ends_wait and self._own is not None:
            self._own, self._waits = replace(self._own, hold_ms=0), False
        if isinstance(records[0], Delta):
            self._in_deltas += records[0].size
            self._deltas += 1
        else:
            self._snapshot_at = at
            self._in_deltas = self._deltas = 0

    def failed(self) -> None:
        """Note that it is unknown whether the records are stored."""
        self._snapshot_at = None

    @property
    def snapshot_at(self) -> int | None:
        """Offset of the snapshot that all later records build on, perhaps an earlier owner's; None
        if a snapshot comes next.
        """
        return self._snapshot_at

    def renew(self) -> None:
        """Write a snapshot next, because retention is close to the current one."""
        self._snapshot_at = None

    def _wait_is_over(self, now_ns: int) -> bool:
        return self._waits and self._pipeline.hold_until_ns <= now_ns

    @property
    def _listed_leases_ended(self) -> bool:
        return self._lists_leases and not self._pipeline.leases.held_back.numbers

    def _outgrown(self, now_ns: int) -> bool:
        return (
            self._in_deltas > max(MIN_OFFSETS, self._in_snapshot)
            or self._deltas >= max(MAX_DELTAS, self._in_snapshot // _OFFSETS_A_DELTA)
            or self._is_old(now_ns)
        )

    def _is_old(self, now_ns: int) -> bool:
        # Even if nothing changed: so records show that the queue has an owner, and the last one is
        # never old enough for retention.
        return now_ns - self._since_ns >= _MAX_AGE_NS

    def _set_baseline(self, snapshot: Snapshot) -> None:
        self._base, self._read, self._in_snapshot = snapshot.base, snapshot.read, snapshot.size
        self._unfinished, self._count = set(snapshot.unfinished), len(snapshot.unfinished)
        self._attempts = snapshot.attempts
        self._spilled = {key: (chain[0], chain[-1]) for key, chain in snapshot.spilled.items()}
        self._parked = snapshot.parked
        self._longest_lease_ms = snapshot.longest_lease_ms
        self._paused = snapshot.paused
        self._keys = snapshot.keys

    def _clear_changes(self) -> None:
        """Clear the tracked changes, because everything is recorded."""
        pipeline, jobs = self._pipeline, self._pipeline.jobs
        jobs.unspilled_changes()
        for notes in (
            *(
                jobs.spilled_chains.rewritten,
                jobs.spilled_chains.changed,
                pipeline.leases.attempts.changed,
            ),
            *(pipeline.parked.changed, pipeline.recorded_pauses.changed),
        ):
            notes.clear()
        # State of an earlier owner is not tracked while it is read.
        self._compares = jobs.resumes
        if not self._compares:
            self._unfinished, self._attempts, self._parked, self._paused = set(), {}, {}, {}

    def _delta(self, snapshot_at: int) -> Delta | None:
        jobs = self._pipeline.jobs
        base, read = jobs.committable, jobs.read
        left, came = self._unfinished_changes()
        spilled, heads = self._spilled_changes()
        pauses, keys = self._pipeline.recorded_pauses, self._pipeline.keys.recorded
        parked = _changes(self._pipeline.parked, self._parked, compare=self._compares)
        paused = _changes(pauses, self._paused, compare=self._compares)
        delta = Delta(
            self._pipeline.epoch,
            snapshot_at,
            base,
            read,
            left=tuple(left),
            unfinished=tuple(came),
            attempts=self._attempts_changes(left, base=base),
            spilled=spilled,
            heads=heads,
            parked=parked,
            paused=paused,
            after=self._last_at,
            longest_lease_ms=self._pipeline.raised_lease_ms,
            keys=None if keys == self._keys else keys,
            anchor=self._pipeline.anchor,
            hold_over=self._ends_wait,
        )
        said = self._base, self._read, self._longest_lease_ms
        self._base, self._read, self._keys = base, read, keys
        self._longest_lease_ms = delta.longest_lease_ms
        if self._compares:
            self._attempts = dict(self._pipeline.leases.attempts)
            self._parked = dict(self._pipeline.parked)
            self._paused = dict(pauses)
        self._clear_changes()
        news = delta.size or delta.hold_over or (base, read, delta.longest_lease_ms) != said
        return delta if news else None

    def _unfinished_changes(self) -> tuple[list[int], list[int]]:
        """Return rising offsets: no longer unfinished (some may be spilled), and added."""
        jobs = self._pipeline.jobs
        left, came = jobs.unspilled_changes()
        if self._compares:
            now = set(jobs.unspilled())
            left, came = sorted(self._unfinished - now), sorted(now - self._unfinished)
            self._unfinished = now
        self._count += len(came) - len(left)
        return left, came

    def _attempts_changes(self, left: Iterable[int], *, base: int) -> dict[int, int]:
        """Return attempts to record again: those that changed, and those of *left* offsets, which
        records drop.
        """
        now = self._pipeline.leases.attempts
        offsets = now.changed.union(left)
        if self._compares:
            offsets.update(each for each, count in now.items() if self._attempts.get(each) != count)
        return {each: now[each] for each in sorted(offsets) if each in now and each >= base}

    def _spilled_changes(self) -> tuple[dict[bytes, array[int]], dict[bytes, int | None]]:
        """Return, by key, spilled offsets that were added, and heads that moved."""
        jobs = self._pipeline.jobs
        spilled: dict[bytes, array[int]] = {}
        heads: dict[bytes, int | None] = {}
        changed = jobs.spilled_chains.changed
        for key in sorted(
            {*self._spilled, *jobs.spilled_chains.keys} if self._compares else changed
        ):
            chain = jobs.spilled_chains.of(key)
            first, last = self._spilled.pop(key, (-1, -1))
            if chain is None:
                if first >= 0:
                    heads[key] = None
                continue
            head, end = chain.offsets[chain.head], chain.offsets[-1]
            self._spilled[key] = head, end
            if key in jobs.spilled_chains.rewritten:  # as if the old chain were finished
                heads[key], spilled[key] = None, chain.offsets[chain.head :]
                continue
            if 0 <= first < head:
                heads[key] = head
            if end != last and (
                added := chain.offsets[max(chain.head, bisect_right(chain.offsets, last)) :]
            ):
                spilled[key] = added
        return spilled, heads


def _changes(
    now: TrackedDict[K, V], recorded: Mapping[K, V], *, compare: bool
) -> dict[K, V | None]:
    """Return the changes of *now*; None for removed keys. *compare*: compare with *recorded*."""
    changes: dict[K, V | None] = {}
    if compare:
        changes.update(dict.fromkeys(recorded.keys() - now.keys()))
        changes.update((key, each) for key, each in now.items() if recorded.get(key) != each)
    else:
        changes.update((key, now.get(key)) for key in now.changed)
    return changes
