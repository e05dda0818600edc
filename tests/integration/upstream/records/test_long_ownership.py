"""Ownership periods that outlive their records, and leases that outlive a period."""

from __future__ import annotations

import gc
import weakref

import pytest

from broker_core.clock import now_ns
from proxy.core.records.paused_key import PausedKey
from proxy.core.records.record import Own
from testkit.eventually import eventually
from tests.integration.upstream.upstreams import SECOND, one_queue, twin_of, upstream, write


async def test_an_owner_older_than_retention_leaves_the_state_for_the_next() -> None:
    """Its first record is deleted; its hourly snapshots have the same contents."""
    brokers, queue = one_queue()
    brokers.logs[queue] = [b"x"] * 20
    async with upstream(brokers, client_id="p1@1#1") as one:
        _, pipeline = await one.owned(queue)
        await eventually(lambda: pipeline.position == 20)
        pipeline.pause(b"k", PausedKey(1, "me"))
        at = await one.context.recorder.record(one.lane, pipeline, whole=True)
        assert at is not None
    brokers.deleted[twin_of(brokers, queue)] = at
    async with upstream(brokers, client_id="p2@1#1") as two:
        last, _ = await two.context.log.last(two.lane.name, queue)
        _, later = await two.owned(queue)

        assert last is not None
        assert (last.own.owner, last.forgotten) == ("p1@1#1", False)
        assert list(later.paused) == [b"k"]


@pytest.mark.parametrize("visibility_s", [5.0, 60.0])
async def test_leases_that_an_owner_waited_for_are_known_to_the_next(visibility_s: float) -> None:
    """The first owner's leases last a minute; the settings have changed; the waiting owner is
    killed.
    """
    brokers, queue = one_queue()
    write(brokers, queue, Own("p1@1#1", 5000, 60_000, broker_start_ms=1, period=1))
    waits_s = []
    for name in ("p2@1#1", "p3@1#1"):
        group = {"visibility_timeout_s": visibility_s}
        async with upstream(brokers, client_id=name, group=group) as us:
            _, pipeline = await us.owned(queue)
            waits_s.append((pipeline.hold_until_ns - now_ns()) / SECOND)
    # The third owner comes when the second one's lock has expired, ten seconds later.
    assert waits_s[1] > waits_s[0] - 10


async def test_nothing_is_kept_of_a_period_that_ended() -> None:
    """Queues come and go for as long as a proxy runs."""
    brokers, queue = one_queue()
    brokers.logs[queue] = [b"x"] * 20
    async with upstream(brokers, client_id="p1@1#1") as us:
        owned, pipeline = await us.owned(queue)
        period = weakref.ref(pipeline)
        await owned.lose("a test")
        del owned, pipeline
        await eventually(lambda: gc.collect() >= 0 and period() is None)
