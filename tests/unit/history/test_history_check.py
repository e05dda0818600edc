"""Each invariant has a clean history, and a modified one that violates only this invariant."""

from __future__ import annotations

import pytest

from proxy.history.findings import EXAMPLES
from proxy.history.reader import HistoryError
from tests.support.histories import LANE, Story


def owned(messages: int) -> Story:
    """Return a story of a queue with *messages* messages and an owner."""
    story = Story()
    for offset in range(messages):
        story.sent(offset)
    return story.own(1)


def only_handlers(messages: int) -> Story:
    """Return a story without a proxy: only handlers know the places of messages."""
    story = Story()
    for offset in range(messages):
        story.sent(offset, placed=False)
    return story


# ---- clean ---------------------------------------------------------------------------------------


def test_a_run_in_order_is_clean_and_counted() -> None:
    story = owned(4)
    story.through(0, 1, 2)
    story.through(3, order="other")
    report = story.commit(4).report()
    assert report.clean
    counts = report.counts
    assert (counts.sends, counts.acknowledged, counts.deliveries, counts.keys) == (4, 4, 4, 2)
    assert (counts.duplicates, counts.lost, counts.handled, counts.late) == (0, 0, 0, 0)
    assert report.as_dict()["violations"] == 0


def test_different_keys_may_be_out_at_the_same_time() -> None:
    story = owned(2)
    second, first = story.deliver(1, order="b"), story.deliver(0, order="a")
    assert story.ack(1, second).ack(0, first).found() == set()


def test_unordered_messages_may_come_in_any_order() -> None:
    story = owned(3)
    assert story.through(2, 0, 1, order=None).found() == set()


def test_retries_and_expired_leases_are_clean() -> None:
    story = owned(2)
    story.ack(0, story.deliver(0), outcome="retry")
    story.expire(0, story.deliver(0))
    report = story.through(0, 1).report()
    assert report.clean
    assert report.counts.duplicates == 0


def test_a_crash_may_repeat_what_no_commit_covers_in_order() -> None:
    story = owned(3).through(0, 1).commit(1)
    story.deliver(2)
    report = story.own(2).through(1, 2).commit(3).report()
    assert report.clean
    assert report.counts.duplicates == 1


def test_filtered_and_dead_lettered_messages_have_come_to_an_end() -> None:
    story = owned(3).finish(0, outcome="filtered").finish(1, outcome="dlq")
    assert story.through(2).commit(3).found() == set()


def test_messages_below_the_begin_of_a_group_are_not_meant_for_it() -> None:
    story = Story().sent(0).sent(1).own(1, begin=1)
    assert story.through(1).found() == set()


def test_the_proxy_and_the_producer_may_both_write_the_answer() -> None:
    story = Story().sent(0).sent(0, placed=False).own(1)
    assert story.through(0).found() == set()


def test_a_group_of_another_topic_need_not_have_the_message() -> None:
    story = owned(1).through(0)
    story.add("own+", group="billing", topic="other", queue="broker-a_0", epoch=1, owner="p")
    assert story.found() == set()


# ---- order inside a key --------------------------------------------------------------------------


def test_o1_a_message_delivered_after_a_later_one() -> None:
    story = owned(2).through(1, 0)
    assert story.found() == {"O1"}


def test_o1_a_message_first_delivered_by_the_next_owner_after_a_later_one() -> None:
    story = owned(2).through(1).own(2).through(0)
    assert story.found() == {"O1"}


def test_o4_a_repetition_after_a_crash_in_the_wrong_order() -> None:
    story = owned(3).through(0, 1).own(2).through(1, 0, 2)
    assert story.found() == {"O4"}


def test_o2_a_message_delivered_while_an_earlier_one_waits_for_its_retry() -> None:
    story = owned(2)
    story.ack(0, story.deliver(0), outcome="retry")
    story.through(1)
    assert story.ack(0, story.deliver(0)).found() == {"O2"}


