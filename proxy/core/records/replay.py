"""Replay of a queue's ownership records into its state. Pure."""

from __future__ import annotations

from array import array
from bisect import bisect_left
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from types import MappingProxyType

from proxy.core.keys.ids import Epoch
from proxy.core.keys.key_rules import KeyRecord
from proxy.core.records.parked_key import ParkedKey, cut_parked
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
    """State of the newest ownership period according to the records.

    ``snapshot`` is the replayed state. It may come from earlier periods: messages finished then
    stay finished. ``snapshot_at`` is the offset of its first record, ``last_at`` that of its last
    one. ``snapshot`` is None if it begins before the replayed records, or before the first of them
    with a known owner.

    ``damage``: the missing or unreadable records, None if there are none. ``forgotten``: retention
    deleted the snapshot; its leases ended long ago. ``to``: as in ``Clean``. ``life``: the
    incarnation of the topic to which the state, or else the period, belongs; None if not recorded.
    ``begins_life``: see ``in_new_life``. ``log_offset``: place of the last of these records in the
    broker's log, ``stored_ms``: when it was stored by the broker's clock; None if unknown.
    ``origin_life``: in a parked twin, as ``life``, but of the topic of its queue.
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
    origin_life: int | None = None
    stored_ms: int | None = None

    def in_life(
        self, life: int | None, *, former: Mapping[int, int] = MappingProxyType({})
    ) -> LastOwner:
        """Return the state that is valid in incarnation *life* of the topic (None: unknown).

        *former*: incarnations that *life* continues, with the offset up to which it does: what
        lies behind belongs to messages that are gone, and new ones get the same offsets.
        """
        if life is None or self.life in (None, life):
            return self
        end = None if self.life is None else former.get(self.life)
        return self.in_new_life(life) if end is None else self._continued(life, former, end)

    def _continued(self, life: int, former: Mapping[int, int], end: int) -> LastOwner:
        """Return the state cut at *end*. The next owner records it as a snapshot of *life*: deltas
        would belong to the former life, and be cut again.
        """
        snapshot, own, clean = self.snapshot, self.own, self.clean
        if snapshot is not None and snapshot.read > end:
            snapshot = snapshot.cut_at(end)
        if own.life is not None and own.life in former:
            start = None if own.start is None else min(own.start, former[own.life])
            # Later owners may have had leases, but their records are gone.
            own, clean = replace(own, life=life, start=start, broker_start_ms=0), False
        return replace(self, own=own, snapshot=snapshot, clean=clean, snapshot_at=None, life=life)

    def in_new_life(self, life: int | None) -> LastOwner:
        """Return the state that is valid in another incarnation *life*: only pauses, which
        operators apply to names of keys. Offsets start again, and copies of parked messages have no
        owner.
        """
        snapshot = self.snapshot
        return replace(
            self,
            snapshot=None
            if snapshot is None
            else replace(snapshot.cut_at(0), longest_lease_ms=0, moved_from=None),
            snapshot_at=None,
            damage=None,
            forgotten=False,
            life=life,
            begins_life=True,
        )

    def of_origin(
        self, life: int | None, *, former: Mapping[int, int] = MappingProxyType({})
    ) -> LastOwner:
        """Return the state of a parked twin that is valid in incarnation *life* of the topic of its
        queue (None: unknown); *former* as in ``in_life``.

        Copies of another one count as finished: their messages are gone, and new messages have the
        same offsets. The next owner records it as a snapshot, as deltas would belong to the former
        life.
        """
        if life is None or self.origin_life in (None, life):
            return self
        end = None if self.origin_life is None else former.get(self.origin_life)
        snapshot = self.snapshot
        if snapshot is not None and end is not None:
            snapshot = replace(snapshot, parked=cut_parked(snapshot.parked, end))
        elif snapshot is not None:
            snapshot = replace(snapshot.moved_to(snapshot.read), parked={}, longest_lease_ms=0)
        return replace(self, snapshot=snapshot, snapshot_at=None, origin_life=life)

    def wait_ns(self, *, broker_start_ms: int, broker_lock_expiry_s: float) -> int:
        """Return how long the next owner waits before its first delivery, so that old leases have
        ended.

        The result is 0 after a clean end. A broker with another *broker_start_ms* may have
        forgotten the lock, so the old owner may still trust it: trust plus its longest lease.
        Otherwise its trust ended before the lock could expire, and only the time by which a lease
        outlives that is left. With damaged records, it is also unknown which leases survived a
        hand-over. The old owner's own wait (``hold_ms``) began before its trust did, so no trust is
        added to it; once it is over, it does not count.
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
    """A snapshot to which deltas are applied. ``last``: offset of the last of these records."""

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
    moved_from: int | None = None

    @classmethod
    def of(cls, whole: Snapshot, *, at: int) -> _State:
        """Return a copy of *whole*, whose records begin at *at*."""
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
            moved_from=whole.moved_from,
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

    def _unfinished_of(self, offsets: set[int]) -> set[int]:
        """Return those of *offsets* that are unfinished. O(spilled) if one may be spilled."""
        known = offsets & self.unfinished
        if others := offsets - known:
            known.update(
                each for chain in self.spilled.values() for each in chain if each in others
            )
        return known

    def snapshot(self) -> Snapshot:
        """Return the state. Raise ValueError if the records contradict each other."""
        unfinished = tuple(sorted(self.unfinished))
        known = self._unfinished_of(self.attempts.keys() | self.leases.keys())
        attempts = {offset: n for offset, n in self.attempts.items() if offset in known}
        leases = {offset: ms for offset, ms in self.leases.items() if offset in known}
        return Snapshot(
            self.epoch,
            self.base,
            self.read,
            unfinished,
            attempts,
            self.spilled,
            leases,
            self.parked,
            paused=self.paused,
            keys=self.keys,
            anchor=self.anchor,
            moved_from=self.moved_from,
        )


