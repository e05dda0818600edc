"""R3: the messages of a parked key follow its head to the twin, and return in order."""

from __future__ import annotations

import pytest

from tests.support.histories import LANE
from tests.unit.history.parked import TWIN, Parked


def test_parked_and_redriven_in_order_is_clean() -> None:
    story = Parked()
    story.about("redrive", state="started")
    story.redriven(0, 1, 2)
    assert story.about("unpark").found() == set()


def test_copies_delivered_in_one_run_are_clean() -> None:
    """Earlier copies are leased in the same run."""
    story = Parked()
    story.about("redrive", state="started")
    leases = [story.deliver(n, **TWIN, attempt=1, origin_offset=n, run=1) for n in range(3)]
    for origin, lease in enumerate(leases):
        story.verdict(origin, lease, TWIN["queue"])
        story.finish(origin, **TWIN)
    assert story.about("unpark").found() == set()


def test_parked_messages_are_not_lost() -> None:
    assert Parked().found() == set()


def test_r3_a_message_delivered_although_its_key_is_parked() -> None:
    story = Parked(parked=2)
    assert story.live(2).found() == {"R3"}


def test_r3_parked_before_its_key_was() -> None:
    story = Parked()
    story.leave_out(lambda event: event["e"] == "park")
    assert "R3" in story.found()


def test_a_new_owner_reports_keys_parked_by_an_owner_that_could_not() -> None:
    story = Parked()
    park = next(event for event in story.events if event["e"] == "park")
    park |= {"e": "own+", "epoch": 2, "owner": "q", "parked": ["k"]}
    assert "R3" not in story.found()


def test_r3_a_new_owner_that_forgot_a_parked_key() -> None:
    story = Parked(parked=2)
    story.add("own-", **story.lane, epoch=1).add("own+", **story.lane, epoch=2, owner="q")
    story.by(2)
    story.deliver(2, queue="broker-a_3")
    assert "R3" in story.found()


def test_r3_copies_without_a_redrive() -> None:
    story = Parked()
    story.redriven(0, 1, 2)
    assert story.about("unpark").found() == {"R3"}


def test_r3_copies_out_of_order() -> None:
    """The redrive continued at the tail of the twin."""
    story = Parked()
    story.about("redrive", state="started")
    assert "R3" in story.redriven(2, 0, 1).found()


def test_a_copy_may_finish_before_its_parked_event() -> None:
    """The broker's answer was late, and readers saw the copy before."""
    story = Parked(parked=1)
    story.about("redrive", state="started")
    story.redriven(0, 1, 2)
    for offset in (1, 2):
        story.finish(offset, outcome="parked", queue="broker-a_3", order="k")
    assert story.about("unpark").found() == set()


def test_r3_unparked_too_early() -> None:
    story = Parked(parked=2)
    story.about("redrive", state="started")
    story.redriven(0)
    story.about("unpark")
    story.live(2)
    assert "R3" in story.redriven(1).found()


def test_d1_a_copy_that_is_never_redriven() -> None:
    story = Parked()
    story.about("redrive", state="started")
    story.redriven(0, 1)
    story.about("unpark")
    assert story.found() == {"R3", "D1"}


def test_a_copy_stored_twice_over_a_crash_may_come_twice() -> None:
    story = Parked()
    story.about("redrive", state="started")
    story.redriven(0, 1)
    for copy, origin in ((2, 1), (3, 2)):
        fields = {"attempt": 1, "origin_offset": origin, "msg": f"m{origin}"}
        story.verdict(copy, story.deliver(copy, **TWIN, **fields), TWIN["queue"])
        story.finish(copy, **TWIN)
    assert story.about("unpark").found() == set()


def test_a_redrive_that_takes_its_time_is_clean() -> None:
    story = Parked()
    story.about("redrive", state="started")
    story.redriven(0).wait(60)
    story.about("redrive", state="stopped").wait(60)
    story.about("redrive", state="started")
    story.redriven(1, 2)
    assert story.about("unpark").found() == set()


def test_an_unrecorded_stop_may_be_unknown_to_the_next_owner() -> None:
    story = Parked()
    story.about("redrive", state="started")
    story.about("redrive", state="stopped")
    story.add("own+", **{**LANE, **TWIN}, epoch=1, owner="p")
    story.redriven(0, 1, 2)
    assert story.about("unpark").found() == set()


