"""Rules that change while a queue is owned, and the time from which they count."""

from __future__ import annotations

from typing import Any

import pytest

from tests.support.histories import LANE, Story

RULES: dict[str, Any] = {
    "order_key": "KEY",
    "visibility_ms": 5000,
    "retry_ms": [1000],
    "max_deliveries": 8,
    "max_jobs": 4,
    "max_leased": 10,
}


def owned(*keys: str) -> Story:
    """Return a story of a queue with a message for each of *keys*, and an owner."""
    story = Story()
    for offset, key in enumerate(keys):
        story.sent(offset, key=key)
    return story.own(1, begin=0, **RULES)


def go_by(story: Story, *, epoch: int = 1, **others: Any) -> Story:
    """Apply other rules."""
    return story.add("rules", **LANE, epoch=epoch, **{**RULES, "jobs": 0, **others})


def failed(story: Story, times: int) -> Story:
    """Deliver the message at 0 that number of times, failing each time."""
    for _ in range(times):
        lease = story.deliver(0)
        story.wait(6).expire(0, lease)
    return story


@pytest.mark.parametrize(("before", "found"), [(3, set()), (4, {"D3b"})])
def test_a_message_above_a_lowered_limit_comes_once_more(before: int, found: set[str]) -> None:
    story = failed(owned("k"), 3)
    failed(go_by(story, max_deliveries=2), before - 2)
    assert story.finish(0, outcome="dlq").found() == found


def test_a_lowered_limit_counts_for_later_messages() -> None:
    story = go_by(owned("k"), max_deliveries=2)
    assert failed(story, 3).finish(0, outcome="dlq").found() == {"D3b"}


def test_rules_of_a_former_owner_do_not_count() -> None:
    story = owned("k")
    story.own(2, begin=0, **{**RULES, "max_deliveries": 2})
    story = failed(go_by(story, epoch=1), 3)
    assert story.finish(0, outcome="dlq").found() == {"D3b"}


@pytest.mark.parametrize(("after_s", "found"), [(3, {"R2"}), (6, set())])
def test_a_lease_keeps_the_duration_of_its_grant(after_s: float, found: set[str]) -> None:
    story = owned("k")
    lease = story.deliver(0)
    go_by(story, visibility_ms=2000).wait(after_s).expire(0, lease)
    assert story.through(0).found() == found


@pytest.mark.parametrize(("lower_again", "found"), [(False, set()), (True, {"N2"})])
def test_messages_in_memory_may_stay_when_a_limit_is_lowered(
    lower_again: bool, found: set[str]
) -> None:
    story = go_by(owned("k").through(0), max_jobs=1, jobs=3)
    if lower_again:  # it fell below the limit meanwhile
        story.add("window", **LANE, epoch=1, jobs=1, limit=1)
    story.add("window", **LANE, epoch=1, jobs=3, limit=1)
    assert story.found() == found


@pytest.mark.parametrize(("lowered", "found"), [(True, set()), (False, {"D3b"})])
def test_an_unrecorded_finish_is_repeated_once_after_the_limit_was_lowered(
    lowered: bool, found: set[str]
) -> None:
    """The next owner knows of deliveries before that end; their number is in no history."""
    story = owned("k")
    go_by(story, max_deliveries=4)
    failed(story, 4).finish(0, outcome="dlq")
    story.own(2, begin=0, **{**RULES, "max_deliveries": 4})
    if lowered:
        go_by(story, epoch=2, max_deliveries=2)
    lease = story.deliver(0, attempt=4 if lowered else 5)
    story.wait(6).expire(0, lease)
    assert story.finish(0, outcome="dlq").found() == found