def test_o2_a_new_owner_that_forgets_unfinished_messages() -> None:
    story = owned(2)
    story.deliver(0)
    story.own(2).through(1)
    assert "O2" in story.through(0).found()


def test_o3_two_live_leases_of_one_message() -> None:
    story = owned(1)
    story.deliver(0)
    assert story.ack(0, story.deliver(0)).found() == {"O3"}


def test_o3_two_live_leases_of_an_unordered_message() -> None:
    story = owned(1)
    story.deliver(0, order=None)
    assert story.ack(0, story.deliver(0, order=None)).found() == {"O3"}


def test_o3_two_live_leases_of_a_key() -> None:
    story = owned(2)
    first, second = story.deliver(0), story.deliver(1)
    assert story.ack(0, first).found() >= {"O2", "O3"}
    assert second != first


# ---- the log and what was sent -------------------------------------------------------------------


def test_l1_one_offset_shows_two_messages() -> None:
    story = owned(1).through(0)
    story.add("deliver", **{**story.events[-3], "e": "deliver", "msg": "other", "lease": 9})
    assert "L1" in story.found()


def test_l1_one_message_at_two_offsets() -> None:
    story = Story().sent(0, msg="m0").own(1).through(0)
    story.ack(1, story.deliver(1, msg="m0", order=None))
    assert story.found() == {"L1"}


def test_l1_a_send_retried_after_an_unknown_outcome_may_stand_twice() -> None:
    story = Story().add("send", msg="m0", topic="orders", key="k")
    story.add("send_info", msg="m0", topic="orders", error="time-out").sent(1, msg="m0").own(1)
    story.ack(0, story.deliver(0))
    assert story.ack(1, story.deliver(1, msg="m0")).found() == set()


def test_l2_a_delivered_message_that_was_never_sent() -> None:
    assert owned(1).through(0, 1).found() == {"L2"}


def test_d1_an_acknowledged_message_that_did_not_finish() -> None:
    report = owned(2).through(0).report()
    assert set(report.violations) == {"D1"}
    assert report.counts.lost == 1
    [text] = report.violations["D1"].examples
    assert text == "group billing: message m1 of orders (broker-a_0 at 1) came to no end"


def test_d1_each_group_must_have_it() -> None:
    story = owned(1).through(0)
    other = {**LANE, "group": "audit"}
    story.add("own+", **other, epoch=1, owner="p")
    assert story.report().counts.lost == 1


def test_d1_a_message_of_unknown_place_that_was_never_delivered() -> None:
    story = Story().sent(0).sent(1, placed=False).own(1).through(0)
    assert story.found() == {"D1"}


@pytest.mark.parametrize("queue", ["broker-a_0", "broker-a_1"])
def test_d1_a_group_that_owns_no_queue_any_more_must_have_it(queue: str) -> None:
    """It read the topic before the send, but never owned one of the queues."""
    story = owned(1).through(0).add("own-", **LANE, epoch=1, reason="lost")
    assert story.sent(1, queue=queue).found() == {"D1"}


def test_a_group_that_came_after_a_message_need_not_have_it() -> None:
    story = owned(2).through(0, 1)
    story.add("own+", **{**LANE, "group": "audit"}, epoch=1, owner="p", begin=2)
    story.add("own-", **{**LANE, "group": "audit"}, epoch=1, reason="lost")
    assert story.found() == set()
    assert story.sent(2).through(2).found() == {"D1"}


def test_a_message_whose_send_failed_or_has_no_answer_is_not_missed() -> None:
    story = owned(1).add("send", msg="x", topic="orders", key="k")
    story.add("send", msg="y", topic="orders", key="k")
    story.add("send_fail", msg="y", topic="orders", error="refused")
    assert story.through(0).found() == set()


def test_d1_delivered_again_after_it_finished() -> None:
    assert owned(1).through(0, 0).found() == {"D1"}


def test_d1_finished_twice() -> None:
    assert owned(1).through(0).finish(0).found() == {"D1"}


def test_d1_delivered_again_after_its_commit() -> None:
    story = owned(1).through(0).commit(1).own(2).through(0)
    assert story.found() == {"D1"}


