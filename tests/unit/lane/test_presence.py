from __future__ import annotations

import pytest

from broker_core.names import Topic
from proxy.core.jobs.window import Budget
from proxy.core.ownership.demand_signs import shows_signs, sign_of, with_signs
from proxy.lane import presence as presence_module
from proxy.lane.presence import Presence

ORDERS, PAYMENTS = Topic("orders"), Topic("payments")
SECOND = 1_000_000_000


class Clock:
    def __init__(self) -> None:
        self.now_s = 100.0

    def __call__(self) -> int:
        return int(self.now_s * SECOND)


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    clock = Clock()
    monkeypatch.setattr(presence_module, "now_ns", clock)
    return clock


@pytest.fixture
def presence() -> Presence:
    return Presence(Budget(8))


def wanted(presence: Presence, *, leased: bool = False, elsewhere: bool = False) -> set[Topic]:
    return {
        topic
        for topic in (ORDERS, PAYMENTS)
        if presence.wants(topic, leased=leased, leave_after_s=15, elsewhere=elsewhere)
    }


def test_a_topic_is_wanted_while_a_pull_waits_for_it(presence: Presence) -> None:
    presence.waits([ORDERS], 1)
    assert wanted(presence) == {ORDERS}
    presence.waits(None, 1)
    assert wanted(presence) == {ORDERS, PAYMENTS}
    presence.waits(None, -1)
    presence.waits([ORDERS], -1)
    assert (wanted(presence), presence.waiting_pulls) == (set(), 0)


def test_a_topic_is_wanted_for_a_while_after_the_last_pull(
    presence: Presence, clock: Clock
) -> None:
    presence.pulled([ORDERS], clock())
    clock.now_s += 10
    presence.pulled([PAYMENTS], clock())
    assert wanted(presence) == {ORDERS, PAYMENTS}
    clock.now_s += 10
    assert wanted(presence) == {PAYMENTS}
    presence.pulled(None, clock())
    assert wanted(presence) == {ORDERS, PAYMENTS}
    presence.forget_clients()
    assert wanted(presence) == set()


def test_a_client_that_is_gone_keeps_no_topic_from_clients_of_other_proxies(
    presence: Presence, clock: Clock
) -> None:
    presence.pulled([ORDERS], clock())
    clock.now_s += 1
    assert wanted(presence, elsewhere=True) == {ORDERS}
    clock.now_s += 1
    assert (wanted(presence), wanted(presence, elsewhere=True)) == ({ORDERS}, set())
    assert wanted(presence, elsewhere=True, leased=True) == {ORDERS}, "it is busy"
    presence.waits([ORDERS], 1)
    clock.now_s += 6
    assert wanted(presence, elsewhere=True) == {ORDERS}
    presence.waits([ORDERS], -1)
    assert wanted(presence, elsewhere=True) == {ORDERS}, "its pull has just ended"


def test_clients_that_come_and_go_count_for_others_once_they_have_stayed(
    presence: Presence, clock: Clock
) -> None:
    assert presence.pulled([ORDERS], clock())
    assert wanted(presence, elsewhere=True) == {ORDERS}, "they are new"
    presence.show([ORDERS], shows_all=False)
    clock.now_s += 3
    assert wanted(presence, elsewhere=True) == set()
    presence.show([], shows_all=False)
    clock.now_s += 10
    assert not presence.pulled([ORDERS], clock()), "it would ask brokers in vain"
    assert wanted(presence, elsewhere=True) == set()
    assert wanted(presence) == {ORDERS}, "no other proxy wants the topic"
    presence.waits([ORDERS], 1)
    clock.now_s += 4
    assert wanted(presence, elsewhere=True) == set()
    clock.now_s += 1
    assert wanted(presence, elsewhere=True) == {ORDERS}
    presence.waits([ORDERS], -1)
    presence.show([ORDERS], shows_all=False)
    clock.now_s += 3
    presence.show([], shows_all=False)
    clock.now_s += 60
    presence.pulled([ORDERS], clock())
    assert wanted(presence, elsewhere=True) == {ORDERS}, "that was long ago"


def test_clients_that_are_busy_count_for_longer_but_not_for_ever(
    presence: Presence, clock: Clock
) -> None:
    presence.pulled([ORDERS], clock())
    clock.now_s += 20
    assert (wanted(presence), wanted(presence, leased=True)) == (set(), {ORDERS})
    clock.now_s += 20
    assert wanted(presence, leased=True) == set()


def test_topics_delivered_by_the_proxy_itself_are_always_wanted(presence: Presence) -> None:
    presence.deliver({PAYMENTS})
    assert wanted(presence) == {PAYMENTS}
    assert presence.delivers_itself


def test_a_pull_says_whether_its_topics_are_shown_to_others_already(presence: Presence) -> None:
    assert presence.pulled([ORDERS], 1)
    presence.show([ORDERS], shows_all=False)
    assert not presence.pulled([ORDERS], 1)
    assert presence.pulled([ORDERS, PAYMENTS], 1)
    assert presence.pulled(None, 1)
    presence.show([ORDERS], shows_all=True)
    assert not presence.pulled(None, 1)


def test_a_sign_names_one_group_and_topic_and_no_producer() -> None:
    names = [sign_of("a", "b"), sign_of("a%b", "c"), sign_of("a", "b%c"), sign_of("ab", "")]
    assert len(set(names)) == 4
    assert shows_signs(with_signs("10.0.0.7@1#2"))
    assert not shows_signs("10.0.0.7@1#2")
