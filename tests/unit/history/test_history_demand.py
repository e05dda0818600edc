"""N5 and N6: ready messages reach a waiting pull for their topic, at any proxy of the group."""

from __future__ import annotations

from typing import Any

import pytest

from proxy.history.limits import Limits
from tests.support.histories import LANE, Story
from tests.support.history_parts import found_both_ways

LIMITS = Limits()
RULES: dict[str, Any] = {
    "order_key": "KEY",
    "visibility_ms": 5000,
    "retry_ms": [1000],
    "max_deliveries": 9,
    "max_jobs": 4,
    "max_leased": 10,
}
LONG_S = LIMITS.demand_s + 1


def sent(*keys: str, queue: str = LANE["queue"]) -> Story:
    """Return a story of a queue with a message for each of *keys*."""
    story = Story()
    for offset, key in enumerate(keys):
        story.sent(offset, key=key, queue=queue)
    return story


def owned(*keys: str, **others: Any) -> Story:
    """Return the same with an owner, node ``n``, where no pull ever waits."""
    return sent(*keys).own(1, **{**RULES, **others})


def pull(story: Story, event: str, *, node: str = "far", **others: Any) -> Story:
    """Add a pull at a proxy that owns nothing."""
    about = {"group": "billing", "topics": ["orders"], "consumer": "c", **others}
    return story.add(event, node=node, **about)


def waiting(story: Story, seconds: float, **others: Any) -> Story:
    """Let a pull wait for *seconds*."""
    return pull(pull(story, "pull_wait", **others).wait(seconds), "pull_end", **others)


def one_elsewhere(
    story: Story, offset: int, seconds: int, *, topic: str, queue: str, **others: str
) -> None:
    """Handle a message of another queue for *seconds*, while a pull waits at another proxy."""
    name, where = f"x{offset}", {"topic": topic, "queue": queue, **others, "epoch": 1}
    story.sent(offset, msg=name, topic=topic, queue=queue, key=name)
    lease = story.deliver(offset, order=name, msg=name, **where)
    for _ in range(0, seconds, 4):
        waiting(story, min(seconds, 4)).add("extend", **where, lease=lease, ms=5000)
    story.add("ack_ok", **where, offset=offset, lease=lease, outcome="ok")
    story.add("finish", **where, offset=offset, outcome="ok")


def found(story: Story) -> set[str]:
    return found_both_ways(story.events)


# ---- red -----------------------------------------------------------------------------------------


def test_n5_a_message_is_delivered_late_while_a_pull_waits_at_another_proxy() -> None:
    assert found(waiting(owned("k"), LONG_S).through(0)) == {"N5"}


def test_n5_a_message_that_is_never_delivered() -> None:
    assert found(waiting(owned("k", "l").through(0), LONG_S)) == {"N5", "D1"}


def test_n5_the_queue_has_no_owner() -> None:
    story = owned("k", "l").through(0).add("own-", **LANE, epoch=1, reason="lost")
    waiting(story, LONG_S)
    assert found(story) == {"N5", "D1"}
    assert found(story.own(2, **RULES).through(1, order="l")) == {"N5"}


@pytest.mark.parametrize("node", ["n", "far"])
@pytest.mark.parametrize(("after_s", "expected"), [(1, set()), (LONG_S, {"N5"})])
def test_n5_a_message_counts_from_the_tags_that_want_it(
    node: str, after_s: float, expected: set[str]
) -> None:
    story = Story().sent(0, key="k", tag="b").own(1, **RULES, tags=["a"])
    waiting(story, LONG_S, node=node)
    story.add("rules", **LANE, epoch=1, **RULES, tags=["b"], jobs=0)
    waiting(story, after_s, node=node)
    if expected and node == "n":
        expected = {*expected, "N3"}
    assert found(story.through(0)) == expected


def test_n5_the_queue_never_had_an_owner() -> None:
    assert found(waiting(sent("k"), LONG_S).own(1, **RULES).through(0)) == {"N5"}


def test_n5_an_owner_that_comes_and_goes_does_not_stop_the_clock() -> None:
    story = owned("k")
    for epoch in range(2, 8):
        waiting(story, 25).own(epoch, **RULES)
    assert found(story.through(0)) == {"N5"}


def test_n5_pulls_that_wait_on_and_off_at_several_proxies() -> None:
    story = owned("k")
    for number in range(14):
        waiting(story, 10, node=f"p{number % 3}").wait(5)
    assert found(story.through(0)) == {"N5"}


