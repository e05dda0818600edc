"""Parked keys of a queue whose broker fails between steps. Real upstream, brokers in memory."""

from __future__ import annotations

from broker_core.errors import ConnectionLost
from testkit.eventually import eventually
from tests.integration.upstream.upstreams import once, one_queue, upstream


async def test_a_twin_that_lost_its_tail_is_opened_again_despite_failures() -> None:
    """No parked key may stop silently."""
    brokers, queue = one_queue()
    brokers.logs[queue] = [b"x"]
    async with upstream(brokers) as us:
        owned, pipeline = await us.owned(queue)
        await eventually(lambda: us.ready(queue))
        parking = owned.parking
        assert parking is not None
        (key,) = pipeline.jobs.chains.keys
        assert parking.park(key, by="test", reason="test")
        parking.wake()
        await eventually(lambda: pipeline.twin is not None)
        first = pipeline.twin
        failures = ["commit_offset", "send"]

        def fail(*_: object) -> None:
            failures.pop()
            raise ConnectionLost("the broker is away")

        us.client.before["send"] = once(fail)
        us.client.before["commit_offset"] = once(fail)
        parking.lost_tail(0)
        parking.wake()
        await eventually(lambda: pipeline.twin not in (None, first))
        assert first is not None
        assert (first.closed, failures) == (True, [])
