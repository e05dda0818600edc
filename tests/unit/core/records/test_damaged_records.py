"""Ownership records that are missing, unreadable or wrong."""

from __future__ import annotations

import pytest

from proxy.core.jobs.spilled_chains import packed
from proxy.core.keys.ids import Epoch
from proxy.core.records.parked_key import ParkedKey
from proxy.core.records.record import Clean, Delta, Record, Snapshot, SnapshotPart, Unreadable
from proxy.core.records.replay import LastOwner, replay
from tests.unit.core.records.ownership_records import SECOND, own, whole

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
            id="an unreadable delta, and one behind it",
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
            "record 6: it builds on a missing snapshot at 4",
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
    assert waited == 10 * SECOND  # the handed-over leases are unknown


def test_a_clean_end_after_an_unreadable_record_does_not_count() -> None:
    """The unreadable record may have been a snapshot that named live leases."""
    last = replay([*KEPT, (4, GARBAGE), (5, Clean(Epoch(1)))])
    assert last is not None
    assert not last.clean


def test_a_delta_that_links_up_counts_despite_records_in_between() -> None:
    """Records of another proxy, perhaps an owner, are there, so they still count as damage."""
    last = replay([*KEPT, (4, GARBAGE), (5, Delta(Epoch(1), 2, 12, 30, left=(5,), after=3))])
    assert last is not None
    assert last.snapshot is not None
    assert (last.snapshot.read, last.damage is None) == (30, False)


def test_a_snapshot_of_a_later_owner_repairs_damage() -> None:
    again = Snapshot(Epoch(5), 7, 30)
    last = replay([*KEPT, (4, GARBAGE), (5, own(period=2)), (6, whole(again))])
    assert last == LastOwner(Epoch(5), own(period=2), again, clean=False, snapshot_at=6, last_at=6)


def test_a_delta_that_came_late_is_no_damage() -> None:
    """Its writer gave it up and wrote a snapshot instead."""
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


# ---- snapshots that came late --------------------------------------------------------------------

NEWER = Snapshot(Epoch(1), 9, 40, (12, 30), parked={b"new": ParkedKey(12, 1)})
CUT = [
    SnapshotPart(n, 3, Snapshot(Epoch(1), 9, 40, unfinished), serial=2)
    for n, unfinished in enumerate([(12,), (30,), ()])
]
CUT[2].piece.parked[b"new"] = NEWER.parked[b"new"]
LATE = [SnapshotPart(n, 2, FIRST, serial=1) for n in (0, 1)]


@pytest.mark.parametrize(
    "records",
    [
        pytest.param([*CUT, SnapshotPart(0, 1, FIRST, serial=1)], id="behind the newer one"),
        pytest.param([CUT[0], SnapshotPart(0, 1, FIRST, serial=1), *CUT[1:]], id="in the middle"),
        pytest.param([CUT[0], LATE[0], CUT[1], LATE[1], CUT[2]], id="interleaved"),
        pytest.param([LATE[0], *CUT, LATE[1]], id="around it"),
    ],
)
def test_a_snapshot_that_came_late_does_not_count(records: list[SnapshotPart]) -> None:
    """P2: otherwise keys parked and messages finished since would be forgotten after a crash."""
    last = replay([(1, own()), *enumerate(records, 2)])
    assert last is not None
    assert (last.snapshot, last.damage) == (NEWER, None)
    assert last.snapshot_at == 2 + records.index(CUT[0])


@pytest.mark.parametrize(
    "tries",
    [
        pytest.param([*CUT[:2], *CUT, CUT[2]], id="behind"),
        pytest.param([CUT[0], *CUT[:2], CUT[1], CUT[2]], id="in the middle"),
        pytest.param([*CUT[:2], *CUT[:2], CUT[1], CUT[2], CUT[1]], id="more than once"),
    ],
)
def test_a_part_that_is_there_twice_takes_nothing_away(tries: list[SnapshotPart]) -> None:
    """P2: the last snapshot of a reset is sent until it is stored, so a part of it may come late.
    Parked and paused keys must not be forgotten then.
    """
    last = replay([(1, own()), *enumerate(tries, 2)])
    assert last is not None
    assert (last.snapshot, last.damage) == (NEWER, None)


def test_parts_of_two_snapshots_do_not_form_one() -> None:
    """The newer one was never completed, so the state before it counts."""
    mixed = [*KEPT, (4, LATE[0]), (5, CUT[1]), (6, CUT[2])]
    last = replay(mixed)
    assert last is not None
    assert last.snapshot == AT_3


@pytest.mark.parametrize("late", [[SnapshotPart(0, 1, FIRST, serial=1)], LATE])
def test_a_late_snapshot_is_detected_even_if_the_newer_one_begins_before_the_records_read(
    late: list[SnapshotPart],
) -> None:
    """Then more records are read, and that snapshot is found complete."""
    last = replay([(1, own()), *enumerate([*late, CUT[1], CUT[2]], 5)])
    assert last is not None
    assert (last.snapshot, last.snapshot_at) == (None, None)


def test_a_snapshot_whose_beginning_is_missing_leaves_the_one_before() -> None:
    last = replay([*KEPT, (5, CUT[1]), (6, CUT[2])])
    assert last is not None
    assert last.snapshot == AT_3


# ---- a queue that lost its tail ------------------------------------------------------------------


@pytest.mark.parametrize("end", [0, 3, 5, 6, 13, 40])
def test_a_queue_that_lost_its_end_keeps_the_rest(end: int) -> None:
    known = Snapshot(
        Epoch(1),
        5,
        40,
        (5, 13, 30),
        {13: 2, 30: 3},
        {b"low": packed((6, 20)), b"high": packed((14, 15))},
        {13: 250},
        {b"a": ParkedKey(2, 1)},
    )
    left = known.cut_at(end)
    assert left.read == end
    assert left.base == min(known.base, end)
    unread = {offset for offset in range(end) if known.unread(offset)}
    assert {offset for offset in range(end) if left.unread(offset)} == unread
    assert left.attempts == {offset: n for offset, n in known.attempts.items() if offset < end}
    chains = {key: [each for each in chain if each < end] for key, chain in known.spilled.items()}
    assert {key: list(chain) for key, chain in left.spilled.items()} == {
        key: chain for key, chain in chains.items() if chain
    }
    assert left.leases == {}, "the lock is not unlocked before these end"
    assert left.parked == (known.parked if end else {}), "nothing left: a new queue"


@pytest.mark.parametrize("begins", [False, True])
def test_an_owner_that_the_broker_lost_hides_no_other(begins: bool) -> None:
    """Its first record was at offset 9, in the part of the log that a power failure removed."""
    late = SnapshotPart(0, 1, Snapshot(Epoch(9), 0, 30), own())
    log: list[tuple[int, Record | Unreadable]] = [*KEPT, (4, late), (5, Delta(Epoch(9), 4, 1, 30))]
    assert replay(log, begins=begins) == replay(KEPT, begins=begins)
