from __future__ import annotations

import pytest

from broker_core.names import Topic
from proxy.core.ownership.stays import IDLE_NS, REMEMBERED_NS, STAY_NS, Stays

ORDERS, PAYMENTS = Topic("orders"), Topic("payments")
SECOND = 1_000_000_000


def wants(
    stays: Stays, now_ns: int, *, topic: Topic = ORDERS, waiting: bool = False, shown: bool = False
) -> bool:
    return stays.wants(topic, waiting=waiting, shown=shown, now_ns=now_ns)


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
    assert wants(stays, SECOND + IDLE_NS, waiting=True)
    assert wants(stays, SECOND, topic=PAYMENTS) == (topics is None)


def test_clients_that_come_back_have_to_stay() -> None:
    stays = left_at(0)
    for at_ns in range(SECOND, SECOND + STAY_NS + 1, SECOND):
        stays.pulled([ORDERS], at_ns)
        assert wants(stays, at_ns) == (at_ns == SECOND + STAY_NS)
    assert wants(left_at(0), SECOND, waiting=True, shown=True), "the others know it"


def test_a_pause_begins_another_stay() -> None:
    stays = left_at(0)
    stays.pulled([ORDERS], SECOND)
    stays.pulled([ORDERS], SECOND + IDLE_NS)
    assert not wants(stays, SECOND + STAY_NS, waiting=True)
    assert wants(stays, SECOND + IDLE_NS + STAY_NS, waiting=True)


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
    stays.forget(ORDERS)
    assert stays.has_stayed(ORDERS, SECOND)
