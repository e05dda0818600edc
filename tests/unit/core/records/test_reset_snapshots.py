"""Records of a queue that is reset: only its messages are forgotten."""

from __future__ import annotations

from proxy.core.pipeline.queue_pipeline import QueuePipeline
from proxy.core.records.codec import decode, encode
from proxy.core.records.paused_key import EVERYTHING, PausedKey
from proxy.core.records.record import Snapshot, SnapshotPart
from proxy.core.records.snapshot_parts import parts
from proxy.upstream.ownership.resets import moved_to
from testkit.messages import keyed
from testkit.pipelines import lease, pipeline, rules


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


def test_a_commit_from_before_a_reset_does_not_undo_it() -> None:
    """A broker may have lost the later commits."""
    here = pipeline(rules("KEY"), messages=[keyed(n, f"k{n}") for n in range(5)])
    back = moved_to(here, 1)
    assert [back.begins_at(committed) for committed in (0, 1, 4, 5, 6)] == [1, 1, 1, 1, 6]
    again = moved_to(pipeline(rules("KEY"), resume=back, start=1), 0)
    assert again.begins_at(5) == 0
    on = moved_to(here, 5)
    assert [on.begins_at(committed) for committed in (4, 5, 6)] == [5, 5, 6]


def test_the_next_owners_remember_a_reset_until_they_are_past_it() -> None:
    here = pipeline(rules("KEY"), messages=[keyed(n, f"k{n}") for n in range(3)])
    back = decoded(moved_to(here, 1))
    assert back.moved_from == 3
    following = pipeline(
        rules("KEY"), resume=back, start=1, messages=[keyed(n, f"k{n}") for n in (1, 2, 3, 4)]
    )
    assert decoded(following.snapshot()).moved_from == 3
    taken = lease(following)
    following.settlement.settle([each.lease_id for each in taken], (), (), 0)
    assert following.snapshot().base == 5
    assert decoded(following.snapshot()).moved_from is None


def decoded(snapshot: Snapshot) -> Snapshot:
    (part,) = parts(snapshot)
    read = decode(encode(part))
    assert isinstance(read, SnapshotPart)
    assert read.piece == snapshot
    return read.piece