def test_n5_a_pull_for_any_topic() -> None:
    assert found(waiting(owned("k"), LONG_S, topics=None).through(0)) == {"N5"}


def test_n5_the_next_of_a_key() -> None:
    story = waiting(owned("k", "k").through(0).commit(1), LONG_S)
    assert found(story.through(1)) == {"N5"}


def test_n5_an_expired_message() -> None:
    story = owned("k")
    lease = story.deliver(0)
    story.wait(6).expire(0, lease)
    assert found(waiting(story, LONG_S).through(0)) == {"N5"}


def test_n5_a_lease_ends_at_its_deadline_though_its_owner_is_dead() -> None:
    story = owned("k")
    story.deliver(0)
    waiting(story, LONG_S + 6)
    assert found(story) == {"N5", "D1"}


def test_n5_a_retry_that_is_due() -> None:
    story = owned("k")
    story.ack(0, story.deliver(0), outcome="retry")
    assert found(waiting(story, LONG_S + 1).through(0)) == {"N5"}


def test_n5_a_message_without_order() -> None:
    assert found(waiting(owned(""), LONG_S).through(0, order=None)) == {"N5"}


def test_n5_a_pull_that_waits_to_the_end() -> None:
    story = pull(owned("k", "l").through(0), "pull_wait").wait(LONG_S)
    assert found(story) == {"D1"}  # its proxy may have died at once
    assert found(story.add("extend", node="far", **LANE, epoch=0, lease=7, ms=1)) == {"N5", "D1"}


def test_n5_a_leased_message_while_the_owner_has_waiting_pulls() -> None:
    story = pull(owned("k", "l"), "pull_wait", node="n")
    lease = story.deliver(0)
    for _ in range(14):
        waiting(story, 10).add("extend", node="n", **LANE, epoch=1, lease=lease, ms=5000)
    assert found(story.through(1, order="l").ack(0, lease)) == {"N1", "N5"}


def test_the_worst_of_ten_seconds_is_reported() -> None:
    story = waiting(owned(*"abcd"), LONG_S)
    for offset, key in enumerate("abcd"):
        story.through(offset, order=key)
    violation = story.report().violations["N5"]
    assert violation.count == 1
    assert violation.examples == [
        "group billing, orders/broker-a_0: key 'd': offset 3 was ready for 121.0 s while pulls"
        " waited for its topic at some proxy"
    ]


# ---- green ---------------------------------------------------------------------------------------


def test_a_message_that_comes_in_time() -> None:
    assert found(waiting(owned("k"), LIMITS.demand_s - 1).through(0)) == set()


def test_no_pull_wants_it() -> None:
    assert found(owned("k").wait(LONG_S).through(0)) == set()
    assert found(waiting(owned("k"), LONG_S, topics=["other"]).through(0)) == set()
    assert found(waiting(owned("k"), LONG_S, group="audit").through(0)) == set()


def test_pulls_that_wait_at_the_same_time_count_once() -> None:
    story = owned("k")
    pull(pull(story, "pull_wait", consumer="c"), "pull_wait", consumer="d", node="other")
    story.wait(LIMITS.demand_s - 50)
    pull(pull(story, "pull_end", consumer="c"), "pull_end", consumer="d", node="other")
    assert found(story.through(0)) == set()


def test_a_fault_is_active_or_ended_a_moment_ago() -> None:
    story = waiting(owned("k").add("nemesis", what="kill", target="p", phase="begin"), LONG_S)
    story.add("nemesis", what="kill", target="p", phase="end")
    assert found(waiting(story, LIMITS.settle_s + 100).through(0)) == set()


def test_pulls_of_a_killed_proxy_end_at_its_death() -> None:
    story = pull(owned("k"), "pull_wait").wait(LONG_S)
    assert found(story.through(0)) == set()


@pytest.mark.parametrize("lives_s", [5, LIMITS.demand_s - 10])
def test_pulls_of_an_earlier_incarnation_do_not_wait(lives_s: float) -> None:
    story = pull(owned("k").add("start", node="far"), "pull_wait").wait(1)
    story.add("start", node="far").wait(LONG_S)
    waiting(story, lives_s, consumer="d")
    assert found(story.through(0)) == set()


