from __future__ import annotations

import base64
from dataclasses import replace
from typing import Any

import orjson
import pytest

from broker_core.names import Group, Topic, check_name
from proxy.core.jobs.spilled_chains import packed
from proxy.core.keys.ids import Epoch
from proxy.core.keys.order_key import named
from proxy.core.records.codec import decode, encode
from proxy.core.records.gaps import later_owner
from proxy.core.records.parked_key import ParkedKey
from proxy.core.records.paused_key import PausedKey
from proxy.core.records.record import (
    Clean,
    Delta,
    Own,
    Record,
    Snapshot,
    SnapshotPart,
    joined,
    ownership_topic,
)
from proxy.core.records.replay import LastOwner, replay
from proxy.core.records.snapshot_parts import parts
from tests.unit.core.records.ownership_records import SECOND, own, whole

# ---- the topic ----------------------------------------------------------------------------------


def test_the_topic_is_the_sha_1_of_group_nul_topic() -> None:
    """Checked literally, because a changed name would lose all records."""
    name = ownership_topic(Group("billing"), Topic("orders"))
    assert name == "%OWN%fda40c8cc68d6683"
    check_name("topic", name)


def test_group_and_topic_do_not_run_into_each_other() -> None:
    assert ownership_topic(Group("a"), Topic("bc")) != ownership_topic(Group("ab"), Topic("c"))


SNAPSHOT = (
    b'{"v":1,"kind":"snapshot","epoch":1,"part":0,"of":1,"base":1,"read":5,"unfinished":[],'
    b'"attempts":[],"leases":[],"spilled":%s}'
)


