"""A1: an ack follows a complete run of the handler."""

from __future__ import annotations

import pytest

from tests.support.histories import Story
from tests.support.history_parts import found_both_ways


def owned(messages: int = 2) -> Story:
    """Return a story of a queue with an owner, whose first message is handled."""
    story = Story()
    for offset in range(messages):
        story.sent(offset)
    lease = story.own(1).deliver(0)
    return story.handle_start(0, lease).handle_end(0, lease).ack(0, lease)


def found(story: Story) -> set[str]:
    return found_both_ways(story.events)


def test_a_handler_that_ended_before_its_ack() -> None:
    story = owned()
    lease = story.deliver(1)
    story.handle_start(1, lease).handle_end(1, lease)
    assert found(story.ack(1, lease)) == set()


def test_a1_an_ack_while_the_handler_runs() -> None:
    story = owned()
    lease = story.deliver(1)
    story.handle_start(1, lease).ack(1, lease).handle_end(1, lease)
    assert found(story) == {"A1"}
    assert story.report().violations["A1"].examples == [
        "group billing, orders/broker-a_0: key 'k': c acked offset 1 (lease 2), whose handler had"
        " not ended with ok"
    ]


@pytest.mark.parametrize("outcome", ["retry", "reject", "defer"])
def test_a1_an_ack_after_the_handler_failed(outcome: str) -> None:
    story = owned()
    lease = story.deliver(1)
    story.handle_start(1, lease).handle_end(1, lease, outcome=outcome)
    assert found(story.ack(1, lease)) == {"A1"}


def test_a1_the_first_handler_of_all() -> None:
    """Only its end, which is too late, shows that its consumer writes ends."""
    story = Story().sent(0).own(1)
    lease = story.deliver(0)
    assert found(story.handle_start(0, lease).ack(0, lease)) == set()
    assert found(story.handle_end(0, lease)) == {"A1"}


def test_another_verdict_may_come_while_the_handler_runs() -> None:
    story = owned()
    lease = story.deliver(1)
    story.handle_start(1, lease).ack(1, lease, outcome="retry").handle_end(1, lease)
    lease = story.deliver(1)
    story.handle_start(1, lease).handle_end(1, lease)
    assert found(story.ack(1, lease)) == set()


def test_a_lease_that_was_handled_twice_needs_one_good_end() -> None:
    """Its answer was lost, and the pull was repeated."""
    story = owned()
    lease = story.deliver(1)
    story.handle_start(1, lease).handle_end(1, lease).handle_start(1, lease)
    assert found(story.ack(1, lease)) - {"O3b"} == set()


def test_a1_each_lease_needs_its_own() -> None:
    story = owned()
    lease = story.deliver(1)
    story.handle_start(1, lease).handle_end(1, lease).expire(1, lease)
    lease = story.deliver(1)
    assert found(story.handle_start(1, lease).ack(1, lease)) == {"A1"}


def test_a_consumer_that_writes_no_handler_events_is_not_judged() -> None:
    story = owned()
    assert found(story.through(1)) == set()


def test_an_ack_without_effect_is_not_judged() -> None:
    story = owned()
    lease = story.deliver(1)
    story.handle_start(1, lease).own(2)
    late = {**story.events[-2], "e": "ack_ok", "outcome": "ok", "epoch": 1, "t_ns": story.now_ns}
    story.events.append(late)
    lease = story.deliver(1)
    story.handle_start(1, lease).handle_end(1, lease)
    assert found(story.ack(1, lease)) == set()
