"""G1: offsets, commits and leases of one life of a topic do not count in the next one."""

from __future__ import annotations

from typing import Any

import pytest

from tests.support.histories import LANE, Story
from tests.support.history_parts import counted, found_both_ways, judge_in_parts

RULES: dict[str, Any] = {
    "order_key": "KEY",
    "visibility_ms": 5000,
    "retry_ms": [1000],
    "max_deliveries": 3,
    "max_jobs": 40,
    "max_leased": 10,
}


def first_life(messages: int = 10, **fields: Any) -> Story:
    """Return a life in which *messages* messages were sent, handled and committed; *fields* are its
    owner's.
    """
    story = Story()
    for offset in range(messages):
        story.sent(offset)
    return story.own(1, **fields).through(*range(messages)).commit(messages)


def topic(story: Story, what: str) -> Story:
    return story.add("topic", topic="orders", what=what)


def anew(story: Story, messages: int = 4, *, own: bool = True, **fields: Any) -> Story:
    """Delete and create the topic, send *messages* messages, and add an owner."""
    topic(topic(story, "deleted"), "created")
    story.set_attempts({})
    for offset in range(messages):
        story.sent(offset, msg=f"n{offset}")
    return story.own(story.epoch + 1, **fields) if own else story


def through(story: Story, *offsets: int, **fields: Any) -> Story:
    """Handle messages of the new life."""
    for offset in offsets:
        story.ack(offset, story.deliver(offset, msg=f"n{offset}", **fields))
    return story


def found(story: Story) -> set[str]:
    return found_both_ways(story.events)


# ---- clean ---------------------------------------------------------------------------------------


def test_a_new_life_is_clean() -> None:
    report = through(anew(first_life()), 0, 1, 2, 3).commit(4).report()
    assert report.clean, report.as_dict()
    counts = report.counts
    assert (counts.sends, counts.deliveries, counts.lost, counts.duplicates) == (14, 14, 0, 0)


def test_several_lives_are_clean() -> None:
    story = first_life()
    for number in range(3):
        topic(topic(story, "deleted"), "created")
        for offset in range(3):
            story.sent(offset, msg=f"{number}-{offset}")
        story.own(story.epoch + 1)
        for offset in range(3):
            story.ack(offset, story.deliver(offset, msg=f"{number}-{offset}"))
        story.commit(3)
    assert found(story) == set()


def test_epochs_may_start_over() -> None:
    story = first_life()
    story.own(2).own(3)
    story = anew(story, own=False).own(0)
    assert found(through(story, 0, 1, 2, 3).commit(4)) == set()


def test_unfinished_messages_are_gone_and_not_lost() -> None:
    story = Story()
    for offset in range(5):
        story.sent(offset)
    story.own(1).through(0)
    story.deliver(1)
    assert found(through(anew(story, 2), 0, 1)) == set()


def test_a_topic_that_is_deleted_for_good_owes_nothing() -> None:
    story = Story().sent(0).sent(1).own(1, **RULES).through(0)
    story.deliver(1)
    pull: dict[str, Any] = {"group": "billing", "topics": ["orders"], "consumer": "c"}
    topic(story, "deleted").add("pull_wait", **pull).wait(300).add("pull_end", **pull)
    assert found(story) == set()


def test_another_topic_goes_on() -> None:
    story = first_life(2).sent(2)
    story.add("topic", topic="other", what="deleted").add("topic", topic="other", what="created")
    assert found(story) == {"D1"}


def test_a_topic_that_is_created_for_the_first_time_changes_nothing() -> None:
    assert found(topic(Story(), "created").sent(0).own(1).through(0)) == set()


def test_leased_messages_may_be_handled_and_acked() -> None:
    story = first_life(2).sent(2).sent(3)
    running, waiting = story.deliver(2), story.deliver(3, order="l")
    story.handle_start(2, running)
    anew(story, own=False)
    story.handle_end(2, running).ack(2, running)
    story.handle_start(3, waiting, order="l").handle_end(3, waiting, order="l", outcome="retry")
    story.ack(3, waiting, outcome="retry")
    story.own(2)
    assert found(through(story, 0, 1, 2, 3).commit(4)) == set()


def test_leased_messages_may_be_acked_after_the_new_owner_began() -> None:
    story = first_life(2).sent(2)
    running = story.deliver(2)
    anew(story)
    for event in ("ack_ok", "finish"):
        story.add(event, **LANE, epoch=1, lease=running, offset=2, outcome="ok")
    story.set_attempts({})
    assert found(through(story, 0, 1, 2, 3).commit(4)) == set()