# ---- commits and ownership -----------------------------------------------------------------------


def test_c1_a_committed_offset_that_falls() -> None:
    assert owned(2).through(0, 1).commit(2).commit(1).found() == {"C1"}


def test_c2_a_commit_above_a_leased_message() -> None:
    story = owned(2)
    lease = story.deliver(0, order="a")
    story.through(1, order="b").commit(2)
    assert "C2" in story.ack(0, lease).found()


def test_c2_a_commit_above_a_message_that_comes_later() -> None:
    assert owned(1).commit(1).through(0).found() == {"C2"}


def test_c2_a_commit_above_a_message_filtered_later() -> None:
    story = owned(2).commit(1).finish(0, outcome="filtered")
    assert story.through(1).found() == {"C2"}


def test_c2_a_commit_above_a_message_that_never_came() -> None:
    story = owned(2).through(1).commit(2)
    assert story.found() == {"C2", "D1"}


def test_a_killed_broker_may_have_forgotten_commits() -> None:
    story = Story().add("start", parts=["broker"]).sent(0).own(1).through(0).commit(1)
    story.add("start", parts=["broker"], node="again").own(2)
    assert story.through(0).commit(1).found() == set()


def test_a_stopped_broker_may_not() -> None:
    story = Story().add("start", parts=["broker"]).sent(0).own(1).through(0).commit(1)
    story.add("stop").add("start", parts=["broker"], node="again").own(2)
    assert story.through(0).commit(1).found() == {"D1"}


def test_w1_an_epoch_that_does_not_rise() -> None:
    assert owned(1).own(1).through(0).found() == {"W1"}


@pytest.mark.parametrize("late", ["deliver", "finish", "commit"])
def test_w2_an_action_of_a_former_owner(late: str) -> None:
    story = owned(1).own(2)
    story.through(0).commit(1)
    story.by(1)
    getattr(story, late)(0)
    assert story.found() == {"W2"}


def test_w2_a_delivery_after_the_queue_was_released() -> None:
    story = owned(1).add("own-", **LANE, epoch=1, reason="lost")
    assert story.through(0).found() == {"W2"}


def test_w3_a_verdict_for_a_lease_that_had_ended() -> None:
    story = owned(1)
    lease = story.deliver(0)
    story.expire(0, lease)
    assert story.ack(0, lease).found() == {"W3"}


# ---- what handlers saw ---------------------------------------------------------------------------


def test_handlers_alone_can_be_judged() -> None:
    report = only_handlers(3).handled(0, 1, 2).report()
    assert report.clean
    assert (report.counts.handled, report.counts.deliveries, report.counts.keys) == (3, 0, 1)


def test_handlers_that_repeat_are_counted() -> None:
    report = only_handlers(2).handled(0, 1, 0, 1).report()
    assert report.clean
    assert report.counts.duplicates == 2


def test_a_handler_that_fails_and_is_called_again_is_clean() -> None:
    story = only_handlers(2).handle_start(0).handle_end(0, outcome="retry")
    report = story.handled(0, 1).report()
    assert report.clean
    assert report.counts.duplicates == 0


def test_o1_handled_out_of_order() -> None:
    assert only_handlers(2).handled(1, 0).found() == {"O1"}


def test_o2_handled_before_an_earlier_one_ended_well() -> None:
    story = only_handlers(2).handle_start(0).handle_end(0, outcome="retry").handled(1, 0)
    assert story.found() == {"O2"}


def test_a_rejected_message_does_not_hold_up_its_key() -> None:
    story = only_handlers(2).handle_start(0).handle_end(0, outcome="reject").handled(1)
    assert story.found() == set()


def test_o3_two_handlers_of_a_key_at_the_same_time() -> None:
    story = only_handlers(1).handle_start(0, 1).handle_start(0, 2).handle_end(0, 1)
    assert story.handle_end(0, 2).found() == {"O3"}


