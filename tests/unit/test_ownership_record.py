from __future__ import annotations

import pytest

from broker_core.names import Group, Topic, check_name
from proxy.core.ids import Epoch
from proxy.core.ownership_record import (
    Clean,
    LastOwner,
    Own,
    Record,
    Snapshot,
    decode,
    encode,
    ownership_topic,
    replay,
)

SECOND = 1_000_000_000


def own(
    *, trust_s: float = 5, longest_lease_s: float = 5, broker_start_ms: int = 1, period: int = 1
) -> Own:
    return Own("client", int(trust_s * 1000), int(longest_lease_s * 1000), broker_start_ms, period)


# ---- the topic ----------------------------------------------------------------------------------


def test_the_topic_is_the_sha_1_of_group_nul_topic() -> None:
    """Written down: a name that changed would leave all records behind."""
    name = ownership_topic(Group("billing"), Topic("orders"))
    assert name == "%OWN%fda40c8cc68d6683"
    check_name("topic", name)


def test_group_and_topic_do_not_run_into_each_other() -> None:
    assert ownership_topic(Group("a"), Topic("bc")) != ownership_topic(Group("ab"), Topic("c"))


# ---- one record ---------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("record", "body"),
    [
        (
            Own("c@1", 5000, 6000, 77, 3),
            b'{"v":1,"kind":"own","owner":"c@1","trust_ms":5000,"longest_lease_ms":6000,'
            b'"broker_start_ms":77,"period":3}',
        ),
        (
            Snapshot(Epoch(4), 10, 20, (10, 13, 19), {19: 2, 10: 1}),
            b'{"v":1,"kind":"snapshot","epoch":4,"base":10,"read":20,"unfinished":[0,3,6],'
            b'"attempts":[[10,1],[19,2]]}',
        ),
        (Clean(Epoch(4)), b'{"v":1,"kind":"clean","epoch":4}'),
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
        (b'{"v":1,"kind":"delta"}', "its kind is delta, not own, snapshot or clean"),
        (b'{"v":1,"kind":"clean"}', "'epoch'"),
        (b'{"v":1,"kind":"clean","epoch":"x"}', "invalid literal"),
        (b'{"v":1,"kind":"snapshot","epoch":1,"base":9,"read":5,"unfinished":[],"attempts":[]}',
         "unfinished offsets of a snapshot must rise from 9 to below 5"),
        (b'{"v":1,"kind":"snapshot","epoch":1,"base":1,"read":5,"unfinished":[1,0],"attempts":[]}',
         "must rise from 1 to below 5"),
        (b'{"v":1,"kind":"snapshot","epoch":1,"base":1,"read":5,"unfinished":[-1],"attempts":[]}',
         "must rise"),
        (b'{"v":1,"kind":"snapshot","epoch":1,"base":1,"read":5,"unfinished":[4],"attempts":[]}',
         "must rise"),
        (b'{"v":1,"kind":"snapshot","epoch":1,"base":1,"read":5,"unfinished":[],"attempts":[1]}',
         "TypeError"),
        (b'{"v":1,"kind":"own","owner":' + b"[" * 1020 + b"]" * 1020 + b"}",
         "Recursion|'trust_ms'"),
    ],
)  # fmt: skip
def test_what_is_no_record_is_a_value_error_that_says_why(body: bytes, why: str) -> None:
    with pytest.raises(ValueError, match=f"^not an ownership record: .*({why})"):
        decode(body)


# ---- what was finished --------------------------------------------------------------------------


def test_finished_is_what_was_read_save_the_unfinished() -> None:
    snapshot = Snapshot(Epoch(1), 10, 15, (10, 13))
    assert [offset for offset in range(20) if snapshot.finished(offset)] == [11, 12, 14]


# ---- many records -------------------------------------------------------------------------------


def test_no_own_record_is_no_owner() -> None:
    assert replay([]) is None
    assert replay([(3, Clean(Epoch(1))), (4, Snapshot(Epoch(1), 0, 0))]) is None


def test_the_epoch_is_the_offset_of_the_own_record() -> None:
    snapshot = Snapshot(Epoch(7), 1, 2)
    last = replay([(7, own()), (8, Snapshot(Epoch(7), 0, 1)), (9, snapshot), (10, Clean(Epoch(7)))])
    assert last == LastOwner(Epoch(7), own(), snapshot, clean=True)


def test_late_records_of_a_zombie_are_ignored() -> None:
    last = replay(
        [(1, own()), (5, own(period=2)), (6, Snapshot(Epoch(1), 0, 9)), (7, Clean(Epoch(1)))]
    )
    assert last == LastOwner(Epoch(5), own(period=2), None, clean=False)


def test_a_new_owner_is_not_clean_because_the_one_before_was() -> None:
    last = replay([(1, own()), (2, Clean(Epoch(1))), (3, own(period=2))])
    assert last is not None
    assert (last.epoch, last.clean) == (3, False)


def test_what_was_finished_once_stays_finished_over_a_crash() -> None:
    """A crash of the next owner must not bring back what a clean one had written down."""
    snapshot = Snapshot(Epoch(1), 2, 9, (2, 5))
    last = replay([(1, own()), (2, snapshot), (3, Clean(Epoch(1))), (4, own(period=2))])
    assert last == LastOwner(Epoch(4), own(period=2), snapshot, clean=False)


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
def test_nobody_waits_after_a_clean_end(broker_start_ms: int) -> None:
    last = LastOwner(Epoch(1), own(longest_lease_s=99), None, clean=True)
    assert last.wait_ns(broker_start_ms=broker_start_ms, broker_lock_expiry_s=10) == 0
