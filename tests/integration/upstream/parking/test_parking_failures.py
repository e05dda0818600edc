"""Parked keys of a queue whose broker fails between steps. Real upstream, brokers in memory."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from broker_core.errors import BrokerError, ConnectionLost
from broker_core.names import QueueName, Topic
from broker_core.remoting.codes import ResponseCode
from proxy.core.parking.parking_pipeline import ParkingPipeline
from proxy.core.records.parked_key import parked_topic
from proxy.upstream.ownership.owned_queue import OwnedQueue, QueueState
from proxy.upstream.parking.parked_keys import Parking
from testkit.eventually import eventually
from tests.integration.upstream.upstreams import BILLING, Upstream, once, one_queue, upstream


async def parked(us: Upstream, queue: QueueName) -> tuple[OwnedQueue, ParkingPipeline, Parking]:
    """Own *queue*, and park its only key."""
    owned, pipeline = await us.owned(queue)
    await eventually(lambda: us.ready(queue))
    assert owned.parking is not None
    (key,) = pipeline.jobs.chains.keys
    assert owned.parking.park(key, by="test", reason="test")
    owned.parking.wake()
    return owned, pipeline, owned.parking


@pytest.mark.parametrize("failure", [ConnectionLost("the broker is away"), KeyError("a bug")])
async def test_a_twin_that_lost_its_tail_is_opened_again_despite_failures(
    failure: Exception,
) -> None:
    """No parked key may stop silently."""
    brokers, queue = one_queue()
    brokers.logs[queue] = [b"x"]
    async with upstream(brokers) as us:
        _, pipeline, parking = await parked(us, queue)
        await eventually(lambda: pipeline.twin is not None)
        first = pipeline.twin
        failures = ["commit_offset", "send"]

        def fail(*_: object) -> None:
            failures.pop()
            raise failure

        us.client.before["send"] = once(fail)
        us.client.before["commit_offset"] = once(fail)
        parking.lost_tail(0)
        parking.wake()
        await eventually(lambda: pipeline.twin not in (None, first))
        assert first is not None
        assert (first.closed, failures) == (True, [])


async def test_a_hand_over_before_a_twin_starts_over_is_not_clean() -> None:
    brokers, queue = one_queue()
    brokers.logs[queue] = [b"x"]
    async with upstream(brokers) as us:
        _, pipeline, parking = await parked(us, queue)
        await eventually(lambda: pipeline.twin is not None and pipeline.jobs.unfinished == 0)
        parking.lost_tail(0)
        assert not await parking.hand_over()


async def test_a_hand_over_while_a_twin_starts_over_records_nothing_from_before() -> None:
    """Its snapshot would name copies that are gone, and the next owner would find new ones done."""
    brokers, queue = one_queue()
    brokers.logs[queue] = [b"x"]
    async with upstream(brokers) as us:
        owned, pipeline, parking = await parked(us, queue)
        await eventually(lambda: pipeline.twin is not None and pipeline.jobs.unfinished == 0)
        twin, waits = pipeline.twin, asyncio.Event()
        assert twin is not None
        await eventually(lambda: twin.position == 1)

        async def never(*_: Any) -> None:
            us.client.before.pop("send")
            waits.set()
            await asyncio.Event().wait()

        us.client.before["send"] = never
        parking.lost_tail(0)
        await waits.wait()
        owned.hand_over()
        await eventually(lambda: owned.state is QueueState.GONE)
        last, _ = await us.context.log.last(BILLING, twin.queue, by_period=True)
    assert last is not None
    assert not last.clean
    assert last.snapshot is None or last.snapshot.read == 0


async def test_a_twin_that_started_over_does_so_once_although_its_topic_is_looked_for() -> None:
    """The look ends late, with an answer from before the topic was created again."""
    brokers, queue = one_queue()
    brokers.logs[queue] = [b"x"]
    topic = parked_topic(BILLING, queue.topic)
    brokers.lives[topic] = 1
    looks, ends = asyncio.Event(), asyncio.Event()
    async with upstream(brokers) as us:
        _, pipeline, _ = await parked(us, queue)
        gone = BrokerError(ResponseCode.TOPIC_NOT_EXIST, "no such topic")

        async def look(_topic: Topic) -> None:
            us.client.before.pop("queues")
            looks.set()
            await ends.wait()
            raise gone

        async def pull(of: QueueName, offset: int) -> None:
            if of.topic == topic and offset == 1:
                us.client.before.update(queues=look)
                us.client.before.pop("pull")
                raise gone

        us.client.before["pull"] = pull
        await looks.wait()
        first = pipeline.twin
        assert first is not None
        brokers.lives[topic], brokers.logs[first.queue] = 2, []
        await eventually(lambda: pipeline.twin not in (None, first))
        second = pipeline.twin
        assert second is not None
        ends.set()
        await asyncio.sleep(5)
        assert (pipeline.twin, second.closed) == (second, False)
