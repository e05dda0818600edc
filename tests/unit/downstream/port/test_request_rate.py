"""Requests a second by address; times are given."""

from __future__ import annotations

from proxy.downstream.port.request_rate import RequestRate, take

MS = 1_000_000
SECOND = 1000 * MS


def test_requests_pass_at_the_rate_with_bursts_of_one_second() -> None:
    bucket = RequestRate(10).enter("a", 5 * SECOND)
    assert sum(take(bucket, 5 * SECOND) for _ in range(50)) == 10
    passed = sum(take(bucket, 5 * SECOND + n * MS) for n in range(1, 3001))
    assert passed == 30


def test_a_rate_below_one_lets_one_pass_now_and_then() -> None:
    bucket = RequestRate(0.5).enter("a", 0)
    assert [take(bucket, n * SECOND) for n in range(5)] == [True, False, True, False, True]


def test_connections_of_an_address_share_and_others_do_not_count() -> None:
    rate = RequestRate(2)
    one, two, other = rate.enter("a", 0), rate.enter("a", 0), rate.enter("b", 0)
    assert [take(bucket, 0) for bucket in (one, two, one)] == [True, True, False]
    assert take(other, 0)


def test_reconnecting_gains_nothing_and_idle_addresses_are_forgotten() -> None:
    """A bucket is kept until it is full again."""
    rate = RequestRate(2)
    for _ in range(2):
        assert take(rate.enter("a", 0), 0)
    rate.leave("a", 0)
    assert not take(rate.enter("a", SECOND // 4), SECOND // 4)
    rate.leave("a", SECOND // 4)
    rate.enter("b", SECOND)
    assert len(rate) == 2
    rate.leave("b", SECOND)
    rate.enter("c", 5 * SECOND // 4)
    assert len(rate) == 2  # without a
    rate.enter("b", 3 * SECOND)  # back before it was checked
    assert len(rate) == 2
    rate.enter("d", 9 * SECOND)
    assert len(rate) == 3


def test_the_lowest_rate_lets_one_pass() -> None:
    bucket = RequestRate(5e-324).enter("a", 0)
    assert [take(bucket, n * SECOND) for n in range(3)] == [True, False, False]
