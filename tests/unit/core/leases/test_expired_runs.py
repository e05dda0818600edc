"""Expired runs, some of whose leases have verdicts."""

from __future__ import annotations

from proxy.core.leases.lease_book import Lease
from proxy.core.leases.verdicts import Nack
from proxy.core.pipeline.queue_pipeline import QueuePipeline
from testkit.messages import keyed
from testkit.pipelines import lease, offsets, pipeline


def run_of(jobs: int) -> tuple[QueuePipeline, list[Lease]]:
    queue = pipeline(messages=[keyed(offset, "k") for offset in range(jobs)])
    heads = lease(queue)
    return queue, queue.lengthen(heads, max_run=jobs, max_jobs=jobs, max_bytes=1 << 30)


def attempts_of_next(queue: QueuePipeline, *, now_ns: int) -> list[int]:
    """Deliver the next jobs one by one with acks; return their attempts."""
    found = []
    while leases := lease(queue, now_ns=now_ns):
        found += [each.job.attempts for each in leases]
        queue.settle(acked=[each.lease_id for each in leases], now_ns=now_ns)
    return found


def test_messages_returned_behind_an_expired_one_do_not_count_as_attempts() -> None:
    queue, run = run_of(4)
    queue.settle(released=[run[2].lease_id], now_ns=0)
    late_ns = run[0].deadline_ns
    effects = queue.on_time(now_ns=late_ns)
    assert (offsets(effects.expired), offsets(effects.released)) == ([0, 1], [2, 3])
    assert attempts_of_next(queue, now_ns=late_ns) == [2, 2, 1, 1]


def test_messages_after_a_failed_one_in_an_expired_run_do_not_count_as_attempts() -> None:
    queue, run = run_of(3)
    queue.settle(nacked=[Nack(run[1].lease_id)], now_ns=0)
    late_ns = run[0].deadline_ns
    effects = queue.on_time(now_ns=late_ns)
    assert (offsets(effects.expired), offsets(effects.released)) == ([0, 1], [2])
    assert attempts_of_next(queue, now_ns=late_ns) == [2, 2, 1]


def test_a_lease_that_went_back_so_is_fenced_as_one_that_expired() -> None:
    queue, run = run_of(2)
    queue.settle(released=[run[1].lease_id], now_ns=0)
    late_ns = run[0].deadline_ns
    effects = queue.settle(released=[run[1].lease_id], now_ns=late_ns)
    assert (offsets(effects.released), effects.fenced) == ([1], [run[1].lease_id])
