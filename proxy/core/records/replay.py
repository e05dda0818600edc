"""What the ownership records of a queue say all together. Pure."""

from __future__ import annotations

from array import array
from bisect import bisect_left
from collections.abc import Iterable
from dataclasses import dataclass, field, replace

from proxy.core.keys.ids import Epoch
from proxy.core.keys.key_rules import KeyRecord
from proxy.core.records.parked_key import ParkedKey
from proxy.core.records.paused_key import PausedKey
from proxy.core.records.record import (
    Anchor,
    Delta,
    Own,
    Record,
    Snapshot,
    SnapshotPart,
    Unreadable,
    joined,
)

_MS = 1_000_000


@dataclass(frozen=True, slots=True)
class LastOwner:
    """What the records say of the newest ownership period.

    ``snapshot`` is the state that they add up to. It may be of periods before: what was finished
    then is finished still. ``snapshot_at`` is where the records of it begin, ``last_at`` where the
    last of them stands. If they begin before the records that were replayed, or before the first of
    these that says who was the owner, ``snapshot`` is None.
    ``damage``: what of them could not be had, None if all is well. ``forgotten``: retention deleted
    the snapshot, which says nothing of leases: they have ended long ago. ``to``: as in ``Clean``.
    ``life``: the incarnation of the topic that the state, or without one the period, is of; None if
    nobody said. ``begins_life``: see ``begun_anew``. ``log_offset``: the place of the last of these
    records in the log of its broker, None if nobody looked.
    """

    epoch: Epoch
    own: Own
    snapshot: Snapshot | None
    clean: bool
    snapshot_at: int | None = None
    last_at: int = 0
    damage: str | None = None
    forgotten: bool = False
    to: str = ""
    life: int | None = None
    begins_life: bool = False
    log_offset: int | None = None

    def in_life(self, life: int | None) -> LastOwner:
        """What counts of it in incarnation *life* of the topic (None: nobody can say)."""
        return self if life is None or self.life in (None, life) else self.begun_anew(life)

    def begun_anew(self, life: int | None) -> LastOwner:
        """What counts of it in *life*, which is another one: nothing but pauses, which people put
        on names of keys. All offsets begin anew, and copies of parked messages belong to nobody.
        """
        snapshot = self.snapshot
        return replace(
            self,
            snapshot=None if snapshot is None else replace(snapshot.cut_at(0), longest_lease_ms=0),
            snapshot_at=None,
            damage=None,
            forgotten=False,
            life=life,
            begins_life=True,
        )

    def wait_ns(self, *, broker_start_ms: int, broker_lock_expiry_s: float) -> int:
        """How long the next owner waits before its first hand-out, so that old leases have ended.

        Nothing after a clean end. A restarted broker may have forgotten the lock, so the old owner
        may trust it still: trust plus its longest lease. Else its trust ended before the lock
        could expire, and only what a lease outlives that by is left. Nor does anybody know which
        leases lived on past a hand-over where records are damaged. What the old owner itself had to
        wait for (``hold_ms``) began before its trust did, so no trust is added to that.
        """
        if self.clean:
            return 0
        if self.damage is not None or broker_start_ms != self.own.broker_start_ms:
            return max(self.own.trust_ms + self.own.longest_lease_ms, self.own.hold_ms) * _MS
        head_start_ms = broker_lock_expiry_s * 1000 - self.own.trust_ms
        longest_ms = max(self.own.longest_lease_ms, self.own.hold_ms)
        return int(max(0.0, longest_ms - head_start_ms) * _MS)