def test_a_proxy_may_own_the_new_topic_before_its_creation_is_recorded() -> None:
    story = topic(first_life(), "deleted").own(2)
    for offset in range(4):
        story.sent(offset, msg=f"n{offset}")
    through(story, 0, 1)
    assert found(through(topic(story, "created"), 2, 3).commit(4)) == set()


def test_late_events_of_an_owner_belong_to_its_life() -> None:
    story = first_life(2).sent(2)
    decided_ns = story.now_ns
    anew(story, own=False).commit(2, asked_ns=decided_ns)
    lease = story.deliver(2, at_ns=decided_ns)
    story.ack(2, lease).own(2)
    assert found(through(story, 0, 1, 2, 3)) == set()


def test_a_pause_does_not_outlive_its_topic() -> None:
    about = {**LANE, "order": "k", "by": "me", "reason": "so", "audit": "a"}
    story = first_life(2).add("pause", **about, epoch=1)
    assert found(through(anew(story, 2), 0, 1)) == set()


def test_r4_unless_its_new_owner_says_so() -> None:
    assert found(through(anew(first_life(), 1, paused=["k"]), 0)) == {"R4"}


def test_a_parked_key_does_not_outlive_its_topic() -> None:
    story = first_life(2).add("park", **LANE, order="k", by="me", reason="so", epoch=1)
    assert found(through(anew(story, 2), 0, 1)) == set()


def test_a_period_of_a_life_that_ended_meanwhile_is_not_of_the_life_before() -> None:
    """Its proxy was frozen between the request and the event."""
    story = first_life(2, key_version=1).sent(2)
    story.add("park", **LANE, order="k", by="me", reason="so", epoch=1)
    story = anew(story.finish(2, outcome="parked", order="k"), 2, key_version=1)
    asked_ns = through(story, 0, 1).now_ns
    topic(story, "deleted").own(3, key_version=1, asked_ns=asked_ns)
    topic(story, "created").own(4, key_version=1)
    assert found(story) == set()


def test_a_send_in_flight_while_the_topic_was_deleted_is_not_judged() -> None:
    story = first_life(2).add("send", msg="x", topic="orders", key="k")
    story = topic(topic(story, "deleted"), "created")
    story.add("send_ok", msg="x", topic="orders", queue="broker-a_0", offset=2).own(2)
    assert found(story) == set()


def test_handlers_alone_can_be_judged_over_lives() -> None:
    story = Story().sent(0, placed=False).sent(1, placed=False).handled(0)
    topic(topic(story, "deleted"), "created").sent(0, msg="n0", placed=False)
    event = {**LANE, "offset": 0, "msg": "n0", "order": "k", "attempt": 1, "lease": 1}
    story.add("handle_start", **event, consumer="c")
    assert found(story) == {"D1"}
    story.add("handle_end", **event, consumer="c", outcome="ok")
    assert found(story) == set()


# ---- red -----------------------------------------------------------------------------------------


def test_d1_a_new_message_that_does_not_finish() -> None:
    assert found(through(anew(first_life()), 0, 1, 2)) == {"D1"}


def test_d1_an_old_commit_hides_new_messages() -> None:
    """The owner begins at 10, where the previous life ended; lower messages are never delivered."""
    story = anew(first_life(10), 12, begin=10)
    report = through(story, 10, 11).commit(12).report()
    assert set(report.violations) == {"C2", "D1"}
    assert report.counts.lost == 10


def test_d1_an_old_commit_hides_all_new_messages() -> None:
    story = anew(first_life(10), 4, begin=10)
    assert found(story) == {"D1"}
    assert story.report().counts.lost == 4


def test_g1_an_old_offset_is_committed_again() -> None:
    story = anew(first_life(10), 4, begin=10)
    assert found(story.commit(10)) == {"C2", "D1", "G1"}


@pytest.mark.parametrize(("filters", "expected"), [([], {"G1"}), (["tags"], set())])
def test_an_unanswered_send_may_have_stored_a_message_that_tags_leave_out(
    filters: list[str], expected: set[str]
) -> None:
    """Found by exploring: no event has the place of such a message, and the commit counts it."""
    story = anew(first_life(10), 4, filters=filters, **RULES)
    for event in ("send", "send_info"):
        story.add(event, msg="n4", topic="orders", key="k")
    assert found(through(story, 0, 1, 2, 3).commit(5)) == expected


def test_g1_an_old_message_is_delivered() -> None:
    story = through(anew(first_life(10)), 0, 1, 2, 3)
    story.ack(7, story.deliver(7)).commit(4)
    assert found(story) == {"G1"}
    assert story.report().violations["G1"].examples == [
        "group billing, orders/broker-a_0: offset 7 of a former life of the topic was delivered as"
        " message m7 in life 2"
    ]