def test_the_new_incarnation_has_pulls_of_its_own() -> None:
    story = pull(owned("k").add("start", node="far"), "pull_wait").wait(1)
    waiting(story.add("start", node="far"), LONG_S)
    assert found(story.through(0)) == {"N5"}


def test_it_is_leased() -> None:
    story = owned("k")
    lease = story.deliver(0)
    for _ in range(40):
        waiting(story, 4).add("extend", **LANE, epoch=1, lease=lease, ms=5000)
    assert found(story.ack(0, lease)) == set()


def test_an_earlier_one_of_its_key_is_unfinished() -> None:
    story = owned("k", "k")
    lease = story.deliver(0)
    for _ in range(40):
        waiting(story, 4).add("extend", **LANE, epoch=1, lease=lease, ms=5000)
    assert found(story) == {"D1"}
    assert found(story.ack(0, lease).through(1)) == set()


@pytest.mark.parametrize("order", ["k", None])
def test_it_is_paused(order: str | None) -> None:
    about = {**LANE, "order": order, "by": "me", "reason": "so", "audit": "a"}
    story = owned("k").add("pause", **about, epoch=1)
    waiting(story, LONG_S).add("resume", **about, epoch=1)
    assert found(story.through(0)) == set()


def test_it_is_paused_to_the_end() -> None:
    story = owned("k").add("pause", **LANE, order="k", by="me", reason="so", audit="a", epoch=1)
    story.deliver(7, order="l", msg=None)
    assert found(waiting(story, LONG_S)) == {"D1"}


def test_its_key_is_parked() -> None:
    about = {**LANE, "order": "k", "by": "me", "reason": "so"}
    story = owned("k").add("park", **about, epoch=1)
    waiting(story, LONG_S).add("unpark", **about, epoch=1)
    assert found(story.through(0)) == set()


def test_its_retry_is_due_later() -> None:
    story = owned("k", retry_ms=[300_000])
    story.ack(0, story.deliver(0), outcome="retry")
    assert found(waiting(story, LONG_S)) == {"D1"}


def test_the_group_has_all_its_leases_at_the_owner() -> None:
    story = owned("a", "b", max_leased=1)
    lease = story.deliver(0, order="a")
    for _ in range(40):
        waiting(story, 4).add("extend", **LANE, epoch=1, lease=lease, ms=5000)
    assert found(story.ack(0, lease).through(1, order="b")) == set()


def test_another_proxy_has_all_its_leases() -> None:
    other = {**LANE, "queue": "broker-a_1", "epoch": 1}
    story = owned("k").add("own+", node="far", **other, **{**RULES, "max_leased": 1})
    story.sent(5, msg="x", queue="broker-a_1", key="x")
    lease = story.deliver(5, node="far", order="x", msg="x", queue="broker-a_1")
    for _ in range(40):
        waiting(story, 4).add("extend", node="far", **other, lease=lease, ms=5000)
    story.add("ack_ok", node="far", **other, lease=lease, offset=5, outcome="ok")
    story.add("finish", node="far", **other, offset=5, outcome="ok")
    assert found(story.through(0)) == {"N5"}


@pytest.mark.parametrize(("gap_s", "ids"), [(0.0, set()), (1.0, {"N5"})])
def test_a_client_that_takes_one_message_after_another_keeps_its_queue(
    gap_s: float, ids: set[str]
) -> None:
    """Each lease is short, and no pull waits between two of them."""
    others = [f"k{offset}" for offset in range(40)]
    story = owned("last", *others, max_jobs=99)
    for offset, key in enumerate(others, 1):
        lease = story.deliver(offset, order=key)
        waiting(story, 4).ack(offset, lease)
        if gap_s:
            waiting(story, gap_s)
    assert found(story.through(0, order="last")) == ids


@pytest.mark.parametrize(
    ("place", "turn_s", "ids"),
    [
        ({"queue": "broker-a_1"}, 2, set()),
        ({"topic": "payments"}, 2, set()),
        ({"queue": "broker-a_1"}, 40, {"N5"}),  # hardly a turn
        ({"queue": "broker-a_1", "node": "far"}, 2, {"N5"}),
        ({"topic": "payments", "group": "audit"}, 2, {"N5"}),
    ],
)
def test_a_client_that_takes_messages_of_several_queues_in_turn_keeps_them(
    place: dict[str, str], turn_s: int, ids: set[str]
) -> None:
    mine = [f"k{offset}" for offset in range(40)]
    story, other = owned("last", *mine, max_jobs=99), {"node": "n", **LANE, **place}
    story.add("own+", **other, **RULES, epoch=1)
    for offset, key in enumerate(mine, 1):
        lease = story.deliver(offset, order=key)
        waiting(story, 2).ack(offset, lease)
        one_elsewhere(story, 100 + offset, turn_s, **other)
    assert found(story.through(0, order="last")) == ids


