"""Damaged messages that a queue waits at, and the operator's skip."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from proxy.core.keys.ids import Epoch
from proxy.core.leases.verdicts import Outcome
from proxy.core.pipeline.queue_pipeline import QueuePipeline
from proxy.core.records.record import Snapshot
from proxy.errors import WrongState
from testkit.messages import keyed
from testkit.pipelines import lease, offsets, pipeline


def stands(queue: QueuePipeline, *, until: int) -> QueuePipeline:
    queue.stands_at_damage("damaged on disk", until=until)
    return queue


def test_a_skip_at_the_read_position_takes_the_damaged_messages_only() -> None:
    queue = stands(pipeline(messages=[keyed(0, "a")]), until=3)
    effects = queue.skip_damaged(1, audit="a-1")

    assert effects.finished == [(1, Outcome.SKIPPED), (2, Outcome.SKIPPED)]
    assert {skip.audit for skip in effects.skips.values()} == {"a-1"}
    assert (queue.position, queue.committable, queue.damaged) == (3, 0, "")
    queue.on_messages([keyed(3, "a")], next_offset=4)
    leases = lease(queue, 1)
    assert offsets(leases) == [0]
    queue.settle(acked=[leases[0].lease_id], now_ns=0)
    assert offsets(lease(queue, 1)) == [3]


def test_what_an_earlier_owner_finished_is_not_skipped_again() -> None:
    queue = stands(pipeline(epoch=5, resume=Snapshot(Epoch(1), 0, 4, (0, 2))), until=3)
    assert queue.skip_damaged(0, audit="a-1").finished == [
        (0, Outcome.SKIPPED),
        (2, Outcome.SKIPPED),
    ]
    assert queue.committable == 4


def drain(queue: QueuePipeline) -> None:
    queue.drain()


def repair(queue: QueuePipeline) -> None:
    queue.stands_at_damage("", until=0)


@pytest.mark.parametrize(
    ("change", "offset", "problem"),
    [
        (None, 0, "does not wait at a damaged message 0"),
        (None, 2, "does not wait at a damaged message 2"),
        (repair, 1, "does not wait at a damaged message 1"),
        (drain, 1, "is being handed over"),
    ],
)
def test_nothing_else_is_skipped(
    change: Callable[[QueuePipeline], None] | None, offset: int, problem: str
) -> None:
    queue = stands(pipeline(messages=[keyed(0, "a")]), until=2)
    if change is not None:
        change(queue)
    with pytest.raises(WrongState, match=problem):
        queue.skip_damaged(offset, audit="a-1")
    assert queue.position == 1
