"""What the ownership records of a queue say all together. Pure."""

from __future__ import annotations

from array import array
from bisect import bisect_left
from collections.abc import Iterable
from dataclasses import dataclass, field

from proxy.core.ids import Epoch
from proxy.core.ownership_record import Delta, Own, Record, Snapshot, SnapshotPart, joined
from proxy.core.parked_key import ParkedKey

_MS = 1_000_000


@dataclass(frozen=True, slots=True)
class LastOwner:
    """What the records say of the newest ownership period.

    ``snapshot`` is the state that they add up to. It may be of periods before: what was finished
    then is finished still. ``snapshot_at`` is where the records of it begin. If that is before the
    records that were replayed, ``snapshot`` is None.
    """

    epoch: Epoch
    own: Own
    snapshot: Snapshot | None
    clean: bool
    snapshot_at: int | None = None

    def wait_ns(self, *, broker_start_ms: int, broker_lock_expiry_s: float) -> int:
        """How long the next owner waits before its first hand-out, so that old leases have ended.

        Nothing after a clean end. A restarted broker may have forgotten the lock, so the old owner
        may trust it still: trust plus its longest lease. Else its trust ended before the lock
        could expire, and only what a lease outlives that by is left.
        """
        if self.clean:
            return 0
        if broker_start_ms != self.own.broker_start_ms:
            return (self.own.trust_ms + self.own.longest_lease_ms) * _MS
        head_start_ms = broker_lock_expiry_s * 1000 - self.own.trust_ms
        return int(max(0.0, self.own.longest_lease_ms - head_start_ms) * _MS)


@dataclass(slots=True)
class _State:
    """A snapshot that deltas change."""

    at: int
    epoch: Epoch
    base: int
    read: int
    unfinished: set[int]
    attempts: dict[int, int]
    spilled: dict[bytes, array[int]]
    leases: dict[int, int]
    parked: dict[bytes, ParkedKey]

    def apply(self, delta: Delta) -> None:
        self.epoch, self.base, self.read = delta.epoch, delta.base, delta.read
        self.unfinished.difference_update(delta.left)
        self.unfinished.update(delta.unfinished)
        for offset in delta.left:
            self.attempts.pop(offset, None)
        self.attempts |= delta.attempts
        for key, head in delta.heads.items():
            if (chain := self.spilled.get(key)) is not None:
                del chain[: len(chain) if head is None else bisect_left(chain, head)]
                if not chain:
                    del self.spilled[key]
        for key, offsets in delta.spilled.items():
            self.spilled.setdefault(key, array("q")).extend(offsets)
        for key, parked in delta.parked.items():
            if parked is None:
                self.parked.pop(key, None)
            else:
                self.parked[key] = parked

    def snapshot(self) -> Snapshot:
        """Raises ValueError if what was recorded does not add up."""
        attempts = {offset: n for offset, n in self.attempts.items() if offset >= self.base}
        unfinished = tuple(sorted(self.unfinished))
        return Snapshot(
            self.epoch,
            self.base,
            self.read,
            unfinished,
            attempts,
            self.spilled,
            self.leases,
            self.parked,
        )


@dataclass(slots=True)
class _Replay:
    by_period: bool
    epoch: Epoch | None = None
    own: Own | None = None
    clean: bool = False
    parts: list[SnapshotPart] = field(default_factory=list)
    parts_at: int = 0
    state: _State | None = None
    snapshot_at: int | None = None

    def see(self, offset: int, record: Record) -> None:
        if isinstance(record, Own):
            if self.by_period and self.own is not None and record.period < self.own.period:
                return  # the same
            self.epoch, self.own, self.clean, self.parts = Epoch(offset), record, False, []
        elif record.epoch != self.epoch:
            return  # a late word of somebody who is the owner no more
        elif isinstance(record, SnapshotPart):
            self._part(offset, record)
        elif isinstance(record, Delta):
            self._delta(record)
        else:
            self.clean = True

    def _part(self, offset: int, part: SnapshotPart) -> None:
        if part.number == 0:
            self.parts, self.parts_at = [], offset
        elif part.number != len(self.parts):
            return  # its beginning is missing
        self.parts.append(part)
        if len(self.parts) == part.of:
            whole = joined(self.parts)
            self.snapshot_at = self.parts_at
            self.state = _State(
                self.parts_at,
                whole.epoch,
                whole.base,
                whole.read,
                set(whole.unfinished),
                whole.attempts,
                whole.spilled,
                whole.leases,
                whole.parked,
            )

    def _delta(self, delta: Delta) -> None:
        if self.state is not None and self.state.at == delta.snapshot:
            self.state.apply(delta)
        elif self.snapshot_at is None or self.snapshot_at < delta.snapshot:
            self.state, self.snapshot_at = None, delta.snapshot


def replay(
    records: Iterable[tuple[int, Record]],
    *,
    epoch_before: Epoch | None = None,
    by_period: bool = False,
) -> LastOwner | None:
    """The newest ownership period in *records* (pairs of queue offset and record, rising).

    Only the highest epoch counts; later records of a lower one are a late zombie's and ignored.
    A snapshot holds until the next one, over an owner too that crashed before it wrote any.
    *epoch_before* is the ownership period that the first of them belong to, if that is known.
    *by_period*: whoever owns a queue owns its parked twin, where ``period`` is the epoch there: an
    ``own`` of a lower one came late, and is ignored as well.
    None if there is no ``own`` record. Raises ValueError if they do not add up.
    """
    seen = _Replay(by_period, epoch_before)
    for offset, record in records:
        seen.see(offset, record)
    if seen.own is None or seen.epoch is None:
        return None
    snapshot = None if seen.state is None else seen.state.snapshot()
    return LastOwner(seen.epoch, seen.own, snapshot, seen.clean, seen.snapshot_at)
