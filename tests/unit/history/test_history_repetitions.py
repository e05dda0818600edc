"""Repetitions of messages and answers."""

from __future__ import annotations

from typing import Any

import pytest

from tests.support.histories import LANE, Story


def owned(messages: int, **rules: Any) -> Story:
    story = Story()
    for offset in range(messages):
        story.sent(offset)
    return story.own(1, **rules)


def recorded(story: Story, at: int) -> Story:
    """Add a stored ownership record of the current owner."""
    made_ns = story.now_ns
    return story.add("record", **LANE, epoch=story.epoch, at=at, made_ns=made_ns, kind="delta")


def given_up(story: Story, reason: str = "handed over") -> Story:
    return story.add("own-", **LANE, epoch=story.epoch, reason=reason)


# ---- D2, D3 --------------------------------------------------------------------------------------


def test_d2_a_finish_without_an_ack() -> None:
    story = owned(1)
    story.deliver(0)
    assert story.finish(0).found() == {"D2"}


def test_d2_an_ack_that_asked_for_a_retry() -> None:
    story = owned(1)
    story.ack(0, story.deliver(0), outcome="retry")
    assert story.finish(0).found() == {"D2"}


def test_d3_two_ends_under_one_owner() -> None:
    assert owned(1).through(0).finish(0, outcome="dlq").found() == {"D3"}


def test_d3_another_end_although_the_first_was_committed() -> None:
    story = owned(1).through(0).commit(1).own(2).finish(0, outcome="dlq")
    assert story.found() == {"D3"}


def test_another_end_after_a_crash_is_counted() -> None:
    story = owned(1).through(0).own(2)
    story.ack(0, story.deliver(0), outcome="retry")
    report = story.finish(0, outcome="dlq").report()
    assert report.clean
    assert (report.counts.changed, report.counts.duplicates) == (1, 1)


# ---- D3b -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("end", ["retry", "expire"])
@pytest.mark.parametrize(("attempt", "found"), [(1, {"D3b"}), (2, set()), (3, {"D3b"})])
def test_d3b_every_delivery_counts_once(end: str, attempt: int, found: set[str]) -> None:
    story = owned(1)
    lease = story.deliver(0)
    if end == "retry":
        story.ack(0, lease, outcome="retry")
    else:
        story.expire(0, lease)
    assert story.ack(0, story.deliver(0, attempt=attempt)).found() == found


@pytest.mark.parametrize(("attempt", "found"), [(1, set()), (2, {"D3b"})])
def test_d3b_unhandled_and_unsent_deliveries_do_not_count(attempt: int, found: set) -> None:
    story = owned(1)
    story.ack(0, story.deliver(0), outcome="defer")
    story.add("unsent", **LANE, epoch=1, lease=story.deliver(0, attempt=1), offset=0)
    assert story.ack(0, story.deliver(0, attempt=attempt)).found() == found


def test_d3b_more_deliveries_than_allowed() -> None:
    story = owned(1, max_deliveries=2)
    for _ in range(2):
        story.expire(0, story.deliver(0))
    assert story.ack(0, story.deliver(0)).found() == {"D3b"}


def test_a_crash_may_forget_one_delivery() -> None:
    story = owned(1, max_deliveries=2)
    story.expire(0, story.deliver(0))
    story.deliver(0)
    story.own(2, max_deliveries=2)
    assert story.ack(0, story.deliver(0, attempt=2)).found() == set()


@pytest.mark.parametrize("again", [True, False])
def test_d3b_a_message_given_up_just_before_a_crash_is_not_delivered_again(again: bool) -> None:
    """A record contains its failure but not the give-up, so the next owner gives it up as well."""
    story = owned(1, max_deliveries=2)
    for _ in range(2):
        story.ack(0, story.deliver(0), outcome="retry")
    story.finish(0, outcome="dlq").own(9, max_deliveries=2)
    if again:
        story.ack(0, story.deliver(0, attempt=3), outcome="retry")
    story.finish(0, outcome="dlq")
    assert story.found() == ({"D3b"} if again else set())


@pytest.mark.parametrize(("attempt", "found"), [(1, {"D3b"}), (2, set()), (3, set())])
def test_d3b_a_crash_forgets_no_recorded_attempt(attempt: int, found: set[str]) -> None:
    """No record contains the second; the first had failed in one."""
    story = owned(1)
    story.expire(0, story.deliver(0))
    story.deliver(0)
    recorded(story, at=5).own(9)
    assert story.ack(0, story.deliver(0, attempt=attempt)).found() == found


