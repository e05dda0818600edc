"""R4 and R5: paused messages are not delivered, and operators' actions are recorded."""

from __future__ import annotations

from typing import Any

import pytest

from tests.unit.history.parked import TWIN, Parked


class Paused(Parked):
    """Key ``k`` was parked, is redriven, and then paused after its first copy was delivered."""

    def acted(self, event: str, order: str | None = "k", **fields: Any) -> None:
        self.about(event, **{"order": order, "reason": "so", **fields})


def test_a_key_that_is_paused_until_it_is_resumed_is_right() -> None:
    story = Paused()
    story.about("redrive", state="started")
    story.redriven(0)
    story.acted("pause")
    story.acted("resume")
    story.redriven(1, 2)
    assert story.found() == set()


@pytest.mark.parametrize("order", ["k", None])
def test_no_paused_message_is_delivered(order: str | None) -> None:
    story = Paused()
    story.about("redrive", state="started")
    story.acted("pause", order)
    story.redriven(0, 1, 2)
    assert story.found() == {"R4"}


def test_a_pause_of_a_former_owner_unknown_to_its_successor_has_no_effect() -> None:
    story = Paused()
    story.about("redrive", state="started")
    story.add("own+", **story.lane, epoch=2, owner="q")
    story.acted("pause")  # a late event of epoch 1
    story.add("deliver", **story.lane, epoch=2, offset=9, msg="m9", order="x", attempt=1, lease=99,
              consumer="c", req=None)  # fmt: skip
    assert "R4" not in story.found()


def test_a_new_owner_knows_the_pauses() -> None:
    story = Paused()
    story.acted("pause")
    story.add("own+", **story.lane, epoch=2, owner="q", paused=["k"])
    assert story.found() == set()
    story.add("own+", **story.lane, epoch=3, owner="r")
    assert story.found() == {"R4"}


@pytest.mark.parametrize(
    ("record", "red"),
    [
        ({}, set()),
        ({"reason": ""}, {"R5"}),
        ({"by": None}, {"R5"}),
        ({"before": None}, {"R5"}),
        ({"id": "other"}, {"R5"}),
        ({"phase": "end"}, {"R5"}),
    ],
)
def test_a_skip_has_a_record_of_actor_reason_and_target(
    record: dict[str, Any], red: set[str]
) -> None:
    story = Paused()
    fields = {"audit": "a-2", **record}
    story.audited(fields.pop("id", "a-2"), **{k: v for k, v in fields.items() if k != "audit"})
    story.finish(0, outcome="skipped", origin_offset=0, audit="a-2", order="k", **TWIN)
    assert story.found() == red


def test_a_redrive_has_one_too() -> None:
    story = Paused()
    story.about("redrive", state="started", audit="unheard of")
    assert story.found() == {"R5"}
