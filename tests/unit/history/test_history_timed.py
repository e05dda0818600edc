"""Timed invariants: clean histories, and histories that violate one id."""

from __future__ import annotations

from typing import Any

import pytest

from proxy.history.limits import Limits
from tests.support.histories import LANE, Story

LIMITS = Limits()
RULES: dict[str, Any] = {
    "order_key": "KEY",
    "visibility_ms": 5000,
    "retry_ms": [1000, 2000],
    "max_deliveries": 3,
    "max_jobs": 4,
    "max_leased": 10,
}

SECOND = 1_000_000_000


def owned(*keys: str, **others: Any) -> Story:
    """Return a story of a queue with a message for each of *keys*, and an owner."""
    story = Story()
    for offset, key in enumerate(keys):
        story.sent(offset, key=key)
    return story.own(1, **{**RULES, **others})


def waiting(story: Story, seconds: float, *, topics: list[str] | None = None) -> Story:
    """Let a pull wait for *seconds*."""
    pull: dict[str, Any] = {"group": "billing", "topics": topics, "consumer": "c"}
    return story.add("pull_wait", **pull).wait(seconds).add("pull_end", **pull)


def nemesis(story: Story, phase: str) -> Story:
    return story.add("nemesis", what="kill", target="p", phase=phase)


# ---- C3 ------------------------------------------------------------------------------------------


def test_c3_a_message_finished_long_ago_is_not_committed() -> None:
    story = owned("k", "k", "k").through(0).wait(LIMITS.commit_s + 1)
    assert story.through(1, 2).commit(3).found() == {"C3"}


def test_c3_is_judged_at_the_end_as_well() -> None:
    story = owned("k").through(0).wait(LIMITS.commit_s + 1)
    assert story.add("extend", **LANE, epoch=1, lease=7, ms=1).found() == {"C3"}


def test_a_commit_in_time_is_clean() -> None:
    story = owned("k", "k").through(0).wait(5).commit(1).wait(LIMITS.commit_s + 1)
    assert story.through(1).commit(2).found() == set()


def test_an_unfinished_message_keeps_commits_back_without_blame() -> None:
    story = owned("a", "b")
    story.ack(0, story.deliver(0, order="a"), outcome="retry")
    story.through(1, order="b").wait(LIMITS.commit_s + 1)
    assert story.through(0, order="a").commit(2).found() == set()


def test_no_commit_is_asked_for_during_a_fault() -> None:
    story = nemesis(owned("k", "k").through(0), "begin").wait(LIMITS.commit_s + 1)
    assert nemesis(story, "end").through(1).commit(2).found() == set()


# ---- R1 ------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("waited", "found"), [(0.9, {"R1"}), (1.1, set())])
def test_r1_no_retry_before_its_time(waited: float, found: set[str]) -> None:
    story = owned("k")
    story.ack(0, story.deliver(0), outcome="retry").wait(waited)
    lease = story.deliver(0, at_ns=story.now_ns)
    assert story.ack(0, lease).found() == found


@pytest.mark.parametrize(("attempts", "after_s"), [(1, 1.5), (2, 1.5), (1, 0.6)])
def test_r1_later_intervals_and_the_clients_own_wish(attempts: int, after_s: float) -> None:
    """The second interval is longer; a client may set another one."""
    story = owned("k")
    for _ in range(attempts - 1):
        story.ack(0, story.deliver(0), outcome="retry").wait(1.1)
    story.ack(0, story.deliver(0), outcome="retry")
    if after_s < 1:
        story.events[-1]["after_ms"] = 500
    story.wait(after_s)
    story.ack(0, story.deliver(0, at_ns=story.now_ns))
    assert story.found() == ({"R1"} if attempts == 2 else set())


def test_r1_a_retry_that_is_not_delivered_although_a_pull_waits() -> None:
    story = owned("k")
    story.ack(0, story.deliver(0), outcome="retry")
    waiting(story, 1 + LIMITS.retry_s + 1)
    assert story.through(0).found() == {"R1"}