@dataclass(slots=True)
class _State:
    """A snapshot that deltas change. ``last``: where the last of these records stands."""

    at: int
    last: int
    epoch: Epoch
    base: int
    read: int
    unfinished: set[int]
    attempts: dict[int, int]
    spilled: dict[bytes, array[int]]
    leases: dict[int, int]
    parked: dict[bytes, ParkedKey]
    paused: dict[bytes | None, PausedKey]
    keys: KeyRecord | None = None
    anchor: Anchor | None = None

    @classmethod
    def of(cls, whole: Snapshot, *, at: int) -> _State:
        """What *whole*, whose records begin at *at*, says; that stays as it is."""
        return cls(
            at,
            at,
            whole.epoch,
            whole.base,
            whole.read,
            set(whole.unfinished),
            dict(whole.attempts),
            {key: chain[:] for key, chain in whole.spilled.items()},
            dict(whole.leases),
            dict(whole.parked),
            dict(whole.paused),
            keys=whole.keys,
            anchor=whole.anchor,
        )

    def apply(self, delta: Delta, *, at: int) -> None:
        self.epoch, self.base, self.read, self.last = delta.epoch, delta.base, delta.read, at
        self.keys, self.anchor = delta.keys or self.keys, delta.anchor or self.anchor
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
        for name, paused in delta.paused.items():
            if paused is None:
                self.paused.pop(name, None)
            else:
                self.paused[name] = paused

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
            paused=self.paused,
            keys=self.keys,
            anchor=self.anchor,
        )


@dataclass(slots=True)
class _Replay:
    by_period: bool
    begins: bool  # nothing is left ahead of the records
    epoch: Epoch | None = None
    own: Own | None = None
    clean: bool = False
    to: str = ""
    parts: list[SnapshotPart] = field(default_factory=list)
    parts_at: int = 0
    joined_at: int = -1  # where the last part of the last snapshot that is complete stands
    serial: int = 0  # of the newest snapshot of the period, as far as it is known
    state: _State | None = None
    whole: Snapshot | None = None  # the last one that is complete
    snapshot_at: int | None = None
    life: int | None = None  # that the last snapshot is of
    first: int | None = None  # where the records begin of which it is known who was the owner
    damage: str | None = None
    longest_ms: int = 0  # of leases, in the period
    unreadable_at: int = -1  # the last record that may have been that of an owner

    def see(self, offset: int, record: Record | Unreadable) -> None:
        if self.begins and isinstance(record, SnapshotPart) and record.own is not None:
            self._repeated(record.epoch, record.own)
        if self.first is None and (self.epoch is not None or isinstance(record, Own)):
            self.first = offset
        if isinstance(record, Unreadable):
            self.unreadable_at = offset
            self._damaged(offset, record.why)
        elif isinstance(record, Own):
            if self.by_period and self.own is not None and record.period < self.own.period:
                return  # the same
            self._begin(Epoch(offset), record)
        elif self.epoch is not None and record.epoch > self.epoch and not self.by_period:
            self._damaged(offset, f"it is of epoch {record.epoch}, which has no owner")
        elif record.epoch != self.epoch:
            return  # a late word of somebody who is the owner no more
        elif isinstance(record, SnapshotPart):
            self.longest_ms = max(self.longest_ms, record.piece.longest_lease_ms)
            self._part(offset, record)
        elif isinstance(record, Delta):
            self.longest_ms = max(self.longest_ms, record.longest_lease_ms)
            self._delta(offset, record)
        else:
            self.clean, self.to = True, record.to

    def _begin(self, epoch: Epoch, own: Own) -> None:
        self.epoch, self.own, self.clean, self.parts, self.serial = epoch, own, False, [], 0
        self.longest_ms, self.to = own.longest_lease_ms, ""

    def _repeated(self, epoch: Epoch, own: Own) -> None:
        """A snapshot of that period says how it began: it counts if the record of that is gone."""
        known = self.epoch, self.own
        if known[0] is None or (known[1] is None and epoch >= known[0]):
            self._begin(epoch, own)
        elif known[1] is not None and epoch != known[0]:
            by_period = self.by_period and own.period != known[1].period
            if own.period > known[1].period if by_period else epoch > known[0]:
                self._begin(epoch, own)

    def _damaged(self, offset: int, why: str) -> None:
        self.damage = f"record {offset}: {why}"

    def _part(self, offset: int, part: SnapshotPart) -> None:
        if part.serial and part.serial < self.serial:
            return  # its writer gave it up, and wrote a newer one
        newer, self.serial = part.serial > self.serial, max(part.serial, self.serial)
        if part.number == 0:
            self.parts, self.parts_at = [], offset
        elif newer or part.number != len(self.parts):
            if newer:
                self.parts = []
            elif part.serial and part.number < len(self.parts):
                return  # it was sent once more, and is here twice
            self._orphan(offset, part)
            return
        self.parts.append(part)
        if len(self.parts) < part.of:
            return
        try:
            self.whole = joined(self.parts)
        except ValueError as error:
            self._damaged(offset, f"the parts of a snapshot do not add up: {error}")
            return
        self.joined_at = offset
        own = self.parts[0].own or self.own
        self.life = None if own is None else own.life
        self.state, self.snapshot_at = _State.of(self.whole, at=self.parts_at), self.parts_at
        if self.epoch is not None and self.unreadable_at < self.epoch:
            self.damage = None  # it says all anew, and so does the record of its owner

    def _orphan(self, offset: int, part: SnapshotPart) -> None:
        """Its beginning is missing; it may stand ahead of all records here, and then what seemed to
        be the newest snapshot is one that came late, in the middle of it.
        """
        if part.serial and self.state is not None and offset - part.number <= self.joined_at:
            self.state, self.snapshot_at, self.whole = None, None, None

    def _delta(self, offset: int, delta: Delta) -> None:
        at = -1 if self.state is None else self.state.at
        if delta.snapshot < at and (self.epoch is None or at > self.epoch):
            return  # it was late: its owner wrote a snapshot instead
        if self.state is not None and delta.snapshot == at:
            sound = self.damage is None if delta.after is None else delta.after == self.state.last
            if sound:
                self.state.apply(delta, at=offset)
            elif delta.after is not None and delta.after > self.state.last:
                self._damaged(offset, f"it follows record {delta.after}, which is missing")
        elif self.first is not None and self.first <= delta.snapshot:
            self._damaged(offset, f"it builds on a snapshot at {delta.snapshot}, not to be had")
        else:
            self.state, self.snapshot_at, self.whole = None, delta.snapshot, None

    def snapshot(self) -> Snapshot | None:
        """The state that all add up to; an older one if they do not."""
        snapshot = self.whole
        if self.state is not None:
            try:
                snapshot = self.state.snapshot()
            except ValueError as error:
                self._damaged(self.state.last, f"the records up to it do not add up: {error}")
        return snapshot


