"""Records of other owners between an owner's own records, which decide whether these count. Pure.

An ``own`` record may arrive late, from a proxy that was stopped, or delayed by a slow link, while
its lock was given to another. The highest epoch counts for the next owner, so from there on the
records of the live owner are ignored. The owner detects this by the offsets of its records.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from proxy.core.keys.ids import Epoch
from proxy.core.records.record import Delta, Own, Record, SnapshotPart, Unreadable


def gaps(end: int, stored: Sequence[int]) -> list[range]:
    """Return the offsets between those where our records are *stored*, starting at *end*."""
    expected = (end, *(offset + 1 for offset in stored))
    return [range(low, high) for low, high in zip(expected, stored, strict=False) if low < high]


def later_owner(found: Iterable[Record | Unreadable], *, of_twin: Own | None) -> Own | None:
    """Return the owner whose records count from there on, if not ours.

    *of_twin*: in the records of a parked twin, our own record; those of earlier owners of its queue
    came late and are skipped.
    """
    for record in found:
        if isinstance(record, Own) and (of_twin is None or not record.began_before(of_twin)):
            return record
    return None


def has_late_snapshot(found: Iterable[Record | Unreadable], *, epoch: Epoch) -> bool:
    """Return True if one of our own snapshots is there that was thought lost: our records before
    it, and while it was on its way, are ignored.
    """
    return any(isinstance(record, SnapshotPart) and record.epoch == epoch for record in found)


def certain_base(records: Iterable[tuple[int, Record | Unreadable]]) -> tuple[int, Epoch] | None:
    """Return the offset of a snapshot from which on all records must be read to know the newest
    period, and the lowest epoch that it can have; None if *records*, the newest of a queue, do not
    tell.

    The owner of a long period is named only far back, and in snapshots, which may come late. But
    an owner whose delta builds on a snapshot has seen all records up to that one, and found no
    later owner among them.
    """
    deltas = [
        record
        for offset, record in records
        if isinstance(record, Delta) and record.epoch < offset > record.snapshot
    ]
    newest = max(deltas, key=lambda delta: delta.snapshot, default=None)
    return None if newest is None else (newest.snapshot, newest.epoch)
