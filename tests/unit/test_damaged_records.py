"""Ownership records of which some are missing, unreadable or wrong."""

from __future__ import annotations

import pytest

from proxy.core.ids import Epoch
from proxy.core.ownership_record import Clean, Delta, Record, Snapshot, SnapshotPart, Unreadable
from proxy.core.ownership_replay import LastOwner, replay
from proxy.core.parked_key import ParkedKey
from tests.unit.test_ownership_record import SECOND, own, whole

FIRST = Snapshot(Epoch(1), 2, 9, (2, 5), parked={b"a": ParkedKey(2, 1)})
KEPT = [(1, own()), (2, whole(FIRST)), (3, Delta(Epoch(1), 2, 5, 12, left=(2,), after=2))]
AT_3 = Snapshot(Epoch(1), 5, 12, (5,), parked={b"a": ParkedKey(2, 1)})
GARBAGE = Unreadable("not an ownership record: its kind is x")


@pytest.mark.parametrize(
    ("later", "damage"),
    [
        pytest.param([(4, GARBAGE)], "record 4: not an", id="garbage at the end"),
        pytest.param(
            [(4, GARBAGE), (5, Delta(Epoch(1), 2, 7, 20, after=4))],
            "record 5: it follows record 4, which is missing",
            id="a delta that nobody can read, and one behind it",
        ),
        pytest.param(
            [(4, GARBAGE), (5, Delta(Epoch(1), 2, 7, 20))],
            "record 4: not an",
            id="the same, written by a version that names no predecessor",
        ),
        pytest.param(
            [(5, Delta(Epoch(1), 2, 7, 20, after=4)), (6, Delta(Epoch(1), 2, 9, 20, after=5))],
            "record 6: it follows record 5, which is missing",
            id="a gap",
        ),
        pytest.param(
            [
                (4, SnapshotPart(0, 2, Snapshot(Epoch(1), 7, 20))),
                (6, Delta(Epoch(1), 4, 8, 20, after=4)),
            ],
            "record 6: it builds on a snapshot at 4, not to be had",
            id="a snapshot without its second part",
        ),
        pytest.param(
            [
                (4, SnapshotPart(0, 2, Snapshot(Epoch(1), 7, 20))),
                (5, SnapshotPart(1, 2, Snapshot(Epoch(1), 9, 9, spilled={}, unfinished=()))),
                (6, Clean(Epoch(4))),
            ],
            "record 6: it is of epoch 4, which has no owner",
            id="words of an owner whose record is gone",
        ),
    ],
)
def test_damaged_records_leave_the_last_state_that_adds_up(
    later: list[tuple[int, Record | Unreadable]], damage: str
) -> None:
    records: list[tuple[int, Record | Unreadable]] = [*KEPT, *later]
    last = replay(records)
    assert last is not None
    assert last.damage is not None
    assert last.damage.startswith(damage)
    if later[-1][1] != Clean(Epoch(4)):
        assert last.snapshot == AT_3
    assert not last.clean
    waited = last.wait_ns(broker_start_ms=1, broker_lock_expiry_s=10)
    assert waited == 10 * SECOND  # nobody knows which leases were handed over


def test_a_clean_end_behind_something_unreadable_is_none() -> None:
    """It may have been a snapshot that named living leases."""
    last = replay([*KEPT, (4, GARBAGE), (5, Clean(Epoch(1)))])
    assert last is not None
    assert not last.clean


def test_a_delta_that_links_up_counts_whatever_stands_between() -> None:
    """Somebody else wrote there; but it may have been an owner, so it is damage still."""
    last = replay([*KEPT, (4, GARBAGE), (5, Delta(Epoch(1), 2, 12, 30, left=(5,), after=3))])
    assert last is not None
    assert last.snapshot is not None
    assert (last.snapshot.read, last.damage is None) == (30, False)


def test_a_snapshot_of_a_later_owner_mends_all() -> None:
    again = Snapshot(Epoch(5), 7, 30)
    last = replay([*KEPT, (4, GARBAGE), (5, own(period=2)), (6, whole(again))])
    assert last == LastOwner(Epoch(5), own(period=2), again, clean=False, snapshot_at=6, last_at=6)


def test_a_delta_that_came_late_is_no_damage() -> None:
    """Its writer gave it up, and wrote a snapshot instead."""
    late = Delta(Epoch(1), 2, 9, 20, after=3)
    last = replay([*KEPT, (4, whole(Snapshot(Epoch(1), 6, 20))), (5, late)])
    assert last is not None
    assert (last.damage, last.snapshot_at) == (None, 4)


def test_records_that_contradict_each_other_leave_their_snapshot() -> None:
    last = replay([*KEPT[:2], (3, Delta(Epoch(1), 2, 20, 12, after=2))])
    assert last is not None
    assert last.snapshot == FIRST
    assert last.damage is not None
    assert "the records up to it do not add up" in last.damage


def test_parts_that_contradict_each_other_are_no_snapshot() -> None:
    cut = [SnapshotPart(n, 2, Snapshot(Epoch(1), 5, 12, (5,))) for n in (0, 1)]
    last = replay([*KEPT, (4, cut[0]), (5, cut[1])])
    assert last is not None
    assert last.snapshot == AT_3
    assert last.damage is not None
