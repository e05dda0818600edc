"""What stands between the records of an owner, which says whether these count. Pure.

An ``own`` record may be late: of a proxy that stood still, or that a slow link held back, while its
lock was given to another. Of the epochs the highest counts for whoever comes next, so from there on
what the living owner writes counts for nobody. It finds out by where its records came to stand.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from proxy.core.keys.ids import Epoch
from proxy.core.records.record import Own, Record, SnapshotPart, Unreadable


def gaps(end: int, stored: Sequence[int]) -> list[range]:
    """Offsets of others among those where ours are *stored*; the first one should be *end*."""
    expected = (end, *(offset + 1 for offset in stored))
    return [range(low, high) for low, high in zip(expected, stored, strict=False) if low < high]


def later_owner(found: Iterable[Record | Unreadable], *, twin_of: Epoch | None) -> Own | None:
    """Whose records count from there on, if not ours. *twin_of*: in the records of a parked twin,
    the epoch of its queue, by which ``own`` records that came late are passed over there.
    """
    for record in found:
        if isinstance(record, Own) and (twin_of is None or record.period >= twin_of):
            return record
    return None


def has_late_snapshot(found: Iterable[Record | Unreadable], *, epoch: Epoch) -> bool:
    """True if one of our own is there, or a part, of which nobody knew whether it was stored: what
    we wrote before it, and while it was on its way, counts for nothing.
    """
    return any(isinstance(record, SnapshotPart) and record.epoch == epoch for record in found)