def test_r3_a_recorded_stop_is_known_to_the_next_owner() -> None:
    story = Parked()
    story.add("own+", **{**LANE, **TWIN}, epoch=0, owner="p")
    story.about("redrive", state="started")
    story.about("redrive", state="stopped").wait(1)
    story.add("record", **{**LANE, **TWIN}, epoch=0, at=0, made_ns=story.now_ns)
    story.add("own+", **{**LANE, **TWIN}, epoch=1, owner="p")
    story.redriven(0, 1, 2)
    assert story.about("unpark").found() == {"R3"}


def test_a_message_parked_again_after_copies_of_later_ones_has_finished() -> None:
    """Its end was not recorded when its owner crashed; the copies prove it."""
    story = Parked()
    story.about("redrive", state="started")
    story.redriven(0)
    story.add("own+", **story.lane, epoch=2, owner="q")
    for offset in range(3):
        story.finish(offset, outcome="parked", queue="broker-a_3", order="k", epoch=2)
    story.redriven(1, 2)
    assert story.about("unpark").found() == set()


def test_copies_without_a_parked_event_prove_it_too() -> None:
    """A client finished the head after its key was parked; then the owner crashed before the answer
    for the copies, which readers had seen.
    """
    story = Parked(parked=0)
    acked = next(event for event in story.events if event["e"] == "ack_ok")
    story.events.remove(acked)
    story.verdict(0, acked["lease"], "broker-a_3").finish(0, queue="broker-a_3")
    story.about("redrive", state="started")
    story.redriven(1)
    story.add("own+", **story.lane, epoch=2, owner="q", parked=["k"])
    for offset in range(3):
        story.finish(offset, outcome="parked", queue="broker-a_3", order="k", epoch=2)
    story.redriven(2)
    assert story.about("unpark").found() == set()


def test_d1_a_message_parked_after_copies_of_later_ones() -> None:
    story = Parked(parked=0)
    for offset in (1, 2, 0):
        story.finish(offset, outcome="parked", queue="broker-a_3", order="k")
    story.about("redrive", state="started")
    story.redriven(1, 2)
    assert story.about("unpark").found() >= {"D1"}


@pytest.mark.parametrize("changed_before", [True, False])
def test_copies_keep_the_order_keys_that_they_were_parked_by(changed_before: bool) -> None:
    """Even if the rules change while they are parked, under their owner or before its period."""
    story = Parked()
    story.add("send", msg="m0", topic="orders", key="other")
    twin = {**story.lane, **TWIN, "epoch": 1}
    rules = {"order_key": "KEY", "visibility_ms": 1000, "retry_ms": [1]}
    story.add("own+", **twin, owner="p", **(rules if changed_before else {}))
    story.add("rules", **twin, **rules, jobs=0)
    story.about("redrive", state="started")
    assert story.redriven(0, 1, 2).about("unpark").found() == set()


def test_the_next_owner_of_copies_may_wait_for_the_longest_lease() -> None:
    """The ``own+`` of the copies states it, though messages may have shorter ones by now."""
    story = Parked()
    story.add("rules", **story.lane, epoch=1, visibility_ms=1000, retry_ms=[1], jobs=0)
    twin = {**story.lane, **TWIN, "owner": "p", "order_key": "KEY", "visibility_ms": 10_000}
    story.add("own+", **twin, epoch=1).wait(1)
    story.add("own+", **twin, epoch=2, hold_until_ns=story.now_ns + 12_000_000_000)
    assert story.found() == set()


def test_the_next_owner_of_copies_may_wait_for_leases_of_changed_rules() -> None:
    story = Parked()
    twin = {**story.lane, **TWIN, "owner": "p", "order_key": "KEY", "visibility_ms": 1000}
    story.add("own+", **twin, epoch=1)
    story.add("rules", **{**twin, "visibility_ms": 10_000}, epoch=1, retry_ms=[1], jobs=0)
    story.add("own+", **twin, epoch=2, hold_until_ns=story.wait(1).now_ns + 12_000_000_000)
    assert story.found() == set()


