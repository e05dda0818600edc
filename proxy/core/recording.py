"""What an owner writes down of its queue: a delta, a snapshot now and then, or nothing. Pure.

No queue with an owner is without a record for longer than an hour, and none builds on a snapshot
that retention is about to delete (``renew``).
"""

from __future__ import annotations

from array import array
from bisect import bisect_right
from collections.abc import Sequence
from weakref import ref

from proxy.core.key_rules import KeyRecord
from proxy.core.ownership_record import Delta, Own, Record, Snapshot, parts
from proxy.core.ownership_replay import LastOwner
from proxy.core.parked_key import ParkedKey
from proxy.core.paused_key import PausedKey
from proxy.core.queue_pipeline import QueuePipeline

#: A snapshot is written once the deltas since the last one list more offsets than it (and than so
#: many), or are so many, or so old: a new owner has to read them all.
_MIN_OFFSETS = 16_384
_MAX_DELTAS = 256
_MAX_AGE_NS = 3600 * 1_000_000_000


class Recording:
    """The records of one ownership period. After each ``due`` either ``written`` or ``failed`` has
    to be told, before the next.
    """

    def __init__(
        self, pipeline: QueuePipeline, last: LastOwner | None, own: Own | None = None
    ) -> None:
        """*last*: the owner before, whose snapshot *pipeline* resumed. *own* began the period: all
        snapshots repeat it, for a period may be longer than its first record is kept.
        """
        # Weakly: who keeps records by their pipelines would keep both for ever.
        self._of = ref(pipeline)
        self._own = own
        self._snapshot_at: int | None = None  # where the deltas begin; None: a snapshot comes next
        self._serial = 0  # of the last snapshot
        self._last_at = 0  # where the last record of those stands
        self._in_snapshot = self._in_deltas = self._deltas = self._since_ns = 0
        # What the records say by now.
        self._base = self._read = 0
        self._unfinished: set[int] = set()
        self._attempts: dict[int, int] = {}
        self._spilled: dict[bytes, tuple[int, int]] = {}  # first and last offset
        self._parked: dict[bytes, ParkedKey] = {}
        self._longest_lease_ms = 0
        self._paused: dict[bytes | None, PausedKey] = {}
        self._keys: KeyRecord | None = None
        if last is not None and last.snapshot is not None and last.damage is None:
            self._snapshot_at, self._last_at = last.snapshot_at, last.last_at
            self._tell(last.snapshot)
            self._longest_lease_ms = 0  # that was another period

    @property
    def _pipeline(self) -> QueuePipeline:
        pipeline = self._of()
        assert pipeline is not None, "who asks for its records has it"
        return pipeline

    def has_news(self, now_ns: int) -> bool:
        """False only if nothing is ``due``: so it is each second in queues at rest. O(keys that are
        parked, paused or failed).
        """
        pipeline, jobs = self._pipeline, self._pipeline.jobs
        if not self._since_ns or self._snapshot_at is None or self._is_old(now_ns):
            return True
        if pipeline.extensions_refused:
            return True
        return bool(
            # With nothing read since, what is unfinished can only have become less.
            (jobs.committable, jobs.read) != (self._base, self._read)
            or jobs.never_spilled != len(self._unfinished)
            or jobs.spilled_keys
            or self._spilled
            or jobs.rewritten_chains
            or pipeline.attempts != self._attempts
            or pipeline.parked != self._parked
            or pipeline.recorded_pauses != self._paused
            or pipeline.recorded_keys != self._keys
            or pipeline.raised_lease_ms != self._longest_lease_ms
        )

    def due(self, now_ns: int, *, whole: bool = False) -> list[Record]:
        """What is to be written now; *whole*: a snapshot in any case.

        Leases that live on past a hand-over stand in snapshots alone.
        """
        self._since_ns = self._since_ns or now_ns
        if self._pipeline.extensions_refused and self._pipeline.lease_times(now_ns):
            whole = True
        if not whole and self._snapshot_at is not None:
            delta = self._delta(self._snapshot_at)
            if delta is None and not self._is_old(now_ns):
                return []
            if delta is not None and not self._outgrown(now_ns):
                return [delta]
        self._snapshot_at = None
        snapshot = self._pipeline.snapshot(now_ns=now_ns)
        self._tell(snapshot)
        self._since_ns = now_ns
        self._serial += 1
        return [*parts(snapshot, self._own, serial=self._serial)]

    def written(self, records: Sequence[Record], *, at: int) -> None:
        """The *records* that were due are stored, the first one at offset *at*."""
        self._last_at = at
        self._pipeline.raised_lease_recorded(self._longest_lease_ms)
        if isinstance(records[0], Delta):
            self._in_deltas += records[0].size
            self._deltas += 1
        else:
            self._snapshot_at = at
            self._in_deltas = self._deltas = 0

    def failed(self) -> None:
        """Nobody knows whether they are stored."""
        self._snapshot_at = None

    @property
    def snapshot_at(self) -> int | None:
        """The record that all later ones build on, perhaps one of an owner before; None if a
        snapshot comes next.
        """
        return self._snapshot_at

    def renew(self) -> None:
        """Have a snapshot come next: retention is near the record that all build on."""
        self._snapshot_at = None

    def _outgrown(self, now_ns: int) -> bool:
        return (
            self._in_deltas > max(_MIN_OFFSETS, self._in_snapshot)
            or self._deltas >= _MAX_DELTAS
            or self._is_old(now_ns)
        )

    def _is_old(self, now_ns: int) -> bool:
        # Also if nothing changed: so records say that the queue has an owner, and retention, which
        # takes old ones, leaves the last.
        return now_ns - self._since_ns >= _MAX_AGE_NS

    def _tell(self, snapshot: Snapshot) -> None:
        self._base, self._read, self._in_snapshot = snapshot.base, snapshot.read, snapshot.size
        self._unfinished = set(snapshot.unfinished)
        self._attempts = dict(snapshot.attempts)
        self._spilled = {key: (chain[0], chain[-1]) for key, chain in snapshot.spilled.items()}
        self._parked = dict(snapshot.parked)
        self._longest_lease_ms = snapshot.longest_lease_ms
        self._paused = dict(snapshot.paused)
        self._keys = snapshot.keys
        self._pipeline.jobs.rewritten_chains.clear()

    def _delta(self, snapshot_at: int) -> Delta | None:
        jobs = self._pipeline.jobs
        base, read, unfinished = jobs.committable, jobs.read, set(jobs.unspilled())
        attempts = dict(self._pipeline.attempts)
        left = self._unfinished - unfinished  # some may be spilled now, and keep their attempts
        spilled, heads, ends = self._spilled_since()
        delta = Delta(
            self._pipeline.epoch,
            snapshot_at,
            base,
            read,
            left=tuple(sorted(left)),
            unfinished=tuple(sorted(unfinished - self._unfinished)),
            attempts={
                offset: count
                for offset, count in attempts.items()
                if offset >= base and (self._attempts.get(offset) != count or offset in left)
            },
            spilled=spilled,
            heads=heads,
            parked=self._parked_changes(),
            paused=self._paused_changes(),
            after=self._last_at,
            longest_lease_ms=self._pipeline.raised_lease_ms,
            keys=None if (keys := self._pipeline.recorded_keys) == self._keys else keys,
            anchor=self._pipeline.anchor,
        )
        said = self._base, self._read, self._longest_lease_ms
        if (base, read, delta.longest_lease_ms) == said and not delta.size:
            return None
        self._longest_lease_ms = delta.longest_lease_ms
        self._base, self._read, self._unfinished = base, read, unfinished
        self._attempts, self._spilled = attempts, ends
        self._parked = dict(self._pipeline.parked)
        self._paused = dict(self._pipeline.recorded_pauses)
        self._keys = keys
        jobs.rewritten_chains.clear()
        return delta

    def _spilled_since(
        self,
    ) -> tuple[dict[bytes, array[int]], dict[bytes, int | None], dict[bytes, tuple[int, int]]]:
        """By key: spilled offsets that were added, heads that moved, and the ends of all chains."""
        jobs = self._pipeline.jobs
        spilled: dict[bytes, array[int]] = {}
        heads: dict[bytes, int | None] = dict.fromkeys(self._spilled.keys() - jobs.spilled_keys)
        ends: dict[bytes, tuple[int, int]] = {}
        for key, chain in jobs.spilled_chains():
            first, last = self._spilled.get(key, (-1, -1))
            ends[key] = chain.offsets[chain.head], chain.offsets[-1]
            if key in jobs.rewritten_chains:  # as if the old one were finished
                heads[key], spilled[key] = None, chain.offsets[chain.head :]
                continue
            if ends[key] == (first, last):
                continue
            if key in self._spilled and ends[key][0] > first:
                heads[key] = ends[key][0]
            if added := chain.offsets[max(chain.head, bisect_right(chain.offsets, last)) :]:
                spilled[key] = added
        return spilled, heads, ends

    def _parked_changes(self) -> dict[bytes, ParkedKey | None]:
        now, told = self._pipeline.parked, self._parked
        changes: dict[bytes, ParkedKey | None] = dict.fromkeys(told.keys() - now.keys())
        changes.update((key, each) for key, each in now.items() if told.get(key) != each)
        return changes

    def _paused_changes(self) -> dict[bytes | None, PausedKey | None]:
        now, told = self._pipeline.recorded_pauses, self._paused
        changes: dict[bytes | None, PausedKey | None] = dict.fromkeys(told.keys() - now.keys())
        changes.update((key, each) for key, each in now.items() if told.get(key) != each)
        return changes