def repeated(story: Story) -> Story:
    """Note a failed try of the last message; another try stored it in this life."""
    return story.add("send_info", msg="m9", topic="orders")


@pytest.mark.parametrize("named", [False, True])
def test_a_try_that_was_given_up_may_store_its_message_in_the_next_life(named: bool) -> None:
    """Found by exploring: a proxy stands still while the topic is deleted, and stores it then."""
    story = anew(repeated(first_life(10)), 2)
    place = {"queue": LANE["queue"], "offset": 2} if named else {}
    story.add("send_ok", msg="m9", topic="orders", key="k", **place)
    through(story, 0, 1).ack(2, story.deliver(2, msg="m9"), outcome="retry")
    story.wait(2).ack(2, story.deliver(2, msg="m9"))
    assert found(story.commit(3)) == set()


def test_a_message_without_an_answer_is_of_the_life_that_has_its_neighbours() -> None:
    """Its owner has read it and does not know yet that the topic was created again."""
    story = first_life(9, trust_ms=5000)
    story.add("send", msg="m9", topic="orders", key="k")
    story.add("send_info", msg="m9", topic="orders")
    anew(story, own=False)
    for offset in (9, 10):  # both tries have stored it
        story.ack(offset, story.deliver(offset, msg="m9"))
    story.set_attempts({}).own(2)
    assert found(through(story, 0, 1, 2, 3).commit(4)) == set()


def test_g1_the_copy_of_the_former_life_is_delivered_although_a_try_was_given_up() -> None:
    story = through(anew(repeated(first_life(10))), 0, 1, 2, 3)
    story.ack(9, story.deliver(9)).commit(4)
    assert found(story) == {"G1"}


def test_g1_an_old_message_in_the_place_of_a_new_one() -> None:
    story = anew(first_life(10))
    story.ack(0, story.deliver(0))
    assert found(story) == {"G1", "D1"}
    assert found(through(story, 0, 1, 2, 3).commit(4)) == {"G1"}


@pytest.mark.parametrize("late", ["expire", "retry", "unsent"])
def test_g1_is_reported_once_per_lease(late: str) -> None:
    story = anew(first_life(10))
    lease = story.deliver(0)
    if late == "retry":
        story.ack(0, lease, outcome="retry")
    else:
        story.add(late, **LANE, epoch=story.epoch, lease=lease, offset=0)
    story.set_attempts({})
    assert found(through(story, 0, 1, 2, 3)) == {"G1"}
    assert story.report().violations["G1"].count == 1


def test_an_isolated_old_owner_delivers_from_memory_while_it_trusts_its_lock() -> None:
    story = anew(first_life(4).sent(4).sent(5), own=False).wait(4)
    story.ack(4, story.deliver(4)).finish(5, outcome="filtered", by="tags")
    story.own(2)
    story.set_attempts({})
    assert found(through(story, 0, 1, 2, 3)) <= {"D2"}  # its rules may filter nothing


def test_g1_the_old_owner_delivers_from_memory() -> None:
    story = anew(first_life(4).sent(4), own=False).wait(6)
    story.deliver(4)
    story.own(2)
    story.set_attempts({})
    assert found(through(story, 0, 1, 2, 3)) == {"G1"}


def test_g1_the_old_owner_commits_and_finishes() -> None:
    story = anew(first_life(4).sent(4), own=False).wait(6).commit(4)
    story.finish(4, outcome="filtered").own(2)
    assert found(through(story, 0, 1, 2, 3).commit(4)) == {"G1"}
    assert story.report().violations["G1"].count == 2


def test_g1_an_old_parked_copy_is_redriven() -> None:
    twin = {**LANE, "queue": "broker-a_0p"}
    story = first_life(2).add("park", **LANE, order="k", by="me", reason="so", epoch=1)
    story.sent(2).finish(2, outcome="parked", order="k")
    story.add("own+", **twin, epoch=1, owner="p", period=1)
    anew(story).add("own+", **twin, epoch=2, owner="p", period=2)
    story.add("redrive", **LANE, order="k", by="me", audit=None, state="started", epoch=2)
    story.deliver(0, queue="broker-a_0p", msg="m2", origin_offset=2)
    story.set_attempts({})
    assert found(through(story, 0, 1, 2, 3)) - {"R5"} == {"G1"}


