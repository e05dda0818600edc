from __future__ import annotations

import pytest

from broker_core.names import Topic
from proxy.core.ownership.stays import IDLE_NS, REMEMBERED_NS, STAY_NS, Stays

ORDERS, PAYMENTS = Topic("orders"), Topic("payments")
SECOND = 1_000_000_000


def wants(stays: Stays, now_ns: int, *, topic: Topic = ORDERS, shown: bool = False) -> bool:
    return stays.wants(topic, shown=shown, now_ns=now_ns)


def left_at(now_ns: int) -> Stays:
    stays = Stays()
    stays.left([ORDERS], now_ns)
    return stays


@pytest.mark.parametrize("topics", [[ORDERS], None])
def test_a_topic_is_wanted_for_a_moment_after_a_pull(topics: list[Topic] | None) -> None:
    stays = Stays()
    assert not wants(stays, SECOND)
    stays.pulled(topics, SECOND)
    assert wants(stays, SECOND + IDLE_NS - 1)
    assert not wants(stays, SECOND + IDLE_NS)
    assert wants(stays, SECOND, topic=PAYMENTS) == (topics is None)
    stays.waits(topics, 1, SECOND)
    assert wants(stays, 100 * SECOND)


def test_clients_that_come_back_have_to_stay() -> None:
    stays = left_at(0)
    for at_ns in range(SECOND, SECOND + STAY_NS + 1, SECOND):
        stays.pulled([ORDERS], at_ns)
        assert wants(stays, at_ns) == (at_ns == SECOND + STAY_NS)
    stays = left_at(0)
    stays.pulled([ORDERS], SECOND)
    assert wants(stays, SECOND, shown=True), "the others know it"


@pytest.mark.parametrize("topics", [[ORDERS], None])
@pytest.mark.parametrize("wait_s", [1, 2, 4, 15])
def test_a_client_stays_while_its_pulls_wait(topics: list[Topic] | None, wait_s: int) -> None:
    """The end of a wait of two seconds or more once began another stay."""
    stays, now_ns = left_at(0), SECOND
    while now_ns < SECOND + STAY_NS:
        assert not wants(stays, now_ns)
        stays.pulled(topics, now_ns)
        stays.waits(topics, 1, now_ns)
        now_ns += wait_s * SECOND
        assert wants(stays, now_ns) == (now_ns >= SECOND + STAY_NS), "while it waits"
        stays.waits(topics, -1, now_ns)
    assert wants(stays, now_ns)


def test_another_client_does_not_end_the_stay_of_one_whose_pull_waits() -> None:
    stays = left_at(0)
    stays.pulled([ORDERS], SECOND)
    stays.waits([ORDERS], 1, SECOND)
    stays.pulled([ORDERS], SECOND + STAY_NS)
    assert wants(stays, SECOND + STAY_NS)


def test_the_stay_of_a_client_that_has_gone_does_not_count() -> None:
    stays = left_at(0)
    stays.pulled(None, SECOND)  # for any topic, and never again
    stays.pulled([ORDERS], SECOND + STAY_NS)
    assert not wants(stays, SECOND + STAY_NS)


def test_a_pause_begins_another_stay() -> None:
    stays = left_at(0)
    stays.pulled([ORDERS], SECOND)
    stays.pulled([ORDERS], SECOND + IDLE_NS)
    stays.waits([ORDERS], 1, SECOND + IDLE_NS)
    assert not wants(stays, SECOND + STAY_NS)
    assert wants(stays, SECOND + IDLE_NS + STAY_NS)


def test_clients_are_new_after_a_minute_or_if_their_topic_was_never_left() -> None:
    stays = left_at(0)
    assert not stays.has_stayed(ORDERS, REMEMBERED_NS - 1)
    assert stays.has_stayed(ORDERS, REMEMBERED_NS)
    assert stays.has_stayed(PAYMENTS, 1)


def test_a_forgotten_topic_was_never_left() -> None:
    stays = left_at(0)
    stays.pulled([ORDERS], SECOND)
    stays.forget_clients()
    assert not wants(stays, SECOND, shown=True)
    stays.waits([ORDERS], 1, SECOND)
    stays.forget_clients()
    assert wants(stays, SECOND, shown=True), "its pull waits"
    stays.forget(ORDERS)
    assert stays.has_stayed(ORDERS, SECOND)
