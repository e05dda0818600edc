"""Take-overs of queues with damaged ownership records. Real upstream, brokers in memory."""

from __future__ import annotations

import pytest

from broker_core.clock import now_ns
from proxy.core.keys.ids import Epoch
from proxy.core.records.record import Delta, Snapshot
from proxy.core.records.snapshot_parts import parts
from testkit.eventually import eventually
from tests.integration.upstream.upstreams import (
    BILLING,
    SECOND,
    one_queue,
    rival,
    twin_of,
    upstream,
    write,
)

SAID = Snapshot(Epoch(0), 1, 3, (1,))


@pytest.mark.parametrize("how", ["garbage", "a gap"])
async def test_the_last_consistent_state_counts_and_the_next_record_repairs_it(how: str) -> None:
    brokers, queue = one_queue()
    brokers.logs[queue] = [b"x"] * 6
    write(brokers, queue, rival(), *parts(SAID))
    records = brokers.logs[twin_of(brokers, queue)]
    if how == "garbage":
        records.append(b"{}")
    else:  # of which the record before is missing
        write(brokers, queue, Delta(Epoch(0), 1, 5, 6, left=(1,), after=7))
    async with upstream(brokers) as us:
        began = now_ns()
        _, pipeline = await us.owned(queue)
        assert pipeline.records_damaged
        assert us.lane.counts[queue.topic].damaged_records == 1
        # Its leases may still belong to another owner, whose records are unreadable.
        assert pipeline.hold_until_ns > began + 8 * SECOND
        await eventually(lambda: pipeline.position == 6)
        assert pipeline.jobs.unspilled() == [1, 3, 4, 5]
        # The number of periods is unknown too: a repeated suffix would mix up their leases.
        assert pipeline.qid.endswith("#4")
        await us.context.recorder.record(us.lane, pipeline)
        last, _ = await us.context.log.last(BILLING, queue)
        assert last is not None
        assert last.damage is None
        assert last.snapshot == pipeline.snapshot()


async def test_a_snapshot_that_retention_deleted_is_missed() -> None:
    """Parked keys may be in deleted records while their copies still exist."""
    brokers, queue = one_queue()
    write(brokers, queue, rival(), *parts(SAID), rival(2), Delta(Epoch(2), 1, 3, 3, after=1))
    brokers.deleted[twin_of(brokers, queue)] = 2
    async with upstream(brokers) as us:
        last, _ = await us.context.log.last(BILLING, queue)
        assert last is not None
        assert (last.snapshot, last.damage, last.forgotten) == (None, None, True)
        _, pipeline = await us.owned(queue)
        assert not pipeline.records_damaged  # there are no copies: it was idle


async def test_reading_the_owner_of_a_queue_leaves_no_trace() -> None:
    brokers, queue = one_queue()
    async with upstream(brokers) as us:
        assert await us.context.log.owner(BILLING, queue) is None
        assert list(brokers.topics) == [queue.topic]
        write(brokers, queue, rival())
        last = await us.context.log.owner(BILLING, queue)
        assert last is not None
        assert last.own == rival()