@pytest.mark.parametrize(("after_s", "allowed"), [(4, True), (6, False)])
def test_a_parked_copy_is_redriven_and_committed_while_the_lock_is_trusted(
    after_s: float, allowed: bool
) -> None:
    """Copies are in a topic of their own, so no broker refuses their commit."""
    twin = {**LANE, "queue": "broker-a_0p"}
    story = first_life(2).add("park", **LANE, order="k", by="me", reason="so", epoch=1)
    story.sent(2).finish(2, outcome="parked", order="k")
    story.add("own+", **twin, epoch=1, owner="p", period=1)
    story.add("redrive", **LANE, order="k", by="me", audit=None, state="started", epoch=1)
    lease = story.deliver(0, queue="broker-a_0p", msg="m2", origin_offset=2)
    anew(story, own=False).wait(after_s)
    story.add("ack_ok", **twin, epoch=1, lease=lease, offset=0, outcome="ok")
    story.finish(0, **twin).add("commit", **twin, epoch=1, offset=1)
    story.own(2)
    story.set_attempts({})
    rules = found(through(story, 0, 1, 2, 3).commit(4)) - {"R5"}
    assert rules == (set() if allowed else {"G1"})


def test_the_owner_of_the_previous_life_may_continue_in_the_new_one() -> None:
    """No other proxy took the queue; it read the new log from its beginning."""
    story = anew(first_life(), own=False)
    assert found(through(story, 0, 1, 2, 3).commit(4)) == set()


def test_order_inside_a_key_is_judged_in_each_life() -> None:
    assert found(through(anew(first_life(), 2), 1, 0)) == {"O1"}
    assert found(through(anew(first_life(), 1), 0, 0)) == {"D1"}


def test_parts_count_what_the_whole_counts() -> None:
    story = through(anew(first_life(10), 4, begin=2), 2, 3).commit(9)
    story.sent(2, msg="n2", queue="broker-a_1")  # stored in two queues
    assert counted(judge_in_parts(story.events)) == counted(story.report())


# ---- deletions at one broker ---------------------------------------------------------------------


def at_broker(story: Story, what: str, broker: str) -> Story:
    return story.add("topic", topic="orders", what=what, broker=broker)


def test_a_deletion_at_another_broker_ends_no_life_here() -> None:
    story = first_life(2).sent(2)
    at_broker(at_broker(story, "deleted", "broker-b"), "created", "broker-b")
    assert found(story) == {"D1"}
    assert found(story.through(2)) == set()


def test_a_deletion_at_its_broker_ends_the_life_of_a_queue() -> None:
    story = first_life(10)
    at_broker(at_broker(story, "deleted", "broker-a"), "created", "broker-a")
    story.set_attempts({})
    for offset in range(3):
        story.sent(offset, msg=f"n{offset}")
    story.own(2)
    assert found(through(story, 0, 1)) == {"D1"}
    assert found(through(story, 2).commit(3)) == set()
    story.ack(7, story.deliver(7))
    assert found(story) == {"G1"}


def test_lives_of_the_queues_of_two_brokers_are_numbered_apart() -> None:
    story = first_life(2).sent(0, msg="b0", queue="broker-b_0")
    at_broker(at_broker(story, "deleted", "broker-a"), "created", "broker-a")
    story.set_attempts({})
    story.sent(0, msg="n0").own(2)
    story.add("own+", **{**LANE, "queue": "broker-b_0"}, epoch=1, owner="p")
    through(story, 0)
    assert found(story) == {"D1"}  # of b0, which is of the current life there
    topic(topic(story, "deleted"), "created")
    assert found(story) == set()


# ---- how long an owner may know nothing of a deletion --------------------------------------------


@pytest.mark.parametrize(("after_s", "allowed"), [(1.9, True), (2.1, False)])
def test_g1_a_delivery_after_the_trust_in_the_lock_ended(after_s: float, allowed: bool) -> None:
    """It trusts its lock for its own *trust_ms*, from the creation on."""
    story = Story()
    for offset in range(4):
        story.sent(offset)
    story.own(1, trust_ms=2000).through(0, 1).commit(2)
    anew(story, own=False).wait(after_s)
    story.ack(2, story.deliver(2))
    story.own(2, trust_ms=2000)
    story.set_attempts({})
    assert found(through(story, 0, 1, 2, 3)) == (set() if allowed else {"G1"})


def test_g1_another_owner_delivers_messages_of_the_former_life_at_once() -> None:
    """An owner that took over after the creation has no lock of the former life to trust."""
    story = anew(first_life(4).sent(4))
    story.deliver(4)
    story.set_attempts({})
    assert found(through(story, 0, 1, 2, 3)) == {"G1"}
