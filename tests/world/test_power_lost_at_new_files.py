"""A broker's power is lost when a file of its log has just begun, again and again."""

from __future__ import annotations

from unittest.mock import patch

import pytest

from broker_core.store.files import OpenFiles
from testkit.explorer.plan import Action, ConsumerPlan, FlowPlan, Plan
from testkit.explorer.player import Outcome, play
from tests.support.variants import first_of

SECONDS = 120.0
SMALL_FILES = {"segment_bytes": 192 * 1024, "max_message_bytes": 96 * 1024}


def played(seed: int) -> Outcome:
    """Play a world with a new file every few messages, and a loss at every third one or so."""
    losses = [
        Action(at_s, "power", {"node": "broker-a", "at": "new file", "for_s": 1.0})
        for at_s in range(10, 110, 10)
    ]
    topic = {"name": "orders", "order_key": "KEY", "visibility_timeout_s": 10.0}
    return play(
        Plan(
            seed=seed,
            seconds=SECONDS,
            brokers={"broker-a": SMALL_FILES},
            topics={"orders": 2},
            groups=[{"name": "billing", "topics": [topic]}],
            proxies=1,
            proxy_settings={},
            producers=1,
            consumers=[ConsumerPlan("billing", None, 0)],
            flows=[FlowPlan(1.0, 0, "orders", ["a", "b", "c"], 100, 1.0, body_bytes=40_000)],
            actions=losses,
        )
    )


@first_of("seed", range(3))
def test_all_messages_are_handled(seed: int) -> None:
    outcome = played(seed)
    assert outcome.violations == {}
    assert outcome.errors == []
    assert outcome.done["power"] == 10


@pytest.mark.slow
def test_a_removed_file_that_stays_open_is_found() -> None:
    with patch.object(OpenFiles, "forget"):
        assert any("was replaced" in error for error in played(0).errors)


def test_a_write_that_was_interrupted_in_a_new_folder_stops_no_queue() -> None:
    """The next file reached the disk, and there was no time for a regular checkpoint."""
    outcome = play(
        Plan(
            seed=10074,
            seconds=15.0,
            brokers={"broker-a": SMALL_FILES},
            topics={"orders": 4},
            groups=[{"name": "billing", "topics": [{"name": "orders", "order_key": "KEY"}]}],
            proxies=1,
            proxy_settings={},
            producers=2,
            consumers=[ConsumerPlan("billing", None, 0)],
            flows=[FlowPlan(0.0, 0, "orders", ["o0"], 50, 0.1, body_bytes=40_000)],
            actions=[
                Action(4.21, "freeze", {"node": "broker-a", "for_s": 11.7}),
                Action(11.25, "power", {"node": "broker-a", "at": "new file", "for_s": 23.0}),
            ],
        )
    )
    assert outcome.violations == {}
    assert outcome.errors == []
    assert any(event["e"] == "deleted" for event in outcome.events)  # what was never confirmed
