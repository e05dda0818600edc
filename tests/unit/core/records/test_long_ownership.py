"""An ownership period whose first records were deleted by retention."""

from __future__ import annotations

import pytest

from proxy.core.jobs.spilled_chains import packed
from proxy.core.keys.ids import Epoch
from proxy.core.keys.key_rules import KeyRecord, KeyRule
from proxy.core.records.paused_key import PausedKey
from proxy.core.records.record import Clean, Delta, Own, Record, Snapshot, joined
from proxy.core.records.replay import LastOwner, replay
from proxy.core.records.snapshot_parts import parts

KEYS = KeyRecord(KeyRule("KEY"), version=2, since=3, before=KeyRule("$.id"))


def own(period: int) -> Own:
    return Own(f"owner {period}", 5000, 5000, broker_start_ms=1, period=period)


def told(epoch: int, period: int, read: int) -> Record:
    (part,) = parts(Snapshot(Epoch(epoch), 0, read, keys=KEYS), own(period))
    return part


@pytest.mark.parametrize("clean", [False, True])
def test_a_snapshot_names_the_owner_of_its_period(clean: bool) -> None:
    """The record that began it is older than everything the broker keeps."""
    records = [(90, told(4, 7, 30)), (91, Delta(Epoch(4), 90, 2, 31, after=90))]
    records += [(92, Clean(Epoch(4)))] if clean else []
    assert replay(records) == LastOwner(
        Epoch(4), own(7), Snapshot(Epoch(4), 2, 31, keys=KEYS), clean, snapshot_at=90, last_at=91
    )


def test_the_owner_in_a_snapshot_is_ignored_if_other_records_precede_it() -> None:
    """It may be a late one: its successor may be in records that were not read."""
    assert replay([(90, told(4, 7, 30))], begins=False) is None


def test_the_late_snapshot_of_an_owner_before_gives_way_to_those_of_the_owner() -> None:
    records = [
        (90, told(4, 7, 30)),
        (91, Delta(Epoch(20), 80, 5, 60, after=89)),
        (92, told(20, 8, 61)),
        (93, told(4, 7, 30)),
        (94, Delta(Epoch(20), 92, 5, 62, after=92)),
    ]
    last = replay(records)
    assert last is not None
    assert (last.epoch, last.own, last.damage) == (20, own(8), None)
    assert last.snapshot == Snapshot(Epoch(20), 5, 62, keys=KEYS)


def test_in_a_parked_twin_the_later_period_counts_whatever_the_epoch() -> None:
    records = [(90, told(54, 7, 30)), (91, told(53, 8, 61)), (92, told(54, 7, 30))]
    last = replay(records, by_period=True)
    assert last is not None
    assert (last.epoch, last.own.period, last.snapshot_at) == (53, 8, 91)


def test_deltas_on_an_older_snapshot_do_not_build_on_a_late_one() -> None:
    """Retention deleted everything ahead of the late one, including the base of the owner's
    records.
    """
    late = parts(Snapshot(Epoch(4), 0, 30))[0]
    records: list[tuple[int, Record]] = [
        (90, late),
        (91, own(8)),
        (92, Delta(Epoch(91), 80, 5, 60, after=89)),
    ]
    last = replay(records, epoch_before=Epoch(4))
    assert last is not None
    assert (last.epoch, last.snapshot, last.snapshot_at) == (91, None, 80)


@pytest.mark.parametrize(
    "snapshot",
    [
        Snapshot(Epoch(0), 0, 30_000, spilled={b"k": packed(range(16_384))}, keys=KEYS),
        Snapshot(Epoch(0), 0, 5, (1,), keys=KEYS),
    ],
    ids=["a full part", "many pauses"],
)
def test_parts_that_pauses_begin_know_the_order_key(snapshot: Snapshot) -> None:
    """Otherwise it would be lost with the last part, and so would the previous rule of a change."""
    for n in range(600):
        snapshot.paused[b"key%d" % n] = PausedKey(1, "me", "r" * 250)
    written = parts(snapshot, own(1))
    assert len(written) > 1
    assert [part.own is not None for part in written] == [True] + [False] * (len(written) - 1)
    assert joined(written) == snapshot
