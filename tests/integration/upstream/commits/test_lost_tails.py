"""Owned queues whose position changes, because a broker lost messages or an operator reset the
group.

Real upstream components on brokers in memory.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from functools import partial
from itertools import count
from typing import Any

import pytest
from structlog.testing import capture_logs

from broker_core.clock import now_ns
from broker_core.errors import ConnectionLost
from broker_core.names import QueueName
from broker_core.tasks import cancel_and_wait, spawn
from proxy.core.keys.ids import Epoch
from proxy.core.leases.lease_book import Holder
from proxy.core.pipeline.queue_pipeline import QueuePipeline
from proxy.core.records.parked_key import ParkedKey, parked_topic
from proxy.core.records.paused_key import PausedKey
from proxy.core.records.record import LAST_SERIAL, Clean, Snapshot
from proxy.core.records.snapshot_parts import parts
from proxy.upstream.ownership.owned_queue import QueueState
from proxy.upstream.ownership.resets import FreeReset, LostMeanwhile, Overtaken, Place, store_reset
from proxy.upstream.records.recorder import RecordedAsAnothers
from testkit.eventually import eventually
from tests.integration.upstream.memory_broker import MemoryBrokers
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


async def test_a_queue_that_lost_its_tail_starts_over_despite_failures() -> None:
    """P3: a commit of the earlier reads would let the group skip new messages."""
    brokers, queue = one_queue()
    brokers.logs[queue] = [b"x"] * 9
    brokers.committed[BILLING, queue] = 8
    write(brokers, queue, rival(), *parts(Snapshot(Epoch(0), 8, 8)), Clean(Epoch(0)))
    async with upstream(brokers) as us:
        brokers.logs[queue] = [b"x"] * 5

        def fails(*_: Any) -> None:
            raise ConnectionLost("gone")

        us.client.before["commit_offset"] = once(fails)
        committing = spawn(us.committer.run([us.lane]), name="committer")
        owned = us.own(queue)
        await eventually(lambda: owned.state is QueueState.GONE)
        await cancel_and_wait(committing)

        assert brokers.committed[BILLING, queue] == 5
        last, _ = await us.context.log.last(BILLING, queue)
        assert last is not None
        assert last.snapshot is not None
        assert replace(last.snapshot, keys=None) == Snapshot(last.epoch, 5, 5, moved_from=8)


async def test_the_rest_of_a_queue_that_lost_its_tail_is_not_skipped() -> None:
    """P3, P5: unfinished messages are delivered again, finished ones are not, and parked keys stay
    parked.

    Also if retention has deleted the record that began the period.
    """
    brokers, queue = one_queue()
    brokers.logs[queue] = [b"x"] * 9
    parked = {b"other": ParkedKey(1, 0)}
    known = Snapshot(Epoch(0), 2, 9, (2, 4, 7), attempts={4: 2, 7: 2}, parked=parked)
    write(brokers, queue, rival(), *parts(known), Clean(Epoch(0)))
    async with upstream(brokers) as us:
        owned, pipeline = await us.owned(queue)
        await eventually(lambda: pipeline.jobs.unfinished == 3)
        brokers.logs[queue] = [b"x"] * 5
        brokers.deleted[twin_of(brokers, queue)] = pipeline.epoch + 1
        owned.lost_tail(5)
        await eventually(lambda: owned.state is QueueState.GONE)

        last, _ = await us.context.log.last(BILLING, queue)
        assert last is not None
        assert (last.epoch, last.snapshot_at) == (pipeline.epoch, pipeline.epoch + 1)
        _, again = await us.owned(queue)
        await eventually(lambda: again.jobs.unfinished == 2)
        brokers.logs[queue].append(b"new")
        left = again.snapshot()
        assert (left.base, left.read, left.unfinished) == (2, 5, (2, 4))
        assert (left.attempts, left.parked) == ({4: 2}, parked)


async def test_a_reset_without_effect_is_not_reported_as_done() -> None:
    """P6: an ``own`` came late, so the next owner would skip the record of the reset."""
    brokers, queue = one_queue()
    brokers.logs[queue] = [b"x"] * 9
    async with upstream(brokers) as us:
        owned, pipeline = await us.owned(queue)
        await eventually(lambda: pipeline.position == 9)
        write(brokers, queue, rival())
        with pytest.raises(Overtaken, match="queue broker-a_0 name a later owner"):
            await owned.reset_to(7)

        assert owned.state is QueueState.GONE
        assert (BILLING, queue) not in brokers.committed
        _, again = await us.owned(queue)
        await eventually(lambda: again.position == 9)
        assert again.committable == 0
        assert again.epoch > pipeline.epoch


async def test_a_lost_tail_that_a_later_owner_must_notice_is_no_failure() -> None:
    brokers, queue = one_queue()
    brokers.logs[queue] = [b"x"] * 9
    async with upstream(brokers) as us:
        owned, pipeline = await us.owned(queue)
        await eventually(lambda: pipeline.position == 9)
        write(brokers, queue, rival())
        with capture_logs() as logs:
            owned.lost_tail(5)
            await eventually(lambda: owned.state is QueueState.GONE)
    said = [(each["log_level"], each["event"]) for each in logs]
    assert ("warning", "the next owner must notice that the queue is shorter") in said
    assert "error" not in dict(said)


@pytest.mark.failing_tasks
async def test_a_queue_lost_during_a_reset_is_an_error_in_words() -> None:
    """Otherwise the request ends as cancelled, without any answer."""
    brokers, queue = one_queue()
    brokers.logs[queue] = [b"x"] * 9
    async with upstream(brokers) as us:
        owned, pipeline = await us.owned(queue)
        await eventually(lambda: pipeline.position == 9)
        asked, never = asyncio.Event(), asyncio.Event()

        async def stands_still(*_: object) -> None:
            asked.set()
            await never.wait()

        us.client.before["send"] = stands_still
        reset = spawn(owned.reset_to(7), name="reset by a test")
        await asked.wait()
        await owned.lose("another proxy has the lock")
        with pytest.raises(LostMeanwhile, match="lost queue broker-a_0 during the reset"):
            await reset


async def test_a_reset_is_stored_again_after_a_part_of_an_earlier_attempt_came_between() -> None:
    """The records between the parts do not describe the reset."""
    brokers, queue = one_queue()
    write(brokers, queue, rival(), *parts(Snapshot(Epoch(0), 8, 8)))
    moved = Snapshot(Epoch(0), 2, 90_002, tuple(range(2, 90_002, 2)))
    pieces = parts(moved, rival(), serial=LAST_SERIAL)
    assert len(pieces) == 3
    async with upstream(brokers) as us:
        sends = count()

        async def late(*_: Any) -> None:
            if next(sends) == 2:
                write(brokers, queue, pieces[0])

        us.client.before["send"] = late
        us.client.before["commit_offset"] = _stands_in_the_records(us, queue, moved)
        while not await store_reset(us.context, BILLING, queue, moved, rival()):
            pass
        assert brokers.committed[BILLING, queue] == 2


def _stands_in_the_records(us: Upstream, queue: QueueName, moved: Snapshot) -> Any:
    async def look(*_: Any) -> None:
        last, _ = await us.context.log.last(BILLING, queue)
        assert last is not None
        assert last.snapshot == moved

    return look


HOUR_MS = 3_600_000


def _left_with_a_lease() -> tuple[MemoryBrokers, QueueName]:
    """Return a queue handed over while a client had message 3, for at most an hour."""
    brokers, queue = one_queue()
    brokers.logs[queue] = [b"x"] * 9
    left = Snapshot(Epoch(0), 3, 9, (3, 4), leases={3: HOUR_MS})
    write(brokers, queue, rival(), *parts(left), Clean(Epoch(0)))
    return brokers, queue


async def _waits_for_it(us: Upstream, queue: QueueName) -> None:
    """P2: no client gets an earlier message of that key while the first client may have it."""
    assert us.client.asked["unlock"] == 0
    last, _ = await us.context.log.last(BILLING, queue)
    assert last is not None
    assert last.snapshot is not None
    assert not last.clean
    wait_ns = last.wait_ns(broker_start_ms=1, broker_lock_expiry_s=10)
    assert wait_ns > (HOUR_MS - 60_000) * 1_000_000


async def test_a_reset_queue_waits_for_leases_of_the_previous_owner() -> None:
    brokers, queue = _left_with_a_lease()
    async with upstream(brokers) as us:
        owned, _ = await us.owned(queue)
        await owned.reset_to(1)
        assert owned.hold_until_ns > now_ns() + 3000 * SECOND
        await _waits_for_it(us, queue)


async def test_a_queue_that_lost_its_tail_waits_for_leases_of_the_previous_owner() -> None:
    brokers, queue = _left_with_a_lease()
    async with upstream(brokers) as us:
        owned, _ = await us.owned(queue)
        owned.lost_tail(4)
        await eventually(lambda: owned.state is QueueState.GONE)
        await _waits_for_it(us, queue)


async def test_a_reset_queue_without_an_owner_waits_for_leases_of_the_previous_one() -> None:
    @asynccontextmanager
    async def to_the_first(place: Place) -> AsyncIterator[tuple[int, dict[str, object]]]:
        yield 1, {}

    brokers, queue = _left_with_a_lease()
    async with upstream(brokers) as us:
        await FreeReset(us.context, us.lane, queue, lock_requests=us.lock_requests).run(
            to_the_first
        )
        assert brokers.committed[BILLING, queue] == 1
        await _waits_for_it(us, queue)


async def test_new_messages_of_a_parked_key_are_no_repeats_of_those_that_were_lost() -> None:
    """P3: the parked twin recognizes repeats by their offsets, and would skip the new messages."""
    brokers, queue = one_queue()
    brokers.logs[queue] = [b"x"] * 9
    copies = brokers.add_topic(parked_topic(BILLING, queue.topic), 1)[0]
    known = Snapshot(Epoch(0), 9, 9, parked={b"k": ParkedKey(7, 0), b"other": ParkedKey(1, 0)})
    write(brokers, queue, rival(), *parts(known), Clean(Epoch(0)))
    copied = Snapshot(Epoch(0), 0, 0, parked={b"k": ParkedKey(9, 0), b"other": ParkedKey(2, 0)})
    write(brokers, copies, rival(), *parts(copied), Clean(Epoch(0)))
    async with upstream(brokers) as us:
        brokers.logs[queue] = [b"x"] * 5
        owned = us.own(queue)
        await eventually(lambda: owned.state is QueueState.GONE)

        for where, others in ((queue, 1), (copies, 2)):
            last, _ = await us.context.log.last(BILLING, where, by_period=where == copies)
            assert last is not None
            assert last.snapshot is not None
            firsts = {key: each.first for key, each in last.snapshot.parked.items()}
            assert firsts == {b"k": 5, b"other": others}


async def test_an_owner_whose_own_record_is_gone_ends_its_period() -> None:
    """Its epoch is an offset that another owner may get."""
    brokers, queue = one_queue()
    brokers.logs[queue] = [b"x"] * 9
    write(brokers, queue, rival(), Clean(Epoch(0)))
    async with upstream(brokers) as us:
        owned, pipeline = await us.owned(queue)
        await us.context.recorder.record(us.lane, pipeline, whole=True)
        del brokers.logs[twin_of(brokers, queue)][pipeline.epoch :]
        with pytest.raises(RecordedAsAnothers, match="end at 2, and ended at 4 before"):
            await us.context.recorder.record(us.lane, pipeline, whole=True)
        await eventually(lambda: owned.state is QueueState.GONE)
        _, again = await us.owned(queue)
        assert again.epoch > pipeline.epoch


async def test_an_owner_in_place_of_lost_records_ends_the_period() -> None:
    """Its record lies where the lost ones were, so there is no gap between the owner's records."""
    brokers, queue = one_queue()
    brokers.logs[queue] = [b"x"] * 9
    async with upstream(brokers) as us:
        owned, pipeline = await us.owned(queue)
        await eventually(lambda: pipeline.position == 9)
        for _ in range(3):
            await us.context.recorder.record(us.lane, pipeline, whole=True)
        del brokers.logs[twin_of(brokers, queue)][pipeline.epoch + 1 :]
        write(brokers, queue, rival())
        with pytest.raises(RecordedAsAnothers, match=r"name .* as a later owner"):
            await us.context.recorder.record(us.lane, pipeline, whole=True)
        await eventually(lambda: owned.state is QueueState.GONE)


