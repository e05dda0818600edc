"""Actions in histories: filters, and messages on which an action fails."""

from __future__ import annotations

from typing import Any

import pytest

from tests.support.histories import LANE, Story
from tests.unit.history.action_rules import RULES

TWIN = {**LANE, "queue": "broker-a_0p"}


class Acting(Story):
    """A queue with three messages of a key, and an owner with actions."""

    def __init__(self, **rules: Any) -> None:
        super().__init__()
        for offset in range(3):
            self.sent(offset)
        self.own(1, begin=0, **{**RULES, **rules})

    def fails(self, offset: int, attempt: int, **fields: Any) -> Acting:
        """Add the failure of an action on the message."""
        place = {**LANE, "epoch": self.epoch, "offset": offset, "order": "k", "attempt": attempt}
        self._attempts[offset] += 1
        self.add("act_fail", **{**place, "reason": "action 1", "at_ns": self.now_ns + 1, **fields})
        return self

    def filtered(self, offset: int, by: str = "action 2") -> Acting:
        """Finish the message by a rule."""
        self.finish(offset, outcome="filtered", by=by)
        return self

    def pause(self, seconds: float) -> Acting:
        """Let time pass without events."""
        self.wait(seconds)
        return self


def test_failures_count_as_deliveries_and_wait_for_their_retry() -> None:
    story = Acting().fails(0, 1).pause(1.1).fails(0, 2).pause(3.1).fails(0, 3)
    story.finish(0, outcome="dlq")
    assert story.filtered(1).through(2).commit(3).found() == set()


def test_a_client_and_an_action_fail_in_turn() -> None:
    story = Acting()
    story.ack(0, story.deliver(0), outcome="retry")
    story.pause(1.1).add("rules", **LANE, epoch=1, **RULES, jobs=0)
    story.fails(0, 2).pause(3.1).add("rules", **LANE, epoch=1, **RULES, jobs=0)
    assert story.through(0, 1, 2).found() == set()


@pytest.mark.parametrize(
    ("attempt", "after_s", "found"),
    [(1, 2.0, {"D3b"}), (3, 2.0, {"D3b"}), (2, 0.5, {"R1"}), (2, 1.1, set())],
)
def test_a_failure_is_counted_and_its_retry_waits(
    attempt: int, after_s: float, found: set[str]
) -> None:
    story = Acting().fails(0, 1).pause(after_s).fails(0, attempt)
    assert story.finish(0, outcome="dlq").through(1, 2).found() == found


def test_more_failures_than_allowed_deliveries() -> None:
    story = Acting(max_deliveries=1).fails(0, 1).pause(2).fails(0, 2)
    assert story.finish(0, outcome="dlq").through(1, 2).found() == {"D3b"}


def test_a_message_on_which_an_action_failed_succeeds_nowhere() -> None:
    """Neither delivered unchanged nor finished, while the rules stay the same."""
    assert Acting().fails(0, 1).pause(2).through(0, 1, 2).found() == {"D2"}
    assert Acting().fails(0, 1).pause(2).filtered(0).through(1, 2).found() == {"D2"}
    story = Acting().fails(0, 1)
    assert story.finish(0).through(1, 2).found() == {"D2"}


@pytest.mark.parametrize(("decided_after", "found"), [(False, set()), (True, {"W2"})])
def test_a_former_owner_may_record_a_failed_action_late(
    decided_after: bool, found: set[str]
) -> None:
    """It was stopped between the two; its event has no effect."""
    story = Acting()
    decided_ns = story.now_ns
    story.own(2, begin=0, **RULES)
    at_ns = story.now_ns + 1 if decided_after else decided_ns
    story.fails(0, 1, epoch=1, at_ns=at_ns)
    story.set_attempts({})  # the new owner knows none of them
    assert story.through(0, 1, 2).found() == found


def test_another_owner_may_have_other_rules() -> None:
    story = Acting().fails(0, 1)
    story.own(2, begin=0, **RULES)
    assert story.pause(2).filtered(0).through(1, 2).found() == set()


@pytest.mark.parametrize(
    ("by", "rules", "found"),
    [
        ("tags", {}, set()),
        ("action 2", {}, set()),
        ("action 1", {}, {"D2"}),
        ("shadow traffic", {}, {"D2"}),
        ("shadow traffic", {"filters": ["shadow traffic"]}, set()),
        ("action 2", {"filters": []}, {"D2"}),
        ("action 2", {"filters": None}, set()),  # written by an older version
    ],
)
def test_messages_are_filtered_by_rules_of_their_group(
    by: str, rules: dict[str, Any], found: set[str]
) -> None:
    assert Acting(**rules).through(0).filtered(1, by).through(2).found() == found


def test_an_action_ignores_messages_that_wait_for_another() -> None:
    story = Acting()
    first = story.deliver(0)
    story.fails(1, 1).ack(0, first)
    assert story.finish(1, outcome="dlq").through(2).found() == {"O2", "O3"}


def test_a_copy_that_is_filtered_ends_its_message() -> None:
    """Its key may be unparked although no client ever got the copy."""
    story = Acting()
    story.add("park", **LANE, epoch=1, order="k", by="failure policy", reason="x")
    story.finish(0, outcome="parked", order="k").finish(1, outcome="parked", order="k")
    story.add("own+", **TWIN, epoch=2, owner="p")
    story.add("audit", id="a", phase="begin", by="me", reason="so", before={}, after={})
    story.add("redrive", **LANE, epoch=1, order="k", by="me", state="started", audit="a")
    copy = {**TWIN, "epoch": 2}
    story.fails(0, 1, **copy, origin_offset=0)
    for offset in (0, 1):
        story.finish(offset, outcome="filtered", by="action 2", origin_offset=offset, **copy)
    story.add("unpark", **LANE, epoch=1, order="k", by="me")
    assert set(story.through(2).found()) == {"D2"}, "the first had failed"