def test_a_handler_of_a_killed_client_never_ends_and_is_not_an_overlap() -> None:
    story = only_handlers(2).handle_start(0, 1).handle_start(0, 2).handle_end(0, 2)
    assert story.handled(1).found() == set()


def test_d1_sent_and_never_handled() -> None:
    assert only_handlers(2).handled(0).found() == {"D1"}


def test_o3b_handlers_overlap_although_the_first_ones_lease_was_alive() -> None:
    story = owned(2)
    first = story.deliver(0)
    story.handle_start(0, first).ack(0, first)  # acked before its handler ended
    second = story.deliver(1)
    story.handle_start(1, second).handle_end(0, first).handle_end(1, second)
    assert story.ack(1, second).found() == {"O3b", "A1"}


def test_a_handler_whose_lease_expired_is_late_and_no_violation() -> None:
    story = owned(2)
    first = story.deliver(0)
    story.handle_start(0, first).expire(0, first)
    second = story.deliver(0)
    story.handle_start(0, second).handle_end(0, second).ack(0, second)
    report = story.handle_end(0, first).through(1).report()
    assert report.clean
    assert report.counts.late == 1


def test_a_late_handler_of_a_client_that_knows_no_leases_is_no_violation() -> None:
    """DDMQ's clients handle what they pulled long ago. Retention has deleted it meanwhile."""
    story = Story().sent(0).sent(1).own(1)
    story.expire(0, story.deliver(0))
    story.finish(0, outcome="deleted")
    place = {**LANE, "order": "k", "attempt": None, "lease": None, "consumer": "c"}
    story.deliver(1)
    for offset in (1, 0):
        about = {**place, "offset": offset, "msg": f"m{offset}"}
        story.add("handle_start", **about).add("handle_end", **about, outcome="ok")
    report = story.report()
    assert "O1" not in report.violations
    assert report.counts.late == 1


def test_a_handler_of_a_lost_queue_is_late_and_no_violation() -> None:
    story = owned(1)
    first = story.deliver(0)
    story.own(2).handle_start(0, first)
    second = story.deliver(0)
    story.handle_start(0, second).handle_end(0, second).ack(0, second)
    report = story.report()
    assert report.clean
    assert report.counts.late == 2


# ---- the checker itself --------------------------------------------------------------------------


def test_examples_are_bounded_and_violations_all_counted() -> None:
    story = owned(100)
    for offset in range(98, -1, -2):
        story.through(offset + 1, offset, order=f"key {offset}")
    report = story.report()
    assert report.violations["O1"].count == 50
    assert len(report.violations["O1"].examples) == EXAMPLES
    assert report.as_dict()["by_id"]["O1"]["count"] == 50
    assert (
        "group billing, orders/broker-a_0: key 'key 98': offset 98 was delivered after 99"
        in report.violations["O1"].examples
    )


@pytest.mark.parametrize(
    ("story", "what"), [(Story(), "no send"), (Story().sent(0), "no delivery")]
)
def test_an_empty_history_proves_nothing(story: Story, what: str) -> None:
    with pytest.raises(HistoryError, match=f"the histories contain {what}"):
        story.report()


@pytest.mark.parametrize(
    ("fields", "sentence"),
    [
        ({}, "event deliver of node n at t_ns 1 has no field 'group'"),
        ({**LANE, "msg": "m", "offset": "x"}, "has no field 'epoch'"),
        ({**LANE, "msg": "m", "offset": 1, "epoch": "x"}, "has a field of a wrong type"),
        ({**LANE, "msg": [], "offset": 1, "epoch": 1}, "has a field of a wrong type"),
    ],
)
def test_an_event_with_wrong_fields_gives_one_sentence(
    fields: dict[str, object], sentence: str
) -> None:
    with pytest.raises(HistoryError, match=sentence):
        Story().add("deliver", **fields).report()


def test_a_time_that_is_no_number_gives_one_sentence() -> None:
    with pytest.raises(HistoryError, match="at t_ns 1 has a field of a wrong type"):
        Story().add("own+", **LANE, epoch=1, asked_ns="x").report()