# ---- one record ---------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("record", "body"),
    [
        (
            Own("c@1", 5000, 6000, 77, 3, "host:9714"),
            b'{"v":1,"kind":"own","owner":"c@1","trust_ms":5000,"longest_lease_ms":6000,'
            b'"broker_start_ms":77,"period":3,"http":"host:9714"}',
        ),
        (
            SnapshotPart(
                0, 2, Snapshot(Epoch(4), 10, 20, (10, 13, 19), {19: 2, 10: 1}, leases={13: 250})
            ),
            b'{"v":1,"kind":"snapshot","epoch":4,"part":0,"of":2,"base":10,"read":20,'
            b'"unfinished":[0,3,6],"attempts":[[10,1],[19,2]],"leases":[[13,250]],"spilled":[],"parked":[],'
            b'"parked_by":[]}',
        ),
        (
            SnapshotPart(
                0,
                1,
                Snapshot(
                    Epoch(4),
                    2,
                    300,
                    spilled={b"key": packed((2, 4, 270))},
                    parked={b"key": ParkedKey(2, 3, True, 0.5, by="me", reason="so")},
                ),
            ),
            b'{"v":1,"kind":"snapshot","epoch":4,"part":0,"of":1,"base":2,"read":300,'
            b'"unfinished":[],"attempts":[],"leases":[],"spilled":[["a2V5","2:AgACAAoB"]],'
            b'"parked":[["a2V5",[2,3,true,0.5]]],"parked_by":[["a2V5","me","so"]]}',
        ),
        (
            Delta(
                Epoch(4),
                3,
                10,
                20,
                left=(10, 12),
                unfinished=(19,),
                attempts={13: 3},
                spilled={b"key": packed((14, 18))},
                heads={b"key": 11, b"\0": None},
                parked={b"key": ParkedKey(12, 4), b"\0": None},
                after=7,
            ),
            b'{"v":1,"kind":"delta","epoch":4,"snapshot":3,"after":7,"base":10,"read":20,"left":[10,2],'
            b'"unfinished":[9],"attempts":[[13,3]],"spilled":[["a2V5","1:DgQ="]],'
            b'"heads":[["a2V5",11],["AA==",null]],'
            b'"parked":[["a2V5",[12,4,false,0.0]],["AA==",null]],"parked_by":[]}',
        ),
        (
            SnapshotPart(
                0,
                1,
                Snapshot(
                    Epoch(4), 2, 3, paused={b"key": PausedKey(9, "me", "so"), None: PausedKey(8)}
                ),
            ),
            b'{"v":1,"kind":"snapshot","epoch":4,"part":0,"of":1,"base":2,"read":3,'
            b'"unfinished":[],"attempts":[],"leases":[],"spilled":[],"parked":[],"parked_by":[],'
            b'"paused":[["a2V5",[9,"me","so"]],[null,[8,"",""]]]}',
        ),
        (
            SnapshotPart(0, 1, Snapshot(Epoch(4), 2, 3), Own("c@1", 5000, 6000, 77, 3)),
            b'{"v":1,"kind":"snapshot","epoch":4,"part":0,"of":1,"base":2,"read":3,'
            b'"unfinished":[],"attempts":[],"leases":[],"spilled":[],"parked":[],"parked_by":[],'
            b'"own":{"owner":"c@1","trust_ms":5000,"longest_lease_ms":6000,"broker_start_ms":77,'
            b'"period":3,"http":""}}',
        ),
        (
            SnapshotPart(0, 1, Snapshot(Epoch(4), 2, 3), serial=7),
            b'{"v":1,"kind":"snapshot","epoch":4,"part":0,"of":1,"base":2,"read":3,'
            b'"unfinished":[],"attempts":[],"leases":[],"spilled":[],"parked":[],"parked_by":[],'
            b'"serial":7}',
        ),
        (
            Delta(Epoch(4), 3, 10, 20, after=7, paused={b"key": None, None: PausedKey(8)}),
            b'{"v":1,"kind":"delta","epoch":4,"snapshot":3,"after":7,"base":10,"read":20,"left":[],'
            b'"unfinished":[],"attempts":[],"spilled":[],"heads":[],"parked":[],"parked_by":[],'
            b'"paused":[["a2V5",null],[null,[8,"",""]]]}',
        ),
        (Clean(Epoch(4)), b'{"v":1,"kind":"clean","epoch":4}'),
        (Clean(Epoch(4), to="a@1#2"), b'{"v":1,"kind":"clean","epoch":4,"to":"a@1#2"}'),
    ],
)
def test_a_record_is_one_json_object_and_read_back(record: Record, body: bytes) -> None:
    assert encode(record) == body
    assert decode(body) == record