def test_a_former_owner_that_comes_late_to_the_copies_owns_nothing() -> None:
    """It was stopped while the queue got another owner; its record of the copies came later."""
    story = Parked()
    twin = {**story.lane, **TWIN}
    story.add("own+", **twin, epoch=1, period=5, owner="p")
    late = {**twin, "epoch": 2}
    story.add("own+", **late, period=4, owner="q").add("own-", **late, reason="lost")
    story.about("redrive", state="started").redriven(0, 1, 2)
    assert story.about("unpark").found() == set()
    story.deliver(3, **{**TWIN, "epoch": 2}, origin_offset=9)
    assert "W2" in story.found()


@pytest.mark.parametrize(("recorded", "found"), [(False, set()), (True, {"D3b"})])
def test_d3b_a_recorded_redrive_resets_the_attempts(recorded: bool, found: set[str]) -> None:
    """Its owner crashes before it delivered anything: the next owner may not know the redrive, and
    continues the previous one.
    """
    story = Parked()
    story.add("own+", **{**LANE, **TWIN}, epoch=0, owner="p")
    story.about("redrive", state="started")
    for attempt in (1, 2):
        lease = story.deliver(0, **TWIN, epoch=0, attempt=attempt, origin_offset=0)
        place = {**LANE, **TWIN, "epoch": 0, "offset": 0}
        story.add("ack_ok", **place, lease=lease, outcome="retry").wait(1)
    story.about("redrive", state="stopped")
    story.about("redrive", state="started").wait(1)
    if recorded:
        story.add("record", **{**LANE, **TWIN}, epoch=0, at=0, made_ns=story.now_ns)
    story.add("own+", **{**LANE, **TWIN}, epoch=1, owner="p")
    story.verdict(0, story.deliver(0, **TWIN, attempt=2, origin_offset=0), TWIN["queue"])
    story.finish(0, **TWIN)
    story.redriven(1, 2)
    assert story.about("unpark").found() == found


@pytest.mark.parametrize(("deleted", "ids"), [(3, set()), (2, {"R3", "D1"})])
def test_copies_deleted_by_retention_are_identified_by_their_key(
    deleted: int, ids: set[str]
) -> None:
    """They are its oldest ones; their messages are unknown."""
    story = Parked()
    story.about("redrive", state="started")
    for offset in range(deleted):
        story.finish(offset, outcome="deleted", order="k", **TWIN)
    assert story.about("unpark").found() == ids


@pytest.mark.parametrize("order", [{"order": "k"}, {}])
@pytest.mark.parametrize(("skipped", "ids"), [(3, set()), (2, {"R3", "D1"})])
def test_damaged_copies_that_an_operator_skips_end_their_messages(
    order: dict[str, str], skipped: int, ids: set[str]
) -> None:
    """Their key is unknown if they were never read."""
    story = Parked()
    for each in story.events:
        if each.get("outcome") == "parked":
            each["copy"] = each["offset"]
    story.about("redrive", state="started")
    for offset in range(skipped):
        story.finish(offset, outcome="skipped", audit="a-1", **order, **TWIN)
    assert story.about("unpark").found() == ids


@pytest.mark.parametrize(("end", "ids"), [(3, set()), (2, {"R3", "D1"})])
def test_copies_deleted_unread_are_identified_by_their_places(end: int, ids: set[str]) -> None:
    story = Parked()
    for each in story.events:
        if each.get("outcome") == "parked":
            each["copy"] = each["offset"]
    story.about("redrive", state="started")
    story.add("deleted", **{**LANE, **TWIN}, epoch=story.epoch, **{"from": 0, "to": end})
    assert story.about("unpark").found() == ids


def test_copies_deleted_behind_one_in_memory_end_their_own_messages() -> None:
    """Found by exploring: the first copy was read before retention reached it, and handled after
    the deletion of the next two.
    """
    story = Parked()
    for each in story.events:
        if each.get("outcome") == "parked":
            each["copy"] = each["offset"]
    story.about("redrive", state="started")
    for offset in (1, 2):
        story.finish(offset, outcome="deleted", order="k", **TWIN)
    story.redriven(0)
    assert story.about("unpark").found() == set()
