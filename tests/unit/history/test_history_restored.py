"""A restored copy of a log begins another life, which continues the former one up to its end."""

from __future__ import annotations

from tests.support.histories import LANE, Story
from tests.support.history_parts import found_both_ways
from tests.unit.history.parked import TWIN, Parked


def life(messages: int, *, handled: int) -> Story:
    """Return a life with *messages* messages, of which the first *handled* are finished."""
    story = Story()
    for offset in range(messages):
        story.sent(offset)
    return story.own(5).through(*range(handled))


def restored(story: Story, end: int, *, broker: str = "broker-a") -> Story:
    """Restore a copy in which the queue ends at *end*."""
    ends = {f"{broker}_0": end}
    story.add("topic", topic="orders", what="restored", broker=broker, ends=ends)
    story.set_attempts({})
    return story


def again(story: Story, *offsets: int) -> Story:
    """Send and handle messages at offsets that the original had used, too."""
    for offset in offsets:
        story.sent(offset, msg=f"n{offset}")
        story.ack(offset, story.deliver(offset, msg=f"n{offset}"))
    return story


def found(story: Story) -> set[str]:
    return found_both_ways(story.events)


def test_later_messages_are_gone_and_their_offsets_are_used_again() -> None:
    story = restored(life(10, handled=8).commit(8), 6).own(3)  # epochs fall
    assert found(again(story, 6, 7, 8).commit(9)) == set()


def test_finished_messages_of_the_copy_may_be_delivered_again_with_any_count() -> None:
    story = restored(life(10, handled=8).commit(8), 6).own(3)
    story.set_attempts({4: 2})
    assert found(again(story.through(4, 5), 6).commit(7)) == set()


def test_unfinished_messages_of_the_copy_are_owed() -> None:
    story = restored(life(5, handled=3), 5).own(3)
    assert found(story.through(3)) == {"D1"}
    assert found(story.through(4).commit(5)) == set()


def test_a_new_message_at_a_finished_offset_is_owed() -> None:
    story = restored(life(10, handled=10).commit(10), 6).own(3)
    story.sent(6, msg="n6")
    assert found(story.commit(7)) >= {"D1"}


def test_order_holds_in_the_next_life() -> None:
    story = restored(life(5, handled=1), 5).own(3)
    story.deliver(2)
    story.deliver(3)
    assert "O2" in found(story)


def test_a_restore_at_another_broker_changes_nothing_here() -> None:
    story = restored(life(3, handled=2), 0, broker="broker-b")
    assert found(story) == {"D1"}


def test_a_message_that_was_with_a_client_may_be_parked_in_the_next_life() -> None:
    """An epoch above all of the former life tells to which one the end belongs."""
    former = life(3, handled=1)
    former.deliver(1)
    story = restored(former, 3).own(8)
    story.add("park", **LANE, epoch=8, order="k", by="ann", reason="so")
    for offset in (1, 2):
        story.finish(offset, outcome="parked", order="k")
    assert "R3" not in found(story)


def test_a_handler_may_begin_with_a_message_that_is_gone_meanwhile() -> None:
    """Its send was not answered, so only its place tells that it is not in the copy."""
    story = life(3, handled=3)
    story.add("send", msg="m3", topic="orders", key="k")
    lease = story.deliver(3)
    restored(story, 2).own(8)
    story.handle_start(3, lease).handle_end(3, lease)
    story.sent(2, msg="n2")
    lease = story.deliver(2, msg="n2")
    assert "O1" not in found(story.handle_start(2, lease).handle_end(2, lease).ack(2, lease))


def test_a_redrive_under_way_in_the_copy_continues() -> None:
    story = Parked()
    story.about("redrive", state="started").redriven(0)
    story.add("topic", topic="orders", what="restored", broker="broker-a", ends={"broker-a_3": 3})
    story.set_attempts({})
    story.add("own+", **story.lane, epoch=2, owner="p", parked=["k"])
    story.add("own+", **{**LANE, **TWIN}, epoch=2, owner="p")
    story.deliver(1, **TWIN, attempt=1, origin_offset=1, epoch=2)
    assert "R3" not in story.found()


def test_the_owner_in_the_former_life_ends_no_period_of_the_same_epoch() -> None:
    """It notices the new life only after the queue has its next owner."""
    story = restored(life(5, handled=3), 4)
    story.add("own+", node="other", **LANE, epoch=5, owner="q", begin=3)
    story.add("own-", **LANE, epoch=5, reason="the topic was created again")
    lease = story.deliver(3, node="other")
    for event in ("ack_ok", "finish"):
        verdict = {"offset": 3, "lease": lease, "outcome": "ok", "epoch": 5}
        story.add(event, node="other", **LANE, **verdict)
    assert found(story) == set()


def test_a_message_that_is_gone_may_finish_after_the_next_owner_began() -> None:
    """The former owner does not know yet that the queue has no such message, nor another owner."""
    story = life(5, handled=3)
    lease = story.deliver(3)
    restored(story, 2)
    story.add("own+", node="other", **LANE, epoch=8, owner="q", begin=2)
    for event in ("ack_ok", "finish"):
        story.add(event, **LANE, offset=3, lease=lease, outcome="ok", epoch=5)
    assert found(story) == set()