@pytest.mark.parametrize(
    ("body", "why"),
    [
        (b"", "empty document"),
        (b"[]", "TypeError"),
        (b"{}", "'v'"),
        (b'{"v":2,"kind":"own"}', "its version is 2, not 1"),
        (b'{"v":1,"kind":"x"}', "its kind is x, not own, snapshot, delta or clean"),
        (b'{"v":1,"kind":"delta"}', "'base'"),
        (b'{"v":1,"kind":"clean"}', "'epoch'"),
        (b'{"v":1,"kind":"clean","epoch":"x"}', "invalid literal"),
        (b'{"v":1,"kind":"snapshot","epoch":1,"part":0,"of":1,"spilled":[],"leases":[],"base":9,"read":5,"unfinished":[],"attempts":[]}',
         "offsets of a snapshot must rise from 9 to below 5"),
        (b'{"v":1,"kind":"snapshot","epoch":1,"part":0,"of":1,"spilled":[],"leases":[],"base":1,"read":5,"unfinished":[1,0],"attempts":[]}',
         "must rise from 1 to below 5"),
        (b'{"v":1,"kind":"snapshot","epoch":1,"part":0,"of":1,"spilled":[],"leases":[],"base":1,"read":5,"unfinished":[-1],"attempts":[]}',
         "must rise"),
        (b'{"v":1,"kind":"snapshot","epoch":1,"part":0,"of":1,"spilled":[],"leases":[],"base":1,"read":5,"unfinished":[4],"attempts":[]}',
         "must rise"),
        (b'{"v":1,"kind":"snapshot","epoch":1,"part":0,"of":1,"spilled":[],"leases":[],"base":1,"read":5,"unfinished":[],"attempts":[1]}',
         "TypeError"),
        (SNAPSHOT % b'[["a2V5","1:BAE="]]', "must rise from 1 to below 5"),
        (SNAPSHOT % b'[["a2V5","3:BAE="]]', "offsets are packed in '3' bytes, not 1, 2, 4 or 8"),
        (SNAPSHOT % b'[["a2V5","2:BA=="]]', "bytes length not a multiple of item size"),
        (SNAPSHOT % b'[["a2V5","8://////////8="]]', "OverflowError"),
        (SNAPSHOT % b'[["a2V5","1:B?=="]]', "base64|padding"),
        (SNAPSHOT % b'[["a2V5","1"]]', "a spilled chain has no offsets"),
        (SNAPSHOT.replace(b'"of":1', b'"of":0') % b"[]", "it is part 0 of 0"),
        (b'{"v":1,"kind":"own","owner":' + b"[" * 1020 + b"]" * 1020 + b"}",
         "Recursion|'trust_ms'"),
    ],
)  # fmt: skip
def test_an_invalid_record_is_a_value_error_with_a_reason(body: bytes, why: str) -> None:
    with pytest.raises(ValueError, match=f"^not an ownership record: .*({why})"):
        decode(body)


# ---- finished messages --------------------------------------------------------------------------


def test_unread_messages_must_be_read_by_the_next_owner() -> None:
    snapshot = Snapshot(Epoch(1), 10, 15, (10, 13), spilled={b"k": packed((12,))})
    assert [offset for offset in range(8, 17) if snapshot.unread(offset)] == [8, 9, 10, 13, 15, 16]


def test_unread_messages_are_counted_in_any_range() -> None:
    """All messages below the base and above the read position must be read."""
    snapshot = Snapshot(Epoch(1), 10, 15, (10, 13), spilled={b"k": packed((12,))})
    for begin in range(7, 18):
        for end in range(begin, 19):
            unread = sum(snapshot.unread(offset) for offset in range(begin, end))
            assert snapshot.unread_within(begin, end) == unread, (begin, end)


def test_a_long_snapshot_is_written_in_parts_that_add_up() -> None:
    """A stuck key may have millions of messages, and a broker refuses messages above 4 MiB."""
    spilled = {b"stuck": packed(range(1, 200_000, 3)), b"other": packed(range(2, 3000, 3))}
    unfinished = tuple(range(3, 60_000, 3))
    attempts = dict.fromkeys(unfinished[:20000], 2)
    whole = Snapshot(Epoch(1), 1, 200_000, unfinished, attempts, spilled)
    written = [encode(part) for part in parts(whole)]
    assert len(written) > 5
    assert max(map(len, written)) <= 262_144
    assert joined([decode(body) for body in written]) == whole  # type: ignore[misc]


# ---- many records -------------------------------------------------------------------------------


def test_no_own_record_is_no_owner() -> None:
    assert replay([]) is None
    assert replay([(3, Clean(Epoch(1))), (4, whole(Snapshot(Epoch(1), 0, 0)))]) is None


def test_the_epoch_is_the_offset_of_the_own_record() -> None:
    snapshot = Snapshot(Epoch(7), 1, 2)
    first = whole(Snapshot(Epoch(7), 0, 1))
    last = replay([(7, own()), (8, first), (9, whole(snapshot)), (10, Clean(Epoch(7)))])
    assert last == LastOwner(Epoch(7), own(), snapshot, clean=True, snapshot_at=9, last_at=9)