@pytest.mark.parametrize(("attempt", "found"), [(1, {"D3b"}), (2, set()), (4, set()), (5, {"D3b"})])
def test_d3b_a_record_does_not_contain_later_failures(attempt: int, found: set[str]) -> None:
    """The second was alive in the record, and failed before the crash; the third is in
    no record.
    """
    story = owned(1)
    story.expire(0, story.deliver(0))
    second = story.deliver(0)
    recorded(story, at=5).expire(0, second)
    story.deliver(0)
    story.own(9)
    assert story.ack(0, story.deliver(0, attempt=attempt)).found() == found


def test_d3b_nor_do_two_crashes() -> None:
    story = owned(1)
    story.expire(0, story.deliver(0))
    story.deliver(0)
    recorded(story, at=5).own(9).own(12)
    assert story.ack(0, story.deliver(0, attempt=1)).found() == {"D3b"}


def test_d3b_a_clean_end_forgets_none() -> None:
    story = owned(1)
    story.expire(0, story.deliver(0))
    given_up(story).own(2)
    assert story.ack(0, story.deliver(0, attempt=1)).found() == {"D3b"}


# ---- D4, D5 --------------------------------------------------------------------------------------


def test_d4_a_repetition_of_a_recorded_finish() -> None:
    story = recorded(owned(2).through(0, 1), at=5).own(9)
    report = story.through(0, 1).report()
    assert set(report.violations) == {"D4"}
    assert report.violations["D4"].count == 2


def test_messages_finished_after_the_last_record_may_come_again() -> None:
    story = recorded(owned(2).through(0), at=5).through(1).own(9)
    assert story.through(1).found() == set()


def test_a_record_behind_the_next_owners_does_not_count() -> None:
    story = recorded(owned(1).through(0), at=5).own(4)
    assert story.through(0).found() == set()


def test_d4_a_finish_that_should_have_been_recorded_long_ago() -> None:
    story = recorded(owned(3), at=5).through(0).wait(11).through(1).own(9)
    report = story.through(0, 1, 2).report()
    assert {name: found.count for name, found in report.violations.items()} == {"D4": 1}


def test_d5_a_repetition_after_a_clean_end() -> None:
    assert given_up(owned(1).through(0)).own(2).through(0).found() == {"D5"}


def test_a_clean_end_during_a_fault_may_be_unrecorded() -> None:
    story = owned(1).through(0).add("nemesis", what="kill", target="broker", phase="begin")
    given_up(story).add("nemesis", what="kill", target="broker", phase="end")
    assert story.own(2).through(0).found() == set()


def test_a_clean_end_does_not_cover_finishes_of_a_lost_owner() -> None:
    """The owner in between delivered nothing: it waited, and released the queue."""
    story = given_up(owned(1).through(0), "lost").own(2)
    assert given_up(story).own(3).through(0).found() == set()


@pytest.mark.parametrize("reason", ["lost", "another proxy owned the queue meanwhile"])
def test_a_lost_queue_is_not_a_clean_end(reason: str) -> None:
    assert given_up(owned(1).through(0), reason).own(2).through(0).found() == set()


# ---- X1 ------------------------------------------------------------------------------------------


def pulled(story: Story, offset: int, *, req: str, order: str, **fields: Any) -> int:
    return story.deliver(offset, order=order, req=req, **fields)


def test_x1_a_repeated_pull_that_gets_further_leases() -> None:
    story = owned(2)
    first = pulled(story, 0, req="r1", order="a")
    second = pulled(story, 1, req="r1", order="b")
    assert story.ack(0, first).ack(1, second).found() == {"X1"}


def test_one_answer_may_hold_several_leases() -> None:
    story = owned(2)
    first = pulled(story, 0, req="r1", order="a", at_ns=7)
    second = pulled(story, 1, req="r1", order="b", at_ns=7)
    assert story.ack(0, first).ack(1, second).found() == set()


def test_once_the_first_answers_leases_have_ended_others_may_follow() -> None:
    story = owned(2)
    story.ack(0, pulled(story, 0, req="r1", order="a"))
    assert story.ack(1, pulled(story, 1, req="r1", order="b")).found() == set()