def test_n5_a_queue_without_a_turn_at_a_busy_owner() -> None:
    """Clients of its topic are elsewhere, those at its owner take messages of another one."""
    other = {"node": "n", **LANE, "topic": "payments"}
    story = owned("k").add("own+", **other, **RULES, epoch=1)
    for offset in range(40):
        one_elsewhere(story, 100 + offset, 4, **other)
    assert found(story.through(0)) == {"N5"}


@pytest.mark.parametrize(("topic", "ids"), [("orders", set()), (None, set()), ("bills", {"N5"})])
def test_a_rate_limit_of_the_owner_may_hold_it_back(topic: str | None, ids: set[str]) -> None:
    story = sent("k").add("rate", group="billing", topic=topic, max_rate=0.001).own(1, **RULES)
    assert found(waiting(story, LONG_S).through(0)) == ids


def test_a_reset_starts_over() -> None:
    story = waiting(owned("k").add("own-", **LANE, epoch=1, reason="reset"), 100)
    story.add("audit", id="a", phase="begin", by="me", reason="so", before={}, after={})
    where = {**LANE, "epoch": 1, "from": 0, "to": 0}
    story.add("reset", **where, by="me", reason="so", audit="a")
    assert found(waiting(story, 100).own(2, **RULES).through(0)) == set()


def test_without_rules_nothing_is_judged() -> None:
    assert found(waiting(sent("k").own(1), LONG_S).through(0)) == set()


# ---- N6 ------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("jobs", "full", "ids"),
    [(4, {}, {"N6"}), (3, {"memory_full": True}, {"N6"}), (3, {}, {"N5"})],
)
def test_n6_the_window_of_its_queue_was_full(
    jobs: int, full: dict[str, bool], ids: set[str]
) -> None:
    story = waiting(owned("k"), 1)
    story.add("window", **LANE, epoch=1, jobs=jobs, limit=4, **full)
    assert found(waiting(story, LONG_S).through(0)) == ids


def test_n6_is_judged_at_the_end_as_well() -> None:
    story = Story().own(1, **RULES).add("window", **LANE, epoch=1, jobs=4, limit=4)
    story.sent(0, key="a").sent(1, key="b").through(0, order="a")
    assert found(waiting(story, LONG_S)) == {"N5", "D1"}  # it was full only before
    story = waiting(owned("k", "l").through(0), 1)
    story.add("window", **LANE, epoch=1, jobs=4, limit=4)
    assert found(waiting(story, LONG_S)) == {"N6", "D1"}


def test_a_full_window_that_holds_a_message_for_a_moment_is_clean() -> None:
    story = waiting(owned("k"), 1).add("window", **LANE, epoch=1, jobs=4, limit=4)
    assert found(waiting(story, LIMITS.demand_s - 2).through(0)) == set()


def test_clients_that_hold_messages_and_ask_for_no_more_keep_their_queue() -> None:
    """The next message of the queue waits for them, although a pull waits elsewhere."""
    story = owned("k", "l")
    lease = story.deliver(0)
    for _ in range(140):
        waiting(story, 1).add("extend", node="n", **LANE, epoch=1, lease=lease, ms=5000)
    story.ack(0, lease)
    assert found(story.through(1, order="l")) == set()
    assert found(waiting(sent("k").own(1, **RULES), LONG_S).through(0)) == {"N5"}


# ---- while the order key changes -----------------------------------------------------------------


def changing(*keys: str) -> Story:
    """Begin a change of the order key at offset 1, before message 0 is delivered."""
    story = owned(*keys)
    about = {"version": 2, "since": 1, "order_key": "$.id", "missing_key": "by_queue"}
    return story.add("order_key", **LANE, epoch=1, through=False, **about)


def through_older(story: Story, next_order: str) -> Story:
    """Handle message 0, which has the key k and by the new rule *next_order*."""
    story.ack(0, story.deliver(0, next_order=next_order))
    about = {"version": 2, "since": 1, "order_key": "$.id", "missing_key": "by_queue"}
    return story.add("order_key", **LANE, epoch=1, through=True, **about)


