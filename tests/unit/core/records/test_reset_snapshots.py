"""Records of a queue that is reset: only its messages are forgotten."""

from __future__ import annotations

from proxy.core.pipeline.queue_pipeline import QueuePipeline
from proxy.core.records.paused_key import EVERYTHING, PausedKey
from proxy.core.records.record import Snapshot
from proxy.upstream.ownership.resets import moved_to
from testkit.messages import keyed
from testkit.pipelines import pipeline, rules


def _moved_after_a_change() -> tuple[QueuePipeline, Snapshot]:
    """Return a queue reset to offset 1, although message 0 is unfinished under the former order
    key.
    """
    here = pipeline(rules("KEY"), messages=[keyed(0, "a"), keyed(1, "b")])
    here.change_rules(rules("$.id"))
    here.plan_key_change()
    here.key_change_recorded()
    return here, moved_to(here, 1)


def test_a_reset_keeps_the_order_keys_that_were() -> None:
    """Otherwise outdated settings of a proxy that missed the change would revert it."""
    here, moved = _moved_after_a_change()
    assert moved.keys is not None
    assert (moved.keys.version, moved.keys.rule.text) == (here.keys.record.version, "$.id")
    assert moved.keys.is_newer_than(rules("KEY"))
    next_one = pipeline(rules("$.id"), resume=moved, start=1)
    assert next_one.keys.record.is_newer_than(rules("KEY"))


def test_nothing_is_older_after_a_reset() -> None:
    _, moved = _moved_after_a_change()
    assert moved.keys is not None
    assert (moved.keys.before, moved.unfinished, moved.base, moved.read) == (None, (), 1, 1)


def test_pauses_survive_a_reset() -> None:
    here = pipeline(rules("KEY"), messages=[keyed(0, "a")])
    how = PausedKey(5, "ann", "why")
    here.pause(b"a", how)
    here.pause(EVERYTHING, how)
    assert moved_to(here, 1).paused == {b"a": how, EVERYTHING: how}
