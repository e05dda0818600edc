"""Limits of reading ahead of clients."""

from __future__ import annotations

from testkit.messages import keyed
from testkit.pipelines import lease, pipeline, rules


def test_a_queue_with_plenty_of_ready_jobs_is_read_on_once_they_are_few() -> None:
    ready = [keyed(number, f"k{number}") for number in range(2048)]
    queue = pipeline(rules(max_jobs=20_000), messages=ready)
    assert queue.room() == 0
    given = lease(queue, 1000)
    queue.settle(acked=[each.lease_id for each in given], now_ns=0)
    assert queue.room() == 0, "no reads of a few"
    lease(queue, 100)
    assert queue.room() > 1000
