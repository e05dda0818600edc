"""An ``own`` record that arrives late, while another proxy owns the queue.

Real upstream components on brokers in memory, so each test controls every step.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest

from broker_core.client import SendReceipt
from broker_core.errors import RemotingError, RequestTimeout
from broker_core.names import QueueName
from broker_core.remoting.message import OutgoingMessage
from broker_core.tasks import spawn
from proxy.core.keys.ids import Epoch
from proxy.core.keys.order_key import QUEUE_CHAIN
from proxy.core.parking.parking_pipeline import ParkingPipeline
from proxy.core.records.parked_key import parked_topic
from proxy.core.records.paused_key import PausedKey
from proxy.core.records.record import Clean, Snapshot
from proxy.core.records.snapshot_parts import parts
from proxy.upstream.ownership.owned_queue import OwnedQueue, QueueState
from testkit.eventually import eventually
from tests.integration.upstream.memory_broker import MemoryBrokers, MemoryClient
from tests.integration.upstream.upstreams import (
    BILLING,
    SECOND,
    Upstream,
    once,
    one_queue,
    rival,
    twin_of,
    upstream,
    write,
)

PAUSED = PausedKey(1, "ops")


async def _gone(owned: OwnedQueue) -> None:
    await eventually(lambda: owned.state is QueueState.GONE)


def _park(owned: OwnedQueue) -> None:
    assert owned.parking is not None
    assert owned.parking.park(QUEUE_CHAIN, by="ops", reason="broken")
    owned.parking.wake()


async def _send_batch(
    client: MemoryClient,
    queue: QueueName,
    copies: list[OutgoingMessage],
    *,
    life: int | None = None,
) -> list[SendReceipt]:
    return [await client.send(queue, each, life=life) for each in copies]


@asynccontextmanager
async def _overtaken(
    brokers: MemoryBrokers, queue: QueueName, us: Upstream
) -> AsyncIterator[tuple[OwnedQueue, ParkingPipeline, asyncio.Event]]:
    """Own *queue* while the record of another proxy, whose lock expired, waits for the event."""
    arrives, waits = asyncio.Event(), asyncio.Event()

    async def stands_still(*_: Any) -> None:
        waits.set()
        await arrives.wait()

    async with upstream(brokers, client_id="zombie@1#1") as zombie:
        zombie.client.before["send"] = stands_still
        late = zombie.own(queue)
        await waits.wait()
        owned, pipeline = await us.owned(queue)
        await eventually(lambda: pipeline.position == len(brokers.logs[queue]))
        assert isinstance(pipeline, ParkingPipeline)
        yield owned, pipeline, arrives
        await eventually(lambda: late.state is not QueueState.ACQUIRING)
        await late.lose("the broker gave the lock to another")


async def _late_own(brokers: MemoryBrokers, queue: QueueName, arrives: asyncio.Event) -> None:
    log = brokers.logs[twin_of(brokers, queue)]
    count = len(log)
    arrives.set()
    await eventually(lambda: len(log) > count)


async def test_an_owner_that_finds_a_late_own_among_its_records_drops_the_queue_and_starts_over(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """P2, P4: its later records would not count, so its parked keys would be forgotten."""
    monkeypatch.setattr(MemoryClient, "send_batch", _send_batch, raising=False)
    brokers, queue = one_queue()
    brokers.logs[queue] = [b"x"] * 10
    copies = queue._replace(topic=parked_topic(BILLING, queue.topic))
    async with upstream(brokers) as us:
        async with _overtaken(brokers, queue, us) as (owned, pipeline, arrives):
            await _late_own(brokers, queue, arrives)
            _park(owned)
            await _gone(owned)
            assert not pipeline.parking.recorded, "the record that lists the key does not count"
            assert not brokers.logs[copies]
        owned, again = await us.owned(queue)
        await eventually(lambda: again.position == 10)
        assert again.jobs.unfinished == 10
        _park(owned)
        await eventually(lambda: again.jobs.unfinished == 0)
        await owned.hand_over()
    async with upstream(brokers, client_id="next@1#1") as us:
        _, after = await us.owned(queue)
        assert list(after.parked) == [QUEUE_CHAIN]
        assert after.position == 10


async def test_a_pause_behind_a_late_own_is_not_confirmed() -> None:
    brokers, queue = one_queue()
    async with upstream(brokers) as us, _overtaken(brokers, queue, us) as (owned, pipeline, at):
        await _late_own(brokers, queue, at)
        pipeline.pause(b"key", PAUSED)
        for _ in range(2):  # also after a second attempt
            with pytest.raises(RemotingError, match="zombie@1#1 as a later owner"):
                await us.context.recorder.record(us.lane, pipeline)
        await _gone(owned)


async def test_an_end_behind_a_late_own_is_not_clean() -> None:
    """P2: the next owner would not know the leases if the records do not name their owner."""
    brokers, queue = one_queue()
    brokers.logs[queue] = [b"x"]
    async with upstream(brokers) as us, _overtaken(brokers, queue, us) as (owned, _, arrives):
        await us.context.recorder.record(us.lane, us.pipeline(queue))
        await _late_own(brokers, queue, arrives)
        us.client.before["unlock"] = once(lambda *_: None)
        await asyncio.wait([owned.hand_over()])
        await _gone(owned)
        last, _ = await us.context.log.last(BILLING, queue)
        assert last is not None
        assert (last.own.owner, last.clean) == ("zombie@1#1", False)


async def test_records_ahead_of_a_late_own_are_kept() -> None:
    """P5: also between the parts of a record; later finishes are repeated."""
    brokers, queue = one_queue()
    brokers.logs[queue] = [b"x"] * 3
    async with upstream(brokers) as us:
        async with _overtaken(brokers, queue, us) as (owned, pipeline, arrives):
            pipeline.pause(b"key", PAUSED)
            assert await us.context.recorder.record(us.lane, pipeline) == 1
            await _late_own(brokers, queue, arrives)
            pipeline.pause(b"other", PAUSED)
            with pytest.raises(RemotingError):
                await us.context.recorder.record(us.lane, pipeline, whole=True)
            await _gone(owned)
        _, again = await us.owned(queue)
        assert list(again.paused) == [b"key"]
        assert again.epoch > pipeline.epoch


async def test_a_late_own_between_the_parts_of_a_snapshot_is_seen() -> None:
    brokers, queue = one_queue()
    async with upstream(brokers) as us:
        owned, pipeline = await us.owned(queue)

        async def in_between(twin: QueueName, _message: OutgoingMessage) -> None:
            if len(brokers.logs[twin]) == 2:
                write(brokers, queue, rival())

        for number in range(9):
            pipeline.pause(b"%d" % number * 20_000, PAUSED)
        us.client.before["send"] = in_between
        with pytest.raises(RemotingError, match="rival@1#1 as a later owner"):
            await us.context.recorder.record(us.lane, pipeline)
        await _gone(owned)


async def test_late_records_of_a_previous_owner_do_no_harm() -> None:
    brokers, queue = one_queue()
    write(brokers, queue, rival())
    async with upstream(brokers) as us:
        _, pipeline = await us.owned(queue)
        write(brokers, queue, *parts(Snapshot(Epoch(0), 0, 0)), Clean(Epoch(0)))
        pipeline.pause(b"key", PAUSED)
        assert await us.context.recorder.record(us.lane, pipeline) == 4
        assert not pipeline.closed


@pytest.mark.parametrize(("period", "lost"), [(0, False), (1, True), (9, True)])
async def test_a_late_own_among_the_records_of_a_twin_counts_by_its_period(
    period: int, lost: bool
) -> None:
    brokers, queue = one_queue()
    brokers.logs[queue] = [b"x"]
    write(brokers, queue, rival())
    async with upstream(brokers) as us:
        owned, pipeline = await us.owned(queue)
        await eventually(lambda: pipeline.ready == 1)
        assert pipeline.epoch == 1
        _park(owned)
        await eventually(lambda: pipeline.jobs.unfinished == 0 and pipeline.twin is not None)
        twin = pipeline.twin
        assert twin is not None
        await us.context.recorder.record(us.lane, twin)
        write(brokers, twin.queue, rival(period))
        if lost:
            with pytest.raises(RemotingError, match="as a later owner"):
                await us.context.recorder.record(us.lane, twin, whole=True)
            await _gone(owned)
        else:
            await us.context.recorder.record(us.lane, twin, whole=True)
            await us.context.recorder.record(us.lane, pipeline, whole=True)
            assert not pipeline.closed


async def test_records_in_between_are_read_again_after_a_failure() -> None:
    brokers, queue = one_queue()
    async with upstream(brokers) as us:
        owned, pipeline = await us.owned(queue)
        twin = twin_of(brokers, queue)
        write(brokers, queue, rival())

        async def no_answer(of: QueueName, *_: Any) -> None:
            if of == twin:
                raise RequestTimeout("no answer")

        us.client.before["pull"] = no_answer
        with pytest.raises(RequestTimeout):
            await us.context.recorder.record(us.lane, pipeline)
        del us.client.before["pull"]
        assert not pipeline.closed
        with pytest.raises(RemotingError, match="as a later owner"):
            await us.context.recorder.record(us.lane, pipeline)
        await _gone(owned)


async def test_no_record_is_sent_under_a_lock_that_is_not_trusted_any_more() -> None:
    """P1: the process was stopped while it read the previous owner's records."""
    brokers, queue = one_queue()
    async with upstream(brokers) as us:

        async def stands_still(*_: Any) -> None:
            await asyncio.sleep(0.05)

        us.client.before["committed_offset"] = stands_still
        owned = us.own(queue, trust_ns=SECOND // 100)
        await _gone(owned)
        assert not brokers.logs[twin_of(brokers, queue)]
        await us.owned(queue)


async def test_a_twin_starts_over_behind_a_record_in_flight(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """P3: a snapshot of lost records would follow the empty one, and count."""
    monkeypatch.setattr(MemoryClient, "send_batch", _send_batch, raising=False)
    brokers, queue = one_queue()
    brokers.logs[queue] = [b"x"] * 3
    async with upstream(brokers) as us:
        owned, pipeline = await us.owned(queue)
        await eventually(lambda: pipeline.position == 3)
        _park(owned)
        await eventually(lambda: pipeline.twin is not None and pipeline.jobs.unfinished == 0)
        twin, arrives, waits = pipeline.twin, asyncio.Event(), asyncio.Event()
        assert twin is not None
        await eventually(lambda: twin.position == 3)

        async def slow(*_: Any) -> None:
            us.client.before.pop("send")
            waits.set()
            await arrives.wait()

        us.client.before["send"] = slow
        recording = spawn(us.context.recorder.record(us.lane, twin, whole=True), name="r")
        await waits.wait()
        assert owned.parking is not None
        owned.parking.lost_tail(1)
        await asyncio.sleep(0.05)
        arrives.set()
        await recording
        await eventually(lambda: pipeline.twin is not None and pipeline.twin is not twin)
        last, _ = await us.context.log.last(BILLING, twin.queue, by_period=True)
        assert last is not None
        assert last.snapshot is not None
        assert (last.snapshot.base, last.snapshot.read) == (1, 1)


async def test_a_late_snapshot_of_ours_is_followed_by_another_one() -> None:
    """P5: its answer was lost; it is stored after the next one, whose deltas build on that."""
    brokers, queue = one_queue()
    async with upstream(brokers) as us:
        _, pipeline = await us.owned(queue)
        late = parts(pipeline.snapshot())
        pipeline.pause(b"key", PAUSED)
        await us.context.recorder.record(us.lane, pipeline)
        write(brokers, queue, *late)
        pipeline.pause(b"other", PAUSED)
        assert await us.context.recorder.record(us.lane, pipeline) == 4, (
            "a delta, and a snapshot again"
        )
        last, _ = await us.context.log.last(BILLING, queue)
        assert last is not None
        assert last.snapshot is not None
        assert (last.damage, set(last.snapshot.paused)) == (None, {b"key", b"other"})