def test_late_records_of_a_zombie_are_ignored() -> None:
    last = replay(
        [(1, own()), (5, own(period=2)), (6, whole(Snapshot(Epoch(1), 0, 9))), (7, Clean(Epoch(1)))]
    )
    assert last == LastOwner(Epoch(5), own(period=2), None, clean=False)


def test_a_new_owner_is_not_clean_because_the_one_before_was() -> None:
    last = replay([(1, own()), (2, Clean(Epoch(1))), (3, own(period=2))])
    assert last is not None
    assert (last.epoch, last.clean) == (3, False)


def test_finished_messages_stay_finished_over_a_crash() -> None:
    """A crash of the next owner must not bring back messages recorded as finished."""
    snapshot = Snapshot(Epoch(1), 2, 9, (2, 5))
    last = replay([(1, own()), (2, whole(snapshot)), (3, Clean(Epoch(1))), (4, own(period=2))])
    assert last == LastOwner(
        Epoch(4), own(period=2), snapshot, clean=False, snapshot_at=2, last_at=2
    )


def test_half_a_snapshot_changes_nothing() -> None:
    """Its writer was killed between two parts."""
    before = Snapshot(Epoch(1), 2, 9, (2, 5))
    cut = SnapshotPart(0, 2, Snapshot(Epoch(4), 5, 9, (5,)))
    last = replay([(1, own()), (2, whole(before)), (4, own(period=2)), (5, cut)])
    assert last is not None
    assert last.snapshot == before


def test_deltas_add_up_over_owners_and_only_on_the_snapshot_they_name() -> None:
    first = Delta(Epoch(1), 2, 5, 12, left=(2,), unfinished=(10,), attempts={5: 3})
    spilled = Delta(Epoch(4), 2, 5, 20, spilled={b"k": packed((12, 15))})
    head = Delta(Epoch(4), 2, 10, 20, left=(5,), heads={b"k": 15})
    zombie = Delta(Epoch(1), 2, 99, 99, left=(10,))
    records: list[tuple[int, Record]] = [
        (1, own()), (2, whole(Snapshot(Epoch(1), 2, 9, (2, 5)))), (3, first), (4, own(period=2)),
        (5, spilled), (6, zombie), (7, head),
    ]  # fmt: skip
    state = Snapshot(Epoch(4), 10, 20, (10,), {}, {b"k": packed((15,))})
    assert replay(records) == LastOwner(
        Epoch(4), own(period=2), state, clean=False, snapshot_at=2, last_at=7
    )
    # Deltas show where they begin; from there the tail of the records gives the same result.
    tail = replay(records[3:])
    assert tail == LastOwner(Epoch(4), own(period=2), None, clean=False, snapshot_at=2)
    assert replay(records[1:], epoch_before=Epoch(1)) == replay(records)


def test_a_lease_of_a_message_that_finished_since_is_not_waited_for() -> None:
    snapshot = Snapshot(
        Epoch(1), 5, 9, (5, 7), spilled={b"k": packed([8])}, leases={5: 900, 7: 800, 8: 700}
    )
    records = [own(), whole(snapshot), Delta(Epoch(1), 2, 7, 9, left=(5,), after=2)]
    last = replay(enumerate(records, 1))
    assert last is not None
    assert last.snapshot is not None
    assert last.snapshot.leases == {7: 800, 8: 700}


def test_the_deliveries_of_a_spilled_message_that_finished_are_forgotten() -> None:
    """Otherwise the next owner counts a message as failing for as long as an older one waits."""
    chain = packed([6, 8])
    snapshot = Snapshot(Epoch(1), 5, 9, (5,), {5: 1, 6: 4, 8: 2}, spilled={b"k": chain})
    records = [own(), whole(snapshot), Delta(Epoch(1), 2, 5, 9, heads={b"k": 8}, after=2)]
    last = replay(enumerate(records, 1))
    assert last is not None
    assert last.snapshot is not None
    assert last.snapshot.attempts == {5: 1, 8: 2}


