"""Histories of runs on Apache RocketMQ, which stores commits of former owners as well."""

from __future__ import annotations

from tests.support.histories import Story


def three_read_two_committed() -> Story:
    story = Story().add("start", parts=["rocketmq"])
    for offset in range(3):
        story.sent(offset)
    return story.own(1).through(0, 1).commit(2)


def test_a_late_commit_of_a_former_owner_is_no_violation() -> None:
    story = three_read_two_committed().own(2).commit(1, epoch=1)
    assert story.through(2).commit(3).found() == set()


def test_what_it_uncovered_may_come_again() -> None:
    story = three_read_two_committed().own(2).commit(1, epoch=1)
    assert story.own(3).through(1, 2).commit(3).found() == set()


def test_c1_holds_for_the_present_owner() -> None:
    assert three_read_two_committed().commit(1).through(2).found() == {"C1"}


def test_c2_holds_for_the_present_owner() -> None:
    assert "C2" in three_read_two_committed().commit(3).through(2).found()


def test_w2_holds_for_hand_outs() -> None:
    story = three_read_two_committed().own(2).through(2)
    story.deliver(2, epoch=1)
    assert story.found() == {"W2"}


def test_a_killed_one_may_have_forgotten_commits() -> None:
    story = three_read_two_committed().add("start", parts=["rocketmq"]).own(2)
    assert story.through(0, 1, 2).commit(3).found() == set()