def test_without_a_pull_no_retry_is_late() -> None:
    story = owned("k")
    story.ack(0, story.deliver(0), outcome="retry").wait(1 + LIMITS.retry_s + 1)
    assert story.through(0).found() == set()


# ---- R2 and the end of leases -------------------------------------------------------------------


def test_r2_a_lease_that_expires_before_its_deadline() -> None:
    story = owned("k")
    lease = story.deliver(0)
    assert story.wait(4).expire(0, lease).through(0).found() == {"R2"}


def test_r2_a_lease_that_expires_although_it_was_extended() -> None:
    story = owned("k")
    lease = story.deliver(0)
    story.wait(4).add("extend", **LANE, epoch=1, lease=lease, ms=60_000).wait(2)
    assert story.expire(0, lease).through(0).found() == {"R2"}


@pytest.mark.parametrize(("stood_still_s", "found"), [(3, set()), (0, {"R2"})])
def test_leases_and_extensions_count_from_their_decisions(
    stood_still_s: int, found: set[str]
) -> None:
    """The proxy may have been stopped before it wrote its decision."""
    story = owned("k").wait(4)
    lease = story.deliver(0, at_ns=story.now_ns - stood_still_s * SECOND)
    assert story.wait(3).expire(0, lease).through(0).found() == found
    story = owned("k")
    lease = story.deliver(0)
    at_ns = story.wait(4).now_ns - stood_still_s * SECOND
    story.add("extend", **LANE, epoch=1, lease=lease, ms=3000, at_ns=at_ns)
    assert story.wait(1.5).expire(0, lease).through(0).found() == found


def test_an_extension_counts_from_its_own_time() -> None:
    story = owned("k")
    lease = story.deliver(0)
    story.wait(4).add("extend", **LANE, epoch=1, lease=lease, ms=3000).wait(3)
    assert story.expire(0, lease).through(0).found() == set()


def test_x1_an_overdue_lease_that_is_never_ended() -> None:
    story = owned("k", "l")
    story.deliver(0)
    story.wait(5 + LIMITS.lease_s + 1).through(1, order="l")
    assert "X1" in story.found()


# ---- N1, N3, N4 ----------------------------------------------------------------------------------


def test_n3_a_message_that_is_not_delivered_although_a_pull_waits() -> None:
    story = waiting(owned("k"), LIMITS.delivery_s + 1)
    assert story.through(0).found() == {"N3"}


def test_n3_a_message_that_never_comes() -> None:
    story = waiting(owned("a", "b").through(0, order="a"), LIMITS.delivery_s + 1)
    assert story.commit(1).found() == {"N3", "D1"}


def test_n3_an_expired_message_that_is_not_delivered_again() -> None:
    story = owned("k")
    lease = story.deliver(0)
    story.wait(6).expire(0, lease)
    assert waiting(story, LIMITS.delivery_s + 1).found() >= {"N3"}


@pytest.mark.parametrize("topics", [["other"], ["orders"], None])
def test_only_pulls_for_its_topic_count(topics: list[str] | None) -> None:
    story = waiting(owned("k"), LIMITS.delivery_s + 1, topics=topics)
    assert story.through(0).found() == (set() if topics == ["other"] else {"N3"})


def test_pulls_of_a_killed_process_do_not_wait_at_the_next_one() -> None:
    story = Story().add("start").add("pull_wait", group="billing", topics=None, consumer="c")
    story.add("start").sent(0).own(1, **RULES)
    assert story.wait(LIMITS.delivery_s + 1).through(0).commit(1).found() == set()


def test_pulls_at_the_next_one_count() -> None:
    story = Story().add("start").add("start").sent(0).own(1, **RULES)
    assert waiting(story, LIMITS.delivery_s + 1).through(0).commit(1).found() == {"N3"}


