"""Histories of runs on Apache RocketMQ, which also stores commits of former owners."""

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


def test_messages_above_a_lowered_commit_may_come_again() -> None:
    story = three_read_two_committed().own(2).commit(1, epoch=1)
    assert story.own(3).through(1, 2).commit(3).found() == set()


def test_c1_holds_for_the_present_owner() -> None:
    assert three_read_two_committed().commit(1).through(2).found() == {"C1"}


def test_c2_holds_for_the_present_owner() -> None:
    assert "C2" in three_read_two_committed().commit(3).through(2).found()


def test_w2_holds_for_deliveries() -> None:
    story = three_read_two_committed().own(2).through(2)
    story.deliver(2, epoch=1)
    assert story.found() == {"W2"}


def test_a_killed_one_may_have_forgotten_commits() -> None:
    story = three_read_two_committed().add("start", parts=["rocketmq"]).own(2)
    assert story.through(0, 1, 2).commit(3).found() == set()


def an_unanswered_commit() -> Story:
    """Return a story in which message 0 finished, its commit is in flight, and another owner
    repeats it.
    """
    story = Story().add("start", parts=["rocketmq"])
    for offset in range(3):
        story.sent(offset)
    story.own(1).through(0).own(2, begin=0).deliver(0)
    return story


def test_a_late_commit_may_show_the_next_owner_finished_messages() -> None:
    story = an_unanswered_commit()
    assert story.own(3, begin=1).through(1, 2).commit(3).found() == set()


def test_a_late_commit_does_not_cover_unfinished_messages() -> None:
    story = an_unanswered_commit()
    story.deliver(1, order="other")
    assert story.own(3, begin=2).through(2).commit(3).found() >= {"C2"}


def test_repetitions_of_the_next_owner_are_judged_as_usual() -> None:
    story = an_unanswered_commit().own(3, begin=0)
    story.deliver(1)
    assert "O2" in story.found()


def test_a_broker_that_refuses_late_commits_leaves_it_unfinished() -> None:
    story = Story().add("start", parts=["broker"])
    for offset in range(3):
        story.sent(offset)
    story.own(1).through(0).own(2, begin=0).deliver(0)
    assert "O2" in story.own(3, begin=1).through(1, 2).found()
