"""Resets of a group: the remaining requirements of C1, D1 and order within a key."""

from __future__ import annotations

from tests.support.histories import LANE, Story


def story_of(messages: int) -> Story:
    story = Story()
    for offset in range(messages):
        story.sent(offset)
    return story.own(1)


def moved(story: Story, to: int, *, audit: str = "a", **fields: object) -> Story:
    """End the period and continue the group at *to*."""
    place = {**LANE, "epoch": story.epoch}
    story.add("own-", **place, reason="reset")
    why = {"by": "ann", "reason": "why", "before": {"base": 0}, "after": {"base": to}}
    if audit:
        story.add("audit", id=audit, phase="begin", verb="offsets reset", group="billing", **why)
    story.add("reset", **place, **{"from": 0, "to": to, "audit": audit, **fields})
    story.set_attempts({})
    return story.own(story.epoch + 1)


def test_a_group_that_goes_back_gets_its_messages_again_in_order() -> None:
    story = moved(story_of(3).through(0, 1, 2).commit(3), 1)
    assert story.through(1, 2).commit(3).found() == set()


def test_d1_repeated_messages_have_to_finish() -> None:
    story = moved(story_of(3).through(0, 1, 2).commit(3), 1)
    assert story.through(1).commit(2).found() == {"D1"}


def test_c1_a_commit_falls_no_further_than_that() -> None:
    story = moved(story_of(3).through(0, 1, 2).commit(3), 1).through(1, 2).commit(3)
    assert story.commit(2).found() == {"C1"}


def test_d1_without_a_reset_they_may_not_come_again() -> None:
    story = story_of(3).through(0, 1, 2).commit(3)
    story.add("own-", **LANE, epoch=1, reason="handed over")
    story.own(2)
    story.through(1)
    assert "D1" in story.found()


def test_skipped_messages_are_not_lost() -> None:
    story = story_of(3)
    story.deliver(0)
    assert moved(story, 2).through(2).commit(3).found() == set()


def test_d1_messages_behind_the_new_position_may_be_lost() -> None:
    story = moved(story_of(4).through(0), 2)
    assert story.through(2).commit(3).found() == {"D1"}


def test_o1_order_holds_behind_the_place() -> None:
    story = moved(story_of(4).through(0, 1, 2, 3), 0)
    story.through(0, 2, 1, 3)
    assert {"O1", "O2"} & story.found()


def test_r5_a_reset_without_an_audit_record() -> None:
    story = moved(story_of(3).through(0, 1, 2).commit(3), 1, audit="")
    assert story.through(1, 2).commit(3).found() == {"R5"}


def test_r5_a_reset_finds_the_group_where_it_expects_it() -> None:
    right = moved(story_of(3).through(0, 1, 2).commit(3), 1, **{"from": 3, "expect": 3})
    assert right.through(1, 2).commit(3).found() == set()
    wrong = moved(story_of(3).through(0, 1, 2).commit(3), 1, **{"from": 3, "expect": 2})
    assert wrong.through(1, 2).commit(3).found() == {"R5"}