def test_a_delta_on_a_snapshot_before_the_first_record_says_where_to_begin() -> None:
    last = replay([(5, own()), (6, Delta(Epoch(5), 4, 5, 12))])
    assert last == LastOwner(Epoch(5), own(), None, clean=False, snapshot_at=4)


def test_a_snapshot_before_the_first_owner_that_is_known_may_be_that_of_the_owner_then() -> None:
    """The record of epoch 1 is further ahead; the delta of epoch 5 builds on it."""
    late = Delta(Epoch(1), 2, 3, 9, after=2)
    snapshot = whole(Snapshot(Epoch(1), 2, 9, (2, 5)))
    records = [
        (3, late),
        (4, snapshot),
        (5, own()),
        (6, Delta(Epoch(5), 4, 5, 9, left=(2,), after=4)),
    ]
    last = replay(records)
    assert last is not None
    assert (last.snapshot, last.snapshot_at, last.damage) == (None, 4, None)
    last = replay(records[1:], epoch_before=Epoch(1))
    assert last is not None
    assert last.snapshot == Snapshot(Epoch(5), 5, 9, (5,))


def test_records_of_the_first_version_are_read() -> None:
    """They contain neither addresses, nor who parked a key, nor the predecessor of a delta."""
    assert decode(
        b'{"v":1,"kind":"own","owner":"c@1","trust_ms":5000,"longest_lease_ms":6000,'
        b'"broker_start_ms":77,"period":3}'
    ) == Own("c@1", 5000, 6000, 77, 3)
    assert decode(
        b'{"v":1,"kind":"delta","epoch":4,"snapshot":3,"base":10,"read":20,"left":[],'
        b'"unfinished":[],"attempts":[],"spilled":[],"heads":[],"parked":[["a2V5",[1,2,true,0.5]]]}'
    ) == Delta(Epoch(4), 3, 10, 20, parked={b"key": ParkedKey(1, 2, redriven=True, rate=0.5)})


def test_the_longest_lease_that_any_record_of_the_period_tells_counts() -> None:
    """Whichever is read last; records of the previous period do not count."""
    before = [(1, own()), (2, parts(Snapshot(Epoch(1), 0, 0, longest_lease_ms=900_000))[0])]
    told = Delta(Epoch(3), 2, 0, 1, longest_lease_ms=60_000)
    assert _longest([*before, (3, own())]) == own().longest_lease_ms
    assert _longest([*before, (3, own()), (4, told)]) == 60_000
    whole = parts(Snapshot(Epoch(3), 0, 1, longest_lease_ms=60_000))[0]
    assert _longest([*before, (3, own()), (4, whole)]) == 60_000


def _longest(records: list[tuple[int, Any]]) -> int:
    last = replay(records)
    assert last is not None
    return last.own.longest_lease_ms


# ---- the wait -----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("trust_s", "longest_lease_s", "expiry_s", "restarted", "wait_s"),
    [
        pytest.param(5, 5, 10, False, 0, id="defaults: no wait"),
        pytest.param(5, 5, 10, True, 10, id="defaults, broker restarted"),
        pytest.param(5, 30, 10, False, 25, id="leases outlive the head start"),
        pytest.param(5, 30, 10, True, 35, id="long leases, broker restarted"),
        pytest.param(20, 30, 60, False, 0, id="the official broker's minute"),
        pytest.param(5, 5.001, 10, False, 0.001, id="one millisecond more than the head start"),
    ],
)
def test_the_wait_after_an_unclean_end(
    trust_s: float, longest_lease_s: float, expiry_s: float, restarted: bool, wait_s: float
) -> None:
    last = LastOwner(
        Epoch(1), own(trust_s=trust_s, longest_lease_s=longest_lease_s), None, clean=False
    )
    waited = last.wait_ns(broker_start_ms=2 if restarted else 1, broker_lock_expiry_s=expiry_s)
    assert waited == round(wait_s * SECOND)