async def test_records_that_build_on_lost_ones_are_written_again() -> None:
    brokers, queue = one_queue()
    brokers.logs[queue] = [b"x"] * 9
    async with upstream(brokers) as us:
        _, pipeline = await us.owned(queue)
        await eventually(lambda: pipeline.position == 9)
        await us.context.recorder.record(us.lane, pipeline, whole=True)
        del brokers.logs[twin_of(brokers, queue)][pipeline.epoch + 1 :]
        pipeline.pause(b"k", PausedKey(1, "ada", "so"))
        await us.context.recorder.record(us.lane, pipeline)
        last, _ = await us.context.log.last(BILLING, queue)
        assert last is not None
        assert last.damage is None
        assert last.snapshot is not None
        assert (last.snapshot.read, set(last.snapshot.paused)) == (9, {b"k"})


def _is_ready(pipeline: QueuePipeline) -> bool:
    return pipeline.ready > 0


async def test_no_two_periods_share_names_of_leases() -> None:
    """Even if both periods have the same epoch, because the first one's record was lost."""
    brokers, queue = one_queue()
    brokers.logs[queue] = [b"x"] * 9
    names: set[int] = set()
    epochs: list[int] = []
    for _ in range(2):
        async with upstream(brokers) as us:
            _, pipeline = await us.owned(queue)
            await eventually(partial(_is_ready, pipeline))
            holder = Holder(1, "c", "c")
            leases = pipeline.lease(max_jobs=9, max_bytes=9999, now_ns=now_ns(), holder=holder)
            assert leases
            assert names.isdisjoint(each.lease_id for each in leases)
            names |= {each.lease_id for each in leases}
            epochs.append(pipeline.epoch)
        brokers.logs[twin_of(brokers, queue)].clear()
        brokers.committed.clear()
        brokers.holders.clear()
    assert epochs == [0, 0]
