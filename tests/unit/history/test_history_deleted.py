"""D1: unread messages deleted by retention have ended, as their owner reports, and never return."""

from __future__ import annotations

import pytest

from proxy.history.deleted_offsets import DeletedOffsets
from tests.support.histories import LANE, Story


def story_of(messages: int) -> Story:
    story = Story()
    for offset in range(messages):
        story.sent(offset)
    return story.own(1)


def deleted(story: Story, begin: int, end: int) -> Story:
    return story.add("deleted", **LANE, epoch=story.epoch, **{"from": begin, "to": end})


@pytest.mark.parametrize(("end", "ids"), [(4, set()), (3, {"D1", "C2"})])
def test_messages_deleted_unread_are_not_lost(end: int, ids: set[str]) -> None:
    story = deleted(story_of(6).through(0), 1, end)
    assert story.through(4, 5).commit(6).found() == ids


def test_messages_delivered_by_a_previous_owner_may_be_deleted_unread_at_the_next() -> None:
    story = story_of(3)
    story.deliver(0)
    story.own(2)
    assert deleted(story, 0, 2).through(2).commit(3).found() == set()


def test_a_spilled_message_is_deleted_again_once_its_chain_needs_it() -> None:
    story = story_of(3)
    story.deliver(1)
    deleted(story.own(2), 0, 2).finish(1, outcome="deleted")
    assert story.through(2).commit(3).found() == set()


def test_d3_a_deleted_message_is_finished_by_a_client() -> None:
    story = story_of(3)
    lease = story.deliver(1)
    assert deleted(story, 0, 2).ack(1, lease).through(2).commit(3).found() == {"D3", "W3"}


def test_d1_a_deleted_message_is_delivered() -> None:
    assert deleted(story_of(3), 0, 2).through(1, 2).commit(3).found() == {"D1"}


def test_ranges_are_merged() -> None:
    gone = DeletedOffsets()
    for begin, end in ((10, 12), (2, 4), (4, 6), (20, 30), (11, 22)):
        gone.add(begin, end)
    assert [each for each in range(32) if each in gone] == [*range(2, 6), *range(10, 30)]
    gone.forget(12)
    assert [each for each in range(32) if each in gone] == [*range(2, 6), *range(10, 12)]
    gone.forget(4)
    assert [each for each in range(32) if each in gone] == [2, 3]
    gone.forget(0)
    assert not any(each in gone for each in range(32))