def replay(
    records: Iterable[tuple[int, Record | Unreadable]],
    *,
    epoch_before: Epoch | None = None,
    by_period: bool = False,
    begins: bool = True,
) -> LastOwner | None:
    """The newest ownership period in *records* (pairs of queue offset and record, rising).

    Only the highest epoch counts; later records of a lower one are a late zombie's and ignored.
    A snapshot holds until the next one, over an owner too that crashed before it wrote any.
    *epoch_before* is the ownership period that the first of them belong to, if that is known.
    *begins*: nothing is left ahead of them. Else who was the owner may stand there, and what
    snapshots say of it is not believed: a late one may come first. *by_period*: whoever owns a
    queue owns its parked twin, where ``period`` is the epoch there: an ``own`` of a lower one came
    late, and is ignored as well.

    Where records are missing or unreadable (``damage`` says so) the state is that of the last ones
    that add up: what finished since is repeated, unless it was committed, and which keys were
    parked since has to be found elsewhere. None if none says who was an owner.
    """
    seen = _Replay(by_period, begins, epoch_before)
    for offset, record in records:
        seen.see(offset, record)
    if seen.own is None or seen.epoch is None:
        return None
    snapshot = seen.snapshot()
    return LastOwner(
        seen.epoch,
        replace(seen.own, longest_lease_ms=seen.longest_ms),
        snapshot,
        seen.clean and seen.damage is None,
        seen.snapshot_at,
        0 if seen.state is None else seen.state.last,
        seen.damage,
        to=seen.to,
        life=seen.own.life if snapshot is None else seen.life,
    )