@dataclass(slots=True)
class _Replay:
    by_period: bool
    begins: bool  # no records precede these
    epoch: Epoch | None = None
    own: Own | None = None
    clean: bool = False
    to: str = ""
    parts: list[SnapshotPart] = field(default_factory=list)
    parts_at: int = 0
    joined_at: int = -1  # offset of the last part of the last complete snapshot
    serial: int = 0  # of the newest known snapshot of the period
    state: _State | None = None
    whole: Snapshot | None = None  # the last complete one
    snapshot_at: int | None = None
    life: int | None = None  # of the last snapshot
    origin_life: int | None = None  # the same
    first: int | None = None  # offset of the first record with a known owner
    damage: str | None = None
    longest_ms: int = 0  # longest lease of the period
    unreadable_at: int = -1  # the last record that may have been an owner's

    def see(self, offset: int, record: Record | Unreadable) -> None:
        if not isinstance(record, Own | Unreadable) and record.epoch >= offset:
            return  # late, from an owner whose first record the broker lost with the end of its log
        if self.begins and isinstance(record, SnapshotPart) and record.own is not None:
            self._repeated(record.epoch, record.own)
        if self.first is None and (self.epoch is not None or isinstance(record, Own)):
            self.first = offset
        if isinstance(record, Unreadable):
            self.unreadable_at = offset
            self._damaged(offset, record.why)
        elif isinstance(record, Own):
            if self.by_period and self.own is not None and record.began_before(self.own):
                return  # came late, too
            self._begin(Epoch(offset), record)
        elif self.epoch is not None and record.epoch > self.epoch and not self.by_period:
            self._damaged(offset, f"it is of epoch {record.epoch}, which has no owner")
        elif record.epoch != self.epoch:
            return  # late, from a former owner
        elif isinstance(record, SnapshotPart):
            self.longest_ms = max(self.longest_ms, record.piece.longest_lease_ms)
            if record.own is not None:
                self._holds_at_most(record.own.hold_ms)
            self._part(offset, record)
        elif isinstance(record, Delta):
            self.longest_ms = max(self.longest_ms, record.longest_lease_ms)
            if record.hold_over:
                self._holds_at_most(0)
            self._delta(offset, record)
        else:
            self.clean, self.to = True, record.to

    def _begin(self, epoch: Epoch, own: Own) -> None:
        if own.period_life is None and self.own is not None and self.own.period_life is not None:
            # An earlier version wrote it; the next owner is compared with what is known.
            own = replace(own, period_life=self.own.period_life)
        self.epoch, self.own, self.clean, self.parts, self.serial = epoch, own, False, [], 0
        self.longest_ms, self.to = own.longest_lease_ms, ""

    def _holds_at_most(self, hold_ms: int) -> None:
        """Shorten the period's own wait, which would otherwise count again in each take-over."""
        if self.own is not None and self.own.hold_ms > hold_ms:
            self.own = replace(self.own, hold_ms=hold_ms)

    def _repeated(self, epoch: Epoch, own: Own) -> None:
        """Use the ``own`` repeated in a snapshot if the original record is gone."""
        known = self.epoch, self.own
        if known[0] is None or (known[1] is None and epoch >= known[0]):
            self._begin(epoch, own)
        elif known[1] is not None and epoch != known[0]:
            earlier, later = own.began_before(known[1]), known[1].began_before(own)
            if later if self.by_period and (earlier or later) else epoch > known[0]:
                self._begin(epoch, own)

    def _damaged(self, offset: int, why: str) -> None:
        self.damage = f"record {offset}: {why}"

    def _part(self, offset: int, part: SnapshotPart) -> None:
        if part.serial and part.serial < self.serial:
            return  # its writer replaced it by a newer one
        newer, self.serial = part.serial > self.serial, max(part.serial, self.serial)
        if part.number == 0:
            self.parts, self.parts_at = [], offset
        elif newer or part.number != len(self.parts):
            if newer:
                self.parts = []
            elif part.serial and part.number < len(self.parts):
                return  # sent again, so it is here twice
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
        self.origin_life = None if own is None else own.origin_life
        self.state, self.snapshot_at = _State.of(self.whole, at=self.parts_at), self.parts_at
        if self.epoch is not None and self.unreadable_at < self.epoch:
            self.damage = None  # the snapshot is complete, and its owner is known

    def _orphan(self, offset: int, part: SnapshotPart) -> None:
        """Handle a part whose beginning is missing. If that precedes all records here, the
        apparently newest snapshot came late, in the middle of this one.
        """
        if part.serial and self.state is not None and offset - part.number <= self.joined_at:
            self.state, self.snapshot_at, self.whole = None, None, None

    def _delta(self, offset: int, delta: Delta) -> None:
        at = -1 if self.state is None else self.state.at
        if delta.snapshot < at and (self.epoch is None or at > self.epoch):
            return  # late: its owner wrote a snapshot instead
        if self.state is not None and delta.snapshot == at:
            sound = self.damage is None if delta.after is None else delta.after == self.state.last
            if sound:
                self.state.apply(delta, at=offset)
            elif delta.after is not None and delta.after > self.state.last:
                self._damaged(offset, f"it follows record {delta.after}, which is missing")
        elif self.first is not None and self.first <= delta.snapshot:
            self._damaged(offset, f"it builds on a missing snapshot at {delta.snapshot}")
        else:
            self.state, self.snapshot_at, self.whole = None, delta.snapshot, None

    def snapshot(self) -> Snapshot | None:
        """Return the state of all records; an older one if they contradict each other."""
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
    """Return the newest ownership period in *records* (pairs of queue offset and record, rising).

    Only the highest epoch counts; later records of a lower one come from a former owner and are
    ignored. A snapshot stays valid until the next one, even if a later owner crashed before writing
    any.

    Where records are missing or unreadable (see ``damage``), the state is that of the last
    consistent ones: messages finished since then are repeated unless committed, and keys parked
    since then must be found elsewhere. Return None if no record names an owner.

    Args:
        records: pairs of queue offset and record.
        epoch_before: the ownership period of the first records, if known.
        begins: True if no records precede them. Otherwise those may name the owner, and the owner
            in snapshots is ignored: a late one may come first.
        by_period: True for a parked twin, which belongs to the owner of its queue; ``period`` is
            the epoch there, and an ``own`` with a lower one is late and ignored, unless epochs
            started over (``Own.began_before``).
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
        origin_life=seen.own.origin_life if snapshot is None else seen.origin_life,
    )
