"""Resets of a group: the remaining requirements of C1, D1 and order within a key."""

from __future__ import annotations

import pytest

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


def unconfirmed(to: int, *, begin: int, **ended: object) -> Story:
    """Handle three messages, end the period for a reset to *to* that its proxy does not see stored,
    and begin the next one at *begin*. *ended*: the end of its audit record.
    """
    story = story_of(3).through(0, 1, 2)
    story.wait(1).add("record", **LANE, epoch=1, at=1, made_ns=story.now_ns)
    about = {**LANE, "target": LANE["queue"], "id": "a", "verb": "offsets reset"}
    why = {"by": "ann", "reason": "why", "before": {"base": 3}, "after": {"base": to}}
    story.add("audit", **{**about, **why, "phase": "begin"})
    story.add("own-", **LANE, epoch=1, reason="reset")
    if ended:
        story.add("audit", **{**about, **why, "phase": "end", **ended})
    story.set_attempts({})
    return story.own(2, begin=begin)


@pytest.mark.parametrize("ended", [{}, {"failed": "its broker does not answer"}])
@pytest.mark.parametrize("begin", [1, 3])
def test_a_reset_without_an_answer_may_be_stored_or_not(
    begin: int, ended: dict[str, object]
) -> None:
    """Found by exploring: its proxy was killed, or its broker, after the record was stored."""
    story = unconfirmed(1, begin=begin, **ended)
    assert story.through(*range(begin, 3)).commit(3).found() == set()


def test_d4_such_a_reset_that_is_not_stored_repeats_nothing_later() -> None:
    story = unconfirmed(1, begin=3)
    story.add("own-", **LANE, epoch=2, reason="handed over").own(3, begin=1)
    assert "D4" in story.through(1, 2).found()


def test_d4_a_reset_does_not_allow_another_position() -> None:
    assert "D4" in unconfirmed(1, begin=0).through(0, 1, 2).found()


def test_d4_a_confirmed_reset_counts_where_it_is_confirmed() -> None:
    assert "D4" in unconfirmed(1, begin=1, failed="").through(1, 2).found()


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