def test_nothing_is_due_before_a_take_over_has_waited() -> None:
    hold_until_ns = int((LIMITS.delivery_s + 1) * 1e9)
    story = owned("k", hold_until_ns=hold_until_ns, trust_ms=20_000)
    assert waiting(story, LIMITS.delivery_s + 2).through(0).found() == set()


def test_nothing_is_due_during_a_fault_and_for_some_time_after() -> None:
    story = nemesis(owned("k"), "begin").wait(60)
    waiting(nemesis(story, "end"), LIMITS.settle_s + 1)
    assert story.through(0).found() == set()


def test_nothing_is_due_once_the_group_has_all_its_leases() -> None:
    story = owned("a", "b", max_leased=1)
    lease = story.deliver(0, order="a")
    for _ in range(10):
        waiting(story, 4).add("extend", **LANE, epoch=1, lease=lease, ms=5000)
    assert story.ack(0, lease).commit(1).through(1, order="b").commit(2).found() == set()


def test_n4_the_next_of_a_key_that_does_not_become_ready() -> None:
    story = waiting(owned("k", "k").through(0), LIMITS.successor_s + 1)
    assert story.through(1).found() == {"N4"}


def test_n4_the_next_of_a_key_that_never_becomes_ready() -> None:
    story = waiting(owned("k", "k").through(0), LIMITS.successor_s + 1)
    assert story.commit(1).found() == {"N4", "D1"}


@pytest.mark.parametrize(("after_s", "expected"), [(1, set()), (LIMITS.successor_s + 1, {"N4"})])
def test_n4_the_next_of_a_key_counts_from_the_tags_that_want_it(
    after_s: float, expected: set[str]
) -> None:
    rules = {**RULES, "tags": ["a"]}
    story = Story().sent(0, key="k", tag="a").sent(1, key="k", tag="b").own(1, **rules).through(0)
    waiting(story, LIMITS.successor_s + 1)
    waiting(story.add("rules", **LANE, epoch=1, **{**rules, "tags": ["b"]}, jobs=0), after_s)
    assert story.through(1).found() == expected


def test_a_message_sent_a_moment_ago_is_no_successor_that_was_forgotten() -> None:
    story = waiting(owned("k").through(0), LIMITS.successor_s + 1).commit(1)
    assert story.sent(1).through(1).found() == set()


def test_n1_a_key_that_is_held_up_by_another_one() -> None:
    story = owned("stuck", "k")
    stuck = story.deliver(0, order="stuck")
    for _ in range(10):
        waiting(story, 4).add("extend", **LANE, epoch=1, lease=stuck, ms=5000)
    assert story.through(1).ack(0, stuck).found() == {"N1"}


def test_n1_a_key_that_is_kept_in_order_as_another() -> None:
    assert owned("k").through(0, order="0x01").found() == {"N1"}


def test_a_message_sent_without_a_key_goes_as_its_group_says() -> None:
    assert owned("").through(0, order="0xff").found() == set()


# ---- N2 ------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("jobs", "found"), [(4, set()), (5, {"N2"})])
def test_n2_more_messages_in_memory_than_allowed(jobs: int, found: set[str]) -> None:
    story = owned("k").add("window", **LANE, epoch=1, jobs=jobs, limit=4)
    assert story.through(0).found() == found


def test_n2_more_leased_messages_than_allowed_in_memory() -> None:
    story = owned(*"abcde")
    leases = [story.deliver(offset, order=key) for offset, key in enumerate("abcde")]
    for offset, lease in enumerate(leases):
        story.ack(offset, lease)
    assert story.found() == {"N2"}


def test_n2_messages_that_wait_for_a_retry_need_not_be_in_memory() -> None:
    story = owned(*"abcde")
    for offset, key in enumerate("abcde"):
        story.ack(offset, story.deliver(offset, order=key), outcome="retry")
    assert "N2" not in story.found()