@pytest.mark.parametrize("broker_start_ms", [1, 2])
def test_the_next_owner_does_not_wait_after_a_clean_end(broker_start_ms: int) -> None:
    last = LastOwner(Epoch(1), own(longest_lease_s=99), None, clean=True)
    assert last.wait_ns(broker_start_ms=broker_start_ms, broker_lock_expiry_s=10) == 0


def test_a_late_own_record_of_a_parked_twin_counts_for_nothing() -> None:
    """Its writer owned the queue before: the queue's own records name the current owner."""
    records: list[tuple[int, Record]] = [
        (0, own(period=9)),
        (1, own(period=7)),
        (2, whole(Snapshot(Epoch(1), 1, 1))),
        (3, whole(Snapshot(Epoch(0), 5, 5))),
    ]
    last = replay(records, by_period=True)
    assert last is not None
    assert last.snapshot is not None
    assert (last.epoch, last.snapshot.base) == (0, 5)


def in_records(life: int | None, period: int) -> Own:
    """Return a record of a parked twin, whose queue's records are in that life."""
    return replace(own(period=period), period_life=life)


@pytest.mark.parametrize(
    ("owners", "counts"),
    [
        ([(30, 9), (31, 0)], 1),  # the queue's records were deleted
        ([(31, 0), (30, 9)], 0),  # a late one of before
        ([(31, 4), (31, 2)], 0),
        ([(30, 9), (31, 0), (31, 4), (30, 10)], 2),
        ([(None, 9), (31, 0)], 0),  # of an earlier version, so only periods are compared
        ([(30, 9), (None, 10), (31, 0)], 2),
    ],
)
def test_in_a_parked_twin_a_lower_period_counts_if_epochs_started_over(
    owners: list[tuple[int | None, int]], counts: int
) -> None:
    records: list[Record] = [in_records(*each) for each in owners]
    states = [Snapshot(Epoch(at), at, at) for at in range(len(owners))]
    last = replay(enumerate([*records, *map(whole, states)]), by_period=True)
    assert last is not None
    assert (last.epoch, last.snapshot) == (counts, states[counts])


@pytest.mark.parametrize(("first", "second"), [((30, 9), (31, 0)), ((31, 2), (31, 5))])
def test_in_a_parked_twin_a_snapshot_names_its_owner_if_the_first_records_are_gone(
    first: tuple[int, int], second: tuple[int, int]
) -> None:
    told = [
        parts(Snapshot(Epoch(epoch), epoch, epoch), in_records(*owner))[0]
        for epoch, owner in ((54, first), (53, second))
    ]
    for records in (told, told[::-1]):
        last = replay(enumerate(records, 90), by_period=True)
        assert last is not None
        assert (last.epoch, last.own.period) == (53, second[1])


def test_a_twins_owner_is_not_ended_by_a_late_record_of_before_epochs_started_over() -> None:
    ours, late = in_records(31, 2), in_records(30, 9)
    assert later_owner([late], of_twin=ours) is None
    assert later_owner([ours], of_twin=late) is ours
    assert later_owner([in_records(31, 2)], of_twin=ours) == ours  # opened again


def test_the_record_of_a_twin_names_the_life_of_its_queues_records() -> None:
    assert decode(encode(in_records(30, 9))) == in_records(30, 9)
    assert b"life" not in encode(in_records(None, 9))


def replayed(*records: Record) -> LastOwner:
    last = replay(enumerate([replace(own(), hold_ms=65_000), *records]))
    assert last is not None
    return last


def changed(**fields: Any) -> Delta:
    return Delta(Epoch(0), 1, 0, 0, after=1, **fields)