@pytest.mark.parametrize(
    ("next_order", "ids"),
    [
        pytest.param("other", {"N5"}, id="it waited for the sake of another key"),
        pytest.param("l", set(), id="it waited for the older one of its key"),
    ],
)
def test_n5_a_newer_message_waits_for_older_ones_of_its_key_alone(
    next_order: str, ids: set[str]
) -> None:
    story = changing("k", "l")
    story.add("pause", **LANE, epoch=1, order="k", by="p", reason="so", audit="A")
    waiting(story, LONG_S).add("resume", **LANE, epoch=1, order="k", by="p", reason="so", audit="A")
    assert found(through_older(story, next_order).through(1, order="l")) == ids


def test_a_newer_message_may_wait_for_an_unknown_older_one() -> None:
    story = changing("k", "l")
    story.add("pause", **LANE, epoch=1, order="k", by="p", reason="so", audit="A")
    assert found(waiting(story, LONG_S).through(1, order="l")) == {"D1"}


def test_a_newer_message_may_wait_for_copies_of_older_ones() -> None:
    story = changing("k", "l")
    story.add("park", **LANE, epoch=1, order="k", by="p", reason="so")
    waiting(story.finish(0, outcome="parked", order="k").commit(1), LONG_S)
    assert found(story.through(1, order="l")) == set()


# ---- topics of the group -------------------------------------------------------------------------


def consumes(story: Story, *topics: str, node: str = "far") -> Story:
    return story.add("consumes", node=node, group="billing", topics=list(topics))


def for_any(story: Story, seconds: float, *, node: str = "far") -> Story:
    """Let a pull for any topic of the group wait."""
    return waiting(story, seconds, topics=None, node=node)


def test_a_pull_for_any_topic_does_not_want_one_that_is_removed_from_the_group() -> None:
    story = consumes(owned("k"), "orders", "refunds").add("own-", **LANE, epoch=1, reason="lost")
    for_any(consumes(story, "refunds"), LONG_S)
    for_any(consumes(story, "orders", "refunds"), LIMITS.demand_s / 2)
    assert found(story.own(2, **RULES).through(0)) == set()


def test_n5_it_wants_one_that_is_added_again() -> None:
    story = consumes(owned("k"), "orders").add("own-", **LANE, epoch=1, reason="lost")
    for_any(consumes(story, "refunds"), LONG_S)
    for_any(consumes(story, "orders"), LONG_S)
    assert found(story.own(2, **RULES).through(0)) == {"N5"}


def test_n5_another_proxy_does_not_know_yet_that_it_is_removed() -> None:
    story = consumes(consumes(owned("k"), "orders"), "orders", node="other")
    for_any(consumes(story, "refunds"), LONG_S, node="other")
    assert found(story.through(0)) == {"N5"}


@pytest.mark.parametrize(("added", "expected"), [(True, {"N5", "D1"}), (False, {"D1"})])
def test_a_pull_that_waits_to_the_end_wants_it_only_from_its_addition(
    added: bool, expected: set[str]
) -> None:
    story = consumes(owned("k", "l").through(0), "orders")
    story.add("own-", **LANE, epoch=1, reason="lost")
    pull(consumes(story, "refunds"), "pull_wait", topics=None).wait(LONG_S)
    if added:
        consumes(story, "orders")
    assert found(consumes(story.wait(LONG_S), "orders")) == expected


@pytest.mark.parametrize(("topics", "expected"), [(["orders"], {"N3", "N5"}), (["refunds"], set())])
def test_the_owner_too_delivers_only_what_its_pulls_want(
    topics: list[str], expected: set[str]
) -> None:
    story = for_any(consumes(owned("k"), *topics, node="n"), LONG_S, node="n")
    assert found(story.through(0)) == expected


def test_n5_a_new_process_has_the_topics_of_its_settings() -> None:
    story = consumes(consumes(owned("k"), "orders"), "refunds").add("start", node="far", pid=2)
    assert found(for_any(story, LONG_S).through(0)) == {"N5"}


def test_a_pull_of_a_killed_process_does_not_want_it_later() -> None:
    story = consumes(owned("k", "l").through(0), "refunds")
    story.add("own-", **LANE, epoch=1, reason="lost")
    pull(story, "pull_wait", topics=None).wait(1).add("start", node="far", pid=2)
    assert found(consumes(story.wait(LONG_S), "orders")) == {"D1"}
