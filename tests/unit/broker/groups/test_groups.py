from __future__ import annotations

from broker_core.broker.groups.groups import EXPIRY_NS, Groups
from broker_core.names import Group, Topic
from broker_core.remoting.bodies import ConsumerData, Subscription

GROUP = Group("billing")
ORDERS, REFUNDS = Topic("orders"), Topic("refunds")


def data(*topics: Topic, version: int = 0, tags: str = "*", group: Group = GROUP) -> ConsumerData:
    return ConsumerData(
        group=group,
        subscriptions=tuple(Subscription.of_tags(t, tags, version=version) for t in topics),
    )


def test_a_new_member_and_a_new_topic_are_changes_a_second_heartbeat_is_none() -> None:
    groups: Groups[str] = Groups()
    assert groups.heartbeat("one", "c1", [data(ORDERS)], now_ns=0) == {GROUP}
    assert groups.heartbeat("one", "c1", [data(ORDERS)], now_ns=1) == set()
    assert groups.heartbeat("two", "c2", [data(ORDERS)], now_ns=1) == {GROUP}
    assert groups.heartbeat("two", "c2", [data(ORDERS, REFUNDS)], now_ns=2) == {GROUP}
    assert groups.members(GROUP) == ["one", "two"]
    assert sorted(groups.connections(GROUP)) == ["c1", "c2"]


def test_subscriptions_follow_the_newest_version_and_go_with_their_topic() -> None:
    groups: Groups[str] = Groups()
    groups.heartbeat("one", "c", [data(ORDERS, version=2, tags="red")], now_ns=0)
    groups.heartbeat("two", "c", [data(ORDERS, version=1, tags="blue")], now_ns=0)
    known = groups.subscription(GROUP, ORDERS)
    assert known is not None
    assert known.tags == {"red"}
    groups.heartbeat("one", "c", [data(REFUNDS, version=3)], now_ns=0)
    assert groups.subscription(GROUP, ORDERS) is None
    assert groups.subscription(Group("other"), ORDERS) is None


def test_members_leave_by_word_by_silence_and_with_their_connection() -> None:
    groups: Groups[str] = Groups()
    for client_id in ("one", "two", "three"):
        groups.heartbeat(client_id, f"c-{client_id}", [data(ORDERS)], now_ns=0)
    assert groups.unregister("one", GROUP) == {GROUP}
    assert groups.unregister("one", GROUP) == set()
    assert groups.connection_closed("c-two") == {GROUP}
    assert groups.members(GROUP) == ["three"]
    assert groups.expire(EXPIRY_NS) == set()
    assert groups.expire(EXPIRY_NS + 1) == {GROUP}
    assert groups.members(GROUP) == []
    assert groups.connections(GROUP) == []


def test_a_member_may_ask_to_be_forgotten_sooner_with_each_heartbeat() -> None:
    groups: Groups[str] = Groups()
    groups.heartbeat("one", "c", [data(ORDERS)], now_ns=0, expiry_ns=10)
    assert groups.expire(10) == set()
    groups.heartbeat("one", "c", [data(ORDERS)], now_ns=10, expiry_ns=10)
    assert groups.expire(20) == set()
    assert groups.expire(21) == {GROUP}
    groups.heartbeat("one", "c", [data(ORDERS)], now_ns=21, expiry_ns=10)
    groups.heartbeat("one", "c", [data(ORDERS)], now_ns=22)
    assert groups.expire(EXPIRY_NS) == set()


def test_who_could_not_be_heard_is_excused() -> None:
    groups: Groups[str] = Groups()
    groups.heartbeat("one", "c", [data(ORDERS)], now_ns=0, expiry_ns=10)
    groups.excuse(1000)
    assert groups.expire(1010) == set()
    assert groups.expire(1011) == {GROUP}


def test_an_old_connection_that_closes_does_not_end_a_newer_one() -> None:
    groups: Groups[str] = Groups()
    groups.heartbeat("one", "old", [data(ORDERS)], now_ns=0)
    assert groups.heartbeat("one", "new", [data(ORDERS)], now_ns=1) == {GROUP}
    assert groups.connection_closed("old") == set()
    assert groups.connections(GROUP) == ["new"]


def test_one_client_may_be_in_several_groups() -> None:
    groups: Groups[str] = Groups()
    other = Group("other")
    groups.heartbeat("one", "c", [data(ORDERS), data(ORDERS, group=other)], now_ns=0)
    assert groups.connection_closed("c") == {GROUP, other}
