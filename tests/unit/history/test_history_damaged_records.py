"""After damage of an ownership record, owners may repeat what it covered, and lose nothing."""

from __future__ import annotations

import pytest

from tests.support.histories import LANE, Story
from tests.support.history_parts import found_both_ways


def taken_over(*, damaged: str | None) -> Story:
    """Return a take-over of four finished messages that a record covers. *damaged*: the queue whose
    record is damaged before.
    """
    story = Story()
    for offset in range(5):
        story.sent(offset)
    story.own(1).through(0, 1, 2, 3)
    story.add("record", **LANE, epoch=1, at=1, made_ns=story.now_ns)
    if damaged is not None:
        for phase in ("begin", "end"):
            about = {"what": "records", "target": damaged, "phase": phase}
            story.add("nemesis", **{**LANE, "queue": damaged, **about})
    story.own(2)
    return story.set_attempts({})


@pytest.mark.parametrize(
    ("damaged", "found"), [(None, {"D4"}), ("broker-a_1", {"D4"}), ("broker-a_0", set())]
)
def test_work_that_a_damaged_record_covered_may_be_repeated(
    damaged: str | None, found: set[str]
) -> None:
    story = taken_over(damaged=damaged).through(2, 3, 4)
    assert found_both_ways(story.events) == found


def test_messages_are_owed_all_the_same() -> None:
    assert found_both_ways(taken_over(damaged="broker-a_0").through(2, 3).events) == {"D1"}


def test_order_holds_all_the_same() -> None:
    story = taken_over(damaged="broker-a_0")
    story.deliver(2)
    story.deliver(3)
    assert "O2" in found_both_ways(story.events)
