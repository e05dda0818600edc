"""A proxy in doubt: after a lapse, a lost connection, or with records not visible yet.

Real upstream components on brokers in memory, so each test controls every step.
"""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from broker_core.clock import now_ns
from broker_core.names import QueueName
from proxy.core.keys.ids import Epoch
from proxy.core.records.record import Clean, Own, Snapshot
from proxy.core.records.snapshot_parts import parts
from proxy.upstream.ownership.owned_queue import QueueState
from testkit.eventually import eventually
from testkit.lanes import TOPIC
from tests.integration.upstream.memory_broker import MemoryBrokers
from tests.integration.upstream.upstreams import (
    FOR_LONG_NS,
    SECOND,
    once,
    one_queue,
    rival,
    showing,
    twin_of,
    upstream,
    write,
)


async def test_last_records_of_an_owner_that_are_not_visible_yet_are_found(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """P5: Apache RocketMQ shows a message a moment after it is stored."""
    brokers, queue = one_queue()
    brokers.logs[queue] = [b"x"] * 9
    own = Own("rival@1#1", 5000, 60_000, broker_start_ms=1, period=1)
    write(brokers, queue, own, *parts(Snapshot(Epoch(0), 3, 7, (3, 5))), Clean(Epoch(0)))
    async with upstream(brokers) as us:
        monkeypatch.setattr(us.client, "max_offset", showing(us, twin_of(brokers, queue), 1))
        _, pipeline = await us.owned(queue)
        await eventually(lambda: pipeline.position == 9)

        assert pipeline.snapshot().unfinished == (3, 5, 7, 8)
        assert pipeline.hold_until_ns <= now_ns(), "it ended cleanly"
        assert len(brokers.logs[twin_of(brokers, queue)]) == 4


async def test_an_own_record_that_is_not_visible_yet_is_not_taken_for_anothers(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """P5: otherwise each record of ours would cause another one, and a longer wait."""
    brokers, queue = one_queue()
    twin = twin_of(brokers, queue)
    # its records are not visible either, so there seems to be no owner
    write(brokers, queue, rival(1))
    async with upstream(brokers) as us:
        monkeypatch.setattr(us.client, "max_offset", showing(us, twin, 0))
        _, pipeline = await us.owned(queue)

        assert len(brokers.logs[twin]) == 3, "a record that did not know of the rival, and one more"
        rules = us.lane.settings.topics[0]
        most = us.context.settings.lock.trust_s + rules.visibility_timeout_s
        assert now_ns() < pipeline.hold_until_ns <= now_ns() + most * SECOND


async def test_an_owner_whose_record_is_not_shown_yet_is_found_after_a_doubt(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """P1: the number of visible records differs from that of stored ones."""
    brokers, queue = one_queue()
    async with upstream(brokers) as us:
        owned, pipeline = await us.owned(queue)
        monkeypatch.setattr(us.client, "max_offset", showing(us, twin_of(brokers, queue), 1))
        owned.connection_lost()
        write(brokers, queue, rival(9))
        owned.renewed(now_ns() + FOR_LONG_NS)
        await eventually(lambda: owned.state is QueueState.GONE)

        assert pipeline.closed


async def test_a_check_begun_before_a_second_lapse_proves_nothing() -> None:
    """P1: a rival owned the queue between the two."""
    brokers, queue = one_queue()
    async with upstream(brokers) as us:
        # Long enough for the take-over, even with pauses of the machine.
        owned = us.own(queue, trust_ns=5 * SECOND // 2)
        await eventually(lambda: owned.state is QueueState.OWNED)
        pipeline = us.pipeline(queue)
        await eventually(lambda: pipeline.trusted_until_ns <= now_ns())
        answered = asyncio.Event()
        reads: list[int] = []

        async def answered_late(of: QueueName, *_: Any) -> None:
            if of == twin_of(brokers, queue):  # the queue itself may be read at any time
                reads.append(len(brokers.logs[of]))
                await answered.wait()

        us.client.before["pull"] = answered_late
        owned.renewed(now_ns() - 1)  # granted, and lapsed again before the answer
        await eventually(lambda: len(reads) == 1)
        write(brokers, queue, rival(9), Clean(Epoch(1)))
        owned.renewed(now_ns() + FOR_LONG_NS)
        answered.set()
        await eventually(lambda: owned.state is QueueState.GONE)

        assert pipeline.closed
        assert pipeline.trusted_until_ns <= now_ns()


async def test_thousands_of_doubtful_queues_are_checked_a_few_at_a_time() -> None:
    """P1: all at once they delayed the next renewals until trust lapsed again, endlessly."""
    brokers = MemoryBrokers()
    queues = brokers.add_topic(TOPIC, 200)
    async with upstream(brokers) as us:
        owned = [(await us.owned(queue))[0] for queue in queues]
        looking, most = 0, 0

        async def slowly(of: QueueName, *_: Any) -> None:
            nonlocal looking, most
            looking, most = looking + 1, max(most, looking + 1)
            await asyncio.sleep(0.002)
            looking -= 1

        us.client.before["send"] = slowly
        for each in owned:
            each.connection_lost()
            each.renewed(now_ns() + FOR_LONG_NS)
        assert all(us.pipeline(queue).doubtful for queue in queues)
        await eventually(lambda: not any(each.doubtful for each in us.lane.buffer))

        assert 0 < most <= 32
        assert {each.state for each in owned} == {QueueState.OWNED}


@pytest.mark.parametrize("rival_came", [False, True])
async def test_a_lost_connection_stops_delivery_until_the_records_are_checked(
    rival_came: bool,
) -> None:
    """P1: a restarted broker may have given the lock away long before trust expires."""
    brokers, queue = one_queue()
    brokers.logs[queue] = [b"x", b"y"]
    async with upstream(brokers) as us:
        owned, pipeline = await us.owned(queue)
        await eventually(lambda: us.ready(queue))
        assert us.lease() == 1
        owned.connection_lost()
        held = [lease.lease_id for lease in pipeline.leases]
        assert us.lane.extend(queue.topic, pipeline.qid, held, ms=1000) == [], "still leased"
        us.lane.settle(queue.topic, pipeline.qid, acked=held)
        assert us.lease() == 0
        if rival_came:
            write(brokers, queue, rival(9), Clean(Epoch(1)))
        owned.renewed(now_ns() + FOR_LONG_NS)
        assert us.lease() == 0, "the record has not told yet"
        await eventually(lambda: pipeline.closed if rival_came else not pipeline.doubtful)

        assert us.lease() == (0 if rival_came else 1)


async def test_a_connection_lost_while_taking_over_raises_doubt_as_well() -> None:
    """P1: the lock was granted before the restart; the record was stored after it."""
    brokers, queue = one_queue()
    brokers.logs[queue] = [b"x"]
    async with upstream(brokers) as us:
        owned = us.own(queue)
        us.client.before["send"] = once(lambda *_: owned.connection_lost())
        await eventually(lambda: us.ready(queue))
        assert us.lease() == 0
        owned.renewed(now_ns() + FOR_LONG_NS)
        await eventually(lambda: us.lease() == 1)


async def test_no_period_begins_after_a_lost_connection() -> None:
    """P1: after a restart the broker may have given the lock back to its last owner, whose records
    ours would void while it delivers.
    """
    brokers, queue = one_queue()
    write(brokers, queue, rival())
    records = len(brokers.logs[twin_of(brokers, queue)])
    async with upstream(brokers) as us:
        owned = us.own(queue)
        us.client.before["pull"] = once(lambda *_: owned.connection_lost())
        await eventually(lambda: owned.state is QueueState.GONE)

        assert len(brokers.logs[twin_of(brokers, queue)]) == records
        await us.owned(queue)


async def test_a_lock_granted_again_after_a_lost_connection_is_enough_to_begin() -> None:
    brokers, queue = one_queue()
    write(brokers, queue, rival())

    async with upstream(brokers) as us:
        owned = us.own(queue)

        def back(*_: Any) -> None:
            owned.connection_lost()
            owned.renewed(now_ns() + FOR_LONG_NS)

        us.client.before["pull"] = once(back)
        await eventually(lambda: owned.state is QueueState.OWNED)
        assert us.pipeline(queue).doubtful


async def test_the_last_owner_may_be_back_after_a_restart() -> None:
    """P1: it recorded its state after our look and before our record, so it may deliver."""
    brokers, queue = one_queue()
    write(brokers, queue, rival())
    async with upstream(brokers) as us:
        owned = us.own(queue)

        def back(*_: Any) -> None:
            owned.connection_lost()
            write(brokers, queue, *parts(Snapshot(Epoch(0), 0, 0, ())))

        us.client.before["send"] = once(back)
        await eventually(lambda: owned.state is QueueState.GONE)
        assert us.history.of("own+") == []
