"""N7: a take-over waits for leases, never for the waits of earlier owners."""

from __future__ import annotations

from typing import Any

import pytest

from tests.support.histories import LANE, Story
from tests.support.history_parts import found_both_ways

RULES: dict[str, Any] = {"order_key": "KEY", "visibility_ms": 10_000, "retry_ms": [1000]}
SECOND = 1_000_000_000
TRUST_S, VISIBILITY_S = 5.0, 10.0
LONGEST_S = TRUST_S + VISIBILITY_S


def owned() -> Story:
    return Story().sent(0).own(1, **RULES).wait(3)


def taken_over(story: Story, waits_s: float, **others: Any) -> Story:
    """Add an owner that waits for *waits_s*."""
    hold_until_ns = story.now_ns + int(waits_s * SECOND)
    return story.own(story.epoch + 1, hold_until_ns=hold_until_ns, **{**RULES, **others})


def found(story: Story, msg: str = "m0") -> set[str]:
    story.ack(0, story.deliver(0, msg=msg))
    return found_both_ways(story.events)


@pytest.mark.parametrize(("waits_s", "ids"), [(LONGEST_S, set()), (LONGEST_S + 1, {"N7"})])
def test_n7_longer_than_trust_and_the_longest_lease(waits_s: float, ids: set[str]) -> None:
    assert found(taken_over(owned(), waits_s)) == ids


def test_n7_a_wait_that_each_crash_makes_longer() -> None:
    story = owned()
    for crashes in range(1, 4):
        taken_over(story, TRUST_S * crashes + VISIBILITY_S).wait(1)
    assert found(story) == {"N7"}
    assert story.report().violations["N7"].count == 2
    assert story.report().violations["N7"].examples[0] == (
        "group billing, orders/broker-a_0: p waits for 20.0 s at the beginning of epoch 3; no lease"
        " of the queue was longer than 10.0 s, and a lock is trusted for 5.0 s"
    )


def test_a_wait_that_crashes_do_not_make_longer_is_clean() -> None:
    story = owned()
    for _ in range(5):
        taken_over(story, LONGEST_S).wait(1)
    assert found(story) == set()


def test_a_longer_trust_counts() -> None:
    assert found(taken_over(owned(), 22, trust_ms=12_000)) == set()
    assert found(taken_over(owned(), 23, trust_ms=12_000)) == {"N7"}


def test_the_trust_of_an_owner_before_counts_too() -> None:
    story = Story().sent(0).own(1, trust_ms=12_000, **RULES).wait(3)
    assert found(taken_over(story, 22, trust_ms=5000)) == set()


def test_leases_of_all_periods_count() -> None:
    story = Story().sent(0).own(1, **{**RULES, "visibility_ms": 60_000})
    taken_over(story, 1)
    assert found(taken_over(story, 65)) == set()


SHORT: dict[str, Any] = {"visibility_ms": 1000}


def test_n7_a_wait_for_leases_that_ended_before_the_previous_period() -> None:
    story = Story().sent(0).own(1, **{**RULES, "visibility_ms": 60_000})
    taken_over(story, 65, **SHORT).wait(100)
    taken_over(story, 6, **SHORT).wait(100)
    assert found(taken_over(story, 60, **SHORT)) == {"N7"}


def test_leases_that_were_alive_when_the_previous_period_began_count() -> None:
    story = Story().sent(0).own(1, **{**RULES, "visibility_ms": 60_000})
    taken_over(story, 65, **SHORT).wait(12)
    taken_over(story, 60, **SHORT).wait(12)
    assert found(taken_over(story, 55, **SHORT)) == set()


def test_leases_by_rules_that_changed_count() -> None:
    story = owned().add("rules", **LANE, epoch=1, **{**RULES, "visibility_ms": 60_000}, jobs=0)
    assert found(taken_over(story, 65)) == set()


@pytest.mark.parametrize(("waits_s", "ids"), [(65, set()), (66, {"N7"})])
def test_longer_leases_that_the_owner_may_have_recorded_count(
    waits_s: float, ids: set[str]
) -> None:
    """The broker may have stored the record although the answer was lost."""
    story = owned().add("rules", **LANE, epoch=1, **RULES, raising_to_ms=60_000, jobs=0)
    assert found(taken_over(story, waits_s)) == ids


def test_leases_that_were_extended_count() -> None:
    story = owned()
    lease = story.deliver(0)
    story.add("extend", **LANE, epoch=1, lease=lease, ms=60_000)
    assert found(taken_over(story, 65)) == set()


@pytest.mark.parametrize(("waits_s", "ids"), [(72, set()), (73, {"N7"})])
def test_leases_and_trust_of_the_life_before_count_in_the_next(
    waits_s: float, ids: set[str]
) -> None:
    story = Story().sent(0).own(1, **{**RULES, "visibility_ms": 60_000}, trust_ms=12_000)
    for what in ("deleted", "created"):
        story.add("topic", topic="orders", what=what)
    assert found(taken_over(story.sent(0, msg="n0"), waits_s, trust_ms=5000), msg="n0") == ids


def test_leases_of_another_queue_do_not_count() -> None:
    other = {**LANE, "queue": "broker-a_1", "epoch": 1, "owner": "p"}
    story = owned().add("own+", **other, **{**RULES, "visibility_ms": 60_000})
    assert found(taken_over(story, 65)) == {"N7"}


def test_it_counts_from_when_the_epoch_was_asked_for() -> None:
    story = owned()
    asked_ns = story.now_ns
    assert found(taken_over(story.wait(2), LONGEST_S - 1, asked_ns=asked_ns)) == {"N7"}


def test_copies_of_parked_messages_wait_as_their_queue_does() -> None:
    story = taken_over(owned(), LONGEST_S)
    twin = {**LANE, "queue": "broker-a_0p", "epoch": 1, "owner": "p", "period": story.epoch}
    hold_until_ns = story.now_ns + int(LONGEST_S * SECOND)
    story.add("own+", **twin, **{**RULES, "visibility_ms": None}, hold_until_ns=hold_until_ns)
    assert found(story) == set()


@pytest.mark.parametrize(("further_s", "ids"), [(0, set()), (2, {"N7"})])
def test_copies_wait_as_their_queue_does_for_a_lease_of_earlier_periods(
    further_s: float, ids: set[str]
) -> None:
    """It may be alive when the period before begins, and their queue's owner has begun since."""
    story = taken_over(owned().wait(1), 0, visibility_ms=5000).wait(LONGEST_S + 5)
    story = taken_over(story, LONGEST_S, visibility_ms=5000)
    twin = {**LANE, "queue": "broker-a_0p", "epoch": 1, "owner": "p", "period": story.epoch}
    hold_until_ns = story.now_ns + int((LONGEST_S + further_s) * SECOND)
    story.add("own+", **twin, **{**RULES, "visibility_ms": None}, hold_until_ns=hold_until_ns)
    assert found(story) == ids


def test_without_rules_the_length_of_leases_is_unknown() -> None:
    story = Story().sent(0).own(1)
    assert found(taken_over(story, 60, visibility_ms=None)) == set()
