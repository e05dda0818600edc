"""A proxy leaves a group, and others take its queues. Real upstream, brokers in memory."""

from __future__ import annotations

import asyncio

import pytest

from broker_core import clock
from broker_core.tasks import spawn
from proxy.upstream.ownership import group_ownership as ownership_module
from testkit.eventually import eventually
from testkit.lanes import TOPIC
from tests.integration.upstream.memory_broker import MemoryBrokers
from tests.integration.upstream.upstreams import BILLING, SECOND, one_queue, taking_part, upstream

#: Renewed often, and trusted during pauses of the machine.
LOCK = {"renewal_s": 0.05, "trust_s": 9.0, "request_timeout_s": 0.05}


async def test_a_proxy_that_leaves_with_a_live_lease_gives_the_other_queues_away() -> None:
    """A group is left last, so that one notice suffices, but not delayed by one long job."""
    brokers = MemoryBrokers()
    _, busy = brokers.add_topic(TOPIC, 2)
    brokers.logs[busy] = [b"x"]
    async with upstream(brokers, lock=LOCK) as us, taking_part(us) as ownership:
        await eventually(lambda: len(us.lane.buffer) == 2)
        await eventually(lambda: us.lease() == 1)
        leaving = spawn(ownership.close(), name="close")
        await eventually(lambda: us.client.asked["leave"] == 1)
        assert brokers.holders.keys() == {(BILLING, busy)}
        assert not leaving.done()

        assert us.ack_last(us.pipeline(busy)) == []
        await leaving
        assert not brokers.holders
        assert us.client.asked["leave"] == 1


async def test_a_hand_over_past_its_time_records_the_remaining_leases() -> None:
    """P2: the queue is free at once, and its next owner holds back the leased messages."""
    brokers, queue = one_queue()
    brokers.logs[queue] = [b"x"]
    async with upstream(brokers, ownership={"drain_s": 0.05}) as us:
        owned, _ = await us.owned(queue)
        await eventually(lambda: us.ready(queue))
        assert us.lease() == 1
        # it has no changes after that
        await us.context.recorder.record(us.lane, us.pipeline(queue))
        await owned.hand_over()
        assert not brokers.holders
    async with upstream(brokers, client_id="next@1#1") as us:
        _, pipeline = await us.owned(queue)
        await eventually(lambda: us.ready(queue))
        assert us.lease() == 0
        due_ns = pipeline.next_due_ns(clock.now_ns())
        assert due_ns is not None
        assert 0 < due_ns - clock.now_ns() <= 5 * SECOND, "the visibility timeout"


async def test_a_lease_that_outlives_several_hand_overs_ends_at_its_time() -> None:
    """N7: otherwise its key waits for ever if its queue moves more often than a lease lasts."""
    brokers, queue = one_queue()
    brokers.logs[queue] = [b"x"]
    async with upstream(brokers, ownership={"drain_s": 0.05}) as us:
        owned, _ = await us.owned(queue)
        await eventually(lambda: us.ready(queue))
        assert us.lease() == 1
        await owned.hand_over()
    ends_ns = clock.now_ns() + 5 * SECOND  # the visibility timeout, at most
    for number in range(3):
        async with upstream(brokers, client_id=f"next-{number}@1#1") as us:
            owned, pipeline = await us.owned(queue)
            await eventually(lambda us=us: us.ready(queue))
            due_ns = pipeline.next_due_ns(clock.now_ns())
            assert due_ns is not None
            assert due_ns <= ends_ns + SECOND // 10
            await asyncio.sleep(0.5)
            await owned.hand_over()


async def test_an_ack_after_the_last_record_is_refused() -> None:
    """P5: the next owner delivers the message again, so an accepted ack would be wrong."""
    brokers, queue = one_queue()
    brokers.logs[queue] = [b"x"]
    async with upstream(brokers, ownership={"drain_s": 0.05}) as us:
        owned, pipeline = await us.owned(queue)
        await eventually(lambda: us.ready(queue))
        assert us.lease() == 1
        refused: list[list[int]] = []

        async def acked(*_: object) -> None:
            refused.append(us.ack_last(pipeline))

        us.client.before["send"] = acked
        await owned.hand_over()
        assert refused == [us.taken] * 2, "with the last record, and with the clean end"
    async with upstream(brokers, client_id="next@1#1") as us:
        _, pipeline = await us.owned(queue)
        await eventually(lambda: us.pipeline(queue).position == 1)
        assert pipeline.snapshot().unfinished == (0,)


async def test_a_proxy_that_was_stopped_does_not_keep_queues_for_earlier_clients(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Its clients went elsewhere long ago; it must not wait for them again."""
    brokers, queue = one_queue()
    stood_still_ns = 0
    monkeypatch.setattr(ownership_module, "now_ns", lambda: clock.now_ns() + stood_still_ns)
    async with upstream(brokers, lock=LOCK) as us, taking_part(us, stays=False):
        await eventually(lambda: us.lane.buffer.find(queue) is not None)
        us.lane.seen()
        stood_still_ns = 20 * SECOND
        await eventually(lambda: not us.lane.presence.joined)

        assert us.client.asked["leave"] == 1
        assert not brokers.holders