def test_another_proxy_gives_a_new_answer() -> None:
    story = owned(1)
    story.add("own+", **{**LANE, "queue": "broker-a_1"}, epoch=1, owner="q", node="q")
    story.sent(0, msg="x", queue="broker-a_1")
    lease = pulled(story, 0, req="r1", order="k")
    elsewhere = {"queue": "broker-a_1", "node": "q", "msg": "x", "attempt": 1}
    other = pulled(story, 0, req="r1", order="k", **elsewhere)
    place = {**LANE, "queue": "broker-a_1", "epoch": 1, "offset": 0, "outcome": "ok", "node": "q"}
    story.add("ack_ok", **place, lease=other).add("finish", **place)
    assert story.ack(0, lease).found() == set()


def replayed(story: Story, offset: int, lease: int, req: str = "r1") -> Story:
    fields = {"offset": offset, "lease": lease, "consumer": "c", "req": req}
    return story.add("replay", **LANE, epoch=story.epoch, **fields)


def test_a_repeated_lease_is_clean() -> None:
    story = owned(1)
    lease = pulled(story, 0, req="r1", order="k")
    assert replayed(story, 0, lease).ack(0, lease).found() == set()


@pytest.mark.parametrize("req", ["r1", "r2"])
def test_x1_a_repeated_lease_that_had_ended_or_was_anothers(req: str) -> None:
    story = owned(1)
    lease = pulled(story, 0, req="r1", order="k")
    if req == "r1":
        story.ack(0, lease)
        assert replayed(story, 0, lease).found() == {"X1"}
    else:
        assert replayed(story, 0, lease, req).ack(0, lease).found() == {"X1"}


# ---- ends of periods -----------------------------------------------------------------------------


def test_a_decision_before_the_next_grant_written_later_has_no_effect() -> None:
    """The process was stopped in between."""
    story = owned(2)
    lease = story.deliver(0)
    decided_ns = story.now_ns
    story.own(2)
    story.deliver(1, epoch=1, at_ns=decided_ns)
    story.add("ack_ok", **LANE, epoch=1, lease=lease, offset=0, outcome="ok")
    story.finish(0, epoch=1).commit(0, epoch=1, asked_ns=decided_ns)
    story.set_attempts({0: 1, 1: 0})
    report = story.through(0, 1).commit(2).report()
    assert report.clean, report.as_dict()
    assert report.counts.void == 1


def test_a_late_own_event_is_not_a_second_owner() -> None:
    story = owned(1).own(5).add("own+", **LANE, epoch=3, owner="q", asked_ns=1)
    assert story.through(0).found() == set()


def test_w1_a_lower_epoch_requested_later() -> None:
    story = owned(1).own(5)
    story.add("own+", **LANE, epoch=3, owner="q", asked_ns=story.now_ns + 1)
    assert story.through(0).found() == {"W1"}


def test_w1_two_owners_of_one_epoch() -> None:
    story = owned(1)
    assert story.ack(0, story.deliver(0, node="other")).found() == {"W1"}


# ---- runs ----------------------------------------------------------------------------------------


def test_messages_of_a_run_are_leased_together() -> None:
    story = owned(3)
    leases = [story.deliver(offset, run=1) for offset in range(3)]
    for offset, lease in enumerate(leases):
        story.ack(offset, lease)
    assert story.found() == set()


def test_o2_a_run_that_leaves_its_first_message_out() -> None:
    story = owned(3)
    story.ack(0, story.deliver(0), outcome="retry")
    leases = [story.deliver(offset, run=2) for offset in (1, 2)]
    assert story.ack(1, leases[0]).ack(2, leases[1]).through(0).found() >= {"O2"}


# ---- sends ---------------------------------------------------------------------------------------


def test_l1_a_send_in_flight_while_a_process_was_killed_may_be_stored_twice() -> None:
    """Its producer retried it, and the process with the event was killed."""
    story = Story().add("send", msg="m0", topic="orders", key="k")
    story.add("start", parts=["broker"], node="again").sent(1, msg="m0").own(1)
    story.ack(0, story.deliver(0))
    assert story.ack(1, story.deliver(1, msg="m0")).found() == set()


def test_w2_a_decision_of_an_owner_before_it_was_stopped_has_no_effect() -> None:
    """Its process was stopped between the decision and the event."""
    story = owned(1)
    story.own(2).through(0).commit(1)
    story.by(1)
    assert story.finish(0, at_ns=1).found() == set()
