"""A lease revoked by an operator: its message is offered again, a late verdict is fenced."""

from __future__ import annotations

from proxy.core.keys.ids import LeaseId
from proxy.core.leases.lease_book import Lease
from proxy.core.pipeline.queue_pipeline import QueuePipeline
from testkit.messages import keyed
from testkit.pipelines import lease, offsets, pipeline
from tests.support.histories import LANE, Story


def run_of(jobs: int) -> tuple[QueuePipeline, list[Lease]]:
    queue = pipeline(messages=[keyed(offset, "k") for offset in range(jobs)])
    heads = lease(queue)
    return queue, queue.lengthen(heads, max_run=jobs, max_jobs=jobs, max_bytes=1 << 30)


def test_a_revoked_message_is_the_next_one_and_its_hand_out_counts() -> None:
    queue, (held, _) = run_of(2)
    assert offsets(queue.revoke(held.lease_id, now_ns=1).revoked) == [0, 1]
    (again,) = lease(queue, now_ns=1)
    assert (again.job.offset, again.job.attempts) == (0, 2)
    assert again.lease_id != held.lease_id


def test_a_late_ack_finishes_nothing() -> None:
    queue, (held,) = run_of(1)
    queue.revoke(held.lease_id, now_ns=1)
    (again,) = lease(queue, now_ns=1)
    effects = queue.settle(acked=[held.lease_id], now_ns=2)
    assert (effects.finished, effects.fenced) == ([], [held.lease_id])
    assert len(queue.settle(acked=[again.lease_id], now_ns=2).finished) == 1


def test_one_of_a_run_ends_all_of_it_in_order() -> None:
    queue, run = run_of(3)
    queue.settle(acked=[run[0].lease_id], now_ns=0)
    assert offsets(queue.revoke(run[2].lease_id, now_ns=1).revoked) == [1, 2]
    assert queue.extend([run[1].lease_id], ms=1000, now_ns=1) == [run[1].lease_id]
    assert [each.job.offset for each in lease(queue, now_ns=1)] == [1]


def test_a_lease_that_is_not_live_is_not_revoked() -> None:
    queue, (held,) = run_of(1)
    assert queue.revoke(LeaseId(99), now_ns=1).fenced == [99]
    late = queue.revoke(held.lease_id, now_ns=held.deadline_ns)
    assert (offsets(late.expired), late.revoked, late.fenced) == ([0], [], [held.lease_id])


# ---- histories -----------------------------------------------------------------------------------


def revoked() -> tuple[Story, int]:
    story = Story().sent(0).own(1, visibility_ms=60_000)
    held = story.deliver(0)
    return story.add("revoke", **LANE, epoch=1, offset=0, lease=held), held


def test_a_revoked_lease_may_end_before_its_deadline() -> None:
    story, _ = revoked()
    assert story.ack(0, story.deliver(0)).found() == set()


def test_w3_an_ack_of_a_revoked_lease() -> None:
    story, held = revoked()
    story.deliver(0)
    assert "W3" in story.ack(0, held).found()


def test_o3b_a_handler_that_goes_on_is_late_and_no_violation() -> None:
    story, held = revoked()
    story.handle_start(0, held)
    again = story.deliver(0)
    story.handle_start(0, again).handle_end(0, again)
    story.ack(0, again).handle_end(0, held)
    assert (story.found(), story.report().counts.late) == (set(), 2)
