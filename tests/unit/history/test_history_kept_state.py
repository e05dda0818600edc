"""K1: the state in ownership records outlives retention."""

from __future__ import annotations

import pytest

from tests.support.histories import LANE, Story
from tests.support.history_parts import found_both_ways


def found(story: Story) -> set[str]:
    return found_both_ways(story.events)


def paused() -> Story:
    story = Story().sent(0).own(1, key_version=1).through(0)
    story.add("audit", id="A", phase="begin", by="p", reason="so", before={}, after={})
    about = {"order": None, "by": "p", "reason": "so", "audit": "A"}
    return story.add("pause", **LANE, epoch=1, **about)


def rekeyed() -> Story:
    story = Story().sent(0).own(1, key_version=1).through(0)
    about = {"version": 2, "since": 1, "order_key": "$.id", "missing_key": "by_queue"}
    return story.add("order_key", **LANE, epoch=1, through=True, **about)


def parked() -> Story:
    story = Story().sent(0).sent(1, key="other").own(1, key_version=1).through(1, order="other")
    story.add("park", **LANE, epoch=1, order="k", by="p", reason="so")
    return story.finish(0, outcome="parked", order="k")


def test_a_pause_whose_records_were_deleted() -> None:
    story = paused().own(2, key_version=1, forgotten=True)
    assert found(story) == {"K1", "R4"}
    assert story.report().violations["K1"].examples == [
        "group billing, orders/broker-a_0: the owner of epoch 2 found no records: they contained"
        " paused keys"
    ]


def test_a_pause_that_is_known_by_the_records_of_another_queue() -> None:
    """Its owner knew it by chance."""
    assert found(paused().own(2, key_version=1, forgotten=True, paused=[None])) == {"K1"}


def test_a_pause_known_from_records() -> None:
    assert found(paused().own(2, key_version=1, paused=[None])) == set()


def test_a_parked_key_with_a_copy_that_its_next_owner_does_not_know() -> None:
    story = parked().own(2, key_version=1)
    assert found(story) == {"K1"}
    assert story.report().violations["K1"].examples == [
        "group billing, orders/broker-a_0: key 'k' was parked, but its owner of epoch 2"
        " does not know it"
    ]


def test_a_parked_key_that_is_known() -> None:
    assert found(parked().own(2, key_version=1, parked=["k"])) == set()


def test_a_parked_key_whose_copies_have_ended_may_be_unparked() -> None:
    story = parked().add("unpark", **LANE, epoch=1, order="k", by="p")
    assert "K1" not in found(story.own(2, key_version=1))


@pytest.mark.parametrize(("version", "ids"), [(1, {"K1"}), (2, set()), (3, set()), (None, set())])
def test_an_owner_that_knows_of_fewer_changes_of_the_order_key(
    version: int | None, ids: set[str]
) -> None:
    """Owners of older versions do not record the number."""
    story = rekeyed().own(2, **({} if version is None else {"key_version": version}))
    assert found(story) == ids


def test_records_without_required_state_may_be_deleted() -> None:
    assert found(Story().sent(0).own(1).through(0).own(2, forgotten=True)) == set()