@pytest.mark.parametrize(
    ("records", "wait_s"),
    [
        pytest.param([whole(Snapshot(Epoch(0), 0, 0))], 65, id="it may last"),
        pytest.param(
            [whole(Snapshot(Epoch(0), 0, 0)), changed(hold_over=True)], 10, id="over by a delta"
        ),
        pytest.param(
            [SnapshotPart(0, 1, Snapshot(Epoch(0), 0, 0), own())], 10, id="over by a snapshot"
        ),
    ],
)
def test_a_wait_that_is_over_does_not_count_in_the_next_take_over(
    records: list[Record], wait_s: int
) -> None:
    last = replayed(*records)
    assert last.wait_ns(broker_start_ms=2, broker_lock_expiry_s=10) == wait_s * SECOND


def test_the_end_of_a_wait_survives_the_encoding() -> None:
    assert decode(encode(changed(hold_over=True))) == changed(hold_over=True)
    assert b"hold_over" not in encode(changed())


@pytest.mark.parametrize("restarted", [True, False])
def test_waits_do_not_feed_themselves(restarted: bool) -> None:
    """Each owner dies while it still waits for the leases of the previous one."""
    hold_ms, longest_s = 0, 0.0
    for period in range(1, 20):
        last = LastOwner(Epoch(period), replace(own(), hold_ms=hold_ms), None, clean=False)
        wait_ns = last.wait_ns(broker_start_ms=2 if restarted else 1, broker_lock_expiry_s=10)
        hold_ms = wait_ns // 1_000_000
        longest_s = max(longest_s, wait_ns / 1e9)
    assert longest_s == (10 if restarted else 0)


def test_the_wait_of_the_last_owner_continues() -> None:
    """A lease of an earlier period, longer than any of the last owner's own."""
    last = LastOwner(Epoch(2), replace(own(), hold_ms=60_000), None, clean=False)
    assert last.wait_ns(broker_start_ms=2, broker_lock_expiry_s=10) == 60_000_000_000
    assert last.wait_ns(broker_start_ms=1, broker_lock_expiry_s=10) == 55_000_000_000


def test_a_hold_is_the_same_after_the_codec() -> None:
    assert decode(encode(replace(own(), hold_ms=1234))) == replace(own(), hold_ms=1234)


def test_a_long_key_in_a_record_of_an_older_proxy_is_the_one_that_is_known_now() -> None:
    """That record contains the full key."""
    whole, key = base64.b64encode(b"k" * 30_000).decode(), named(b"k" * 30_000)
    fields = orjson.loads(encode(Delta(Epoch(1), 2, 3, 9, after=2)))
    fields |= {
        "spilled": [[whole, f"1:{base64.b64encode(bytes([5])).decode()}"]],
        "heads": [[whole, 5]],
        "parked": [[whole, [3, 1, False, 0.0]]],
        "parked_by": [[whole, "me", "so"]],
        "paused": [[whole, [7, "me", "so"]]],
    }
    found = decode(orjson.dumps(fields))
    assert isinstance(found, Delta)
    assert found.parked == {key: ParkedKey(3, 1, by="me", reason="so")}
    assert found.paused == {key: PausedKey(7, "me", "so")}
    assert found.heads == {key: 5}
    assert found.spilled == {key: packed([5])}


def test_notes_are_a_separate_field_that_older_readers_ignore() -> None:
    kept = Snapshot(
        Epoch(1),
        0,
        0,
        parked={b"a": ParkedKey(0, 1, note="of parking"), b"c": ParkedKey(0, 1)},
        paused={b"a": PausedKey(5, note="of the pause"), b"b": PausedKey(6, note="b's")},
    )
    written = encode(SnapshotPart(0, 1, kept))
    assert decode(written) == SnapshotPart(0, 1, kept)
    fields = orjson.loads(written)
    assert [len(each) for _, each in fields["paused"]] == [3, 3]
    assert [len(each) for _, each in fields["parked"]] == [4, 4]
    assert len(fields.pop("notes")) == 2
    assert decode(orjson.dumps(fields)).piece.paused[b"b"] == PausedKey(6)  # type: ignore[union-attr]
