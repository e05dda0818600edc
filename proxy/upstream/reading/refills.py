"""Reads spilled messages again when their turn comes.

A damaged one is not passed: its key waits, and no other one. The same holds for a bug with one.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from dataclasses import replace
from typing import Self

import structlog

from broker_core.client import PullResult, PullStatus
from broker_core.errors import RemotingError
from broker_core.names import Group
from broker_core.remoting.message import StoredMessage
from broker_core.tasks import spawn
from proxy.core.jobs.refills import Refill, RefillPass, how_many
from proxy.core.jobs.window import Budget
from proxy.core.pipeline.queue_pipeline import QueuePipeline
from proxy.lane.group_lane import GroupLane
from proxy.observe.logs import NoisyLog, queue_log
from proxy.upstream.context import UpstreamContext
from proxy.upstream.reading.queue_reader import DAMAGED_S, is_other_life
from proxy.upstream.records.anchors import shows_another

#: Assumed size of a record while none is in memory: large, to avoid reading too many.
_RECORD_BYTES = 64 << 10
FIRST_BACK_OFF_S, _LONGEST_BACK_OFF_S = 0.1, 1.0
#: Interval at which memory is checked if no signal reports free memory.
_LOOK_AGAIN_S = 1.0

_noisy = NoisyLog(structlog.get_logger("refill"))


class Refills:
    """The refills of all queues of this proxy; one task per queue while it has some."""

    def __init__(self, context: UpstreamContext) -> None:
        self._context = context
        self._wanted: dict[QueuePipeline, list[Refill]] = {}
        self._tasks: set[asyncio.Task[None]] = set()

    def read(self, lane: GroupLane, pipeline: QueuePipeline, refill: Refill) -> None:
        """Read *refill* in the background, then pass it to the lane."""
        if (wanted := self._wanted.get(pipeline)) is not None:
            wanted.append(refill)
            return
        self._wanted[pipeline] = [refill]
        task = spawn(self._serve(lane, pipeline), name=f"refill {pipeline.queue}")
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    def tasks(self) -> set[asyncio.Task[None]]:
        """Return the running tasks."""
        return set(self._tasks)

    async def _serve(self, lane: GroupLane, pipeline: QueuePipeline) -> None:
        wanted = self._wanted[pipeline]
        reader = _Reader(self._context, lane.name, pipeline)
        memory = pipeline.jobs.window.memory
        try:
            while wanted and not pipeline.closed:
                await self._memory_for(pipeline)
                taken = how_many(wanted, reader.record_bytes, memory_bytes=memory.left)
                now, wanted[:taken] = wanted[:taken], []
                for refill in await self._pass(lane, pipeline, reader, now):
                    await self._pass(lane, pipeline, reader, [refill])
        finally:
            del self._wanted[pipeline]

    async def _pass(
        self, lane: GroupLane, pipeline: QueuePipeline, reader: _Reader, now: list[Refill]
    ) -> list[Refill]:
        """Read *now* and pass each of them on. Return those to be read one by one, because a bug
        with one of several ended the pass.
        """
        left = {refill.offsets[0]: refill for refill in now}

        def on_damage(refill: Refill, result: PullResult) -> None:
            self._wait_at_damage(lane, pipeline, refill, result)
            left.pop(refill.offsets[0], None)

        try:
            with _Reserved(pipeline.jobs.window.memory, reader.record_bytes, now) as reserved:
                async for refill, messages in reader.read(now, on_damage):
                    left.pop(refill.offsets[0], None)
                    reserved.release(refill)
                    self._pass_on(lane, pipeline, refill, messages)
                    del messages  # they count as long as the pipeline has them
        except Exception as error:
            if len(now) > 1:
                return list(left.values())
            self._failed(lane, pipeline, now[0], error)
        return []

    def _pass_on(
        self,
        lane: GroupLane,
        pipeline: QueuePipeline,
        refill: Refill,
        messages: list[StoredMessage],
    ) -> None:
        try:
            lane.refilled(pipeline, refill, messages)
        except Exception as error:
            self._failed(lane, pipeline, refill, error)

    def _failed(
        self, lane: GroupLane, pipeline: QueuePipeline, refill: Refill, error: Exception
    ) -> None:
        """Log a bug with *refill*, which no other one shares, and read it again later."""
        queue_log("refill", group=lane.name, queue=pipeline.queue).error(
            "spilled messages of a key not taken; trying again",
            first_offset=refill.offsets[0],
            reason=str(error),
            exc_info=error,
        )
        self._read_later(lane, pipeline, refill)

    def _wait_at_damage(
        self, lane: GroupLane, pipeline: QueuePipeline, refill: Refill, result: PullResult
    ) -> None:
        """Read *refill*, whose message is damaged, again from time to time."""
        if not pipeline.wants(refill):
            return
        if pipeline.waits_at_damage(refill, result.damage, until=result.next_offset):
            queue_log("refill", group=lane.name, queue=pipeline.queue).error(
                "a key waits at a damaged message", reason=result.damage
            )
        self._read_later(lane, pipeline, refill)

    def _read_later(self, lane: GroupLane, pipeline: QueuePipeline, refill: Refill) -> None:
        def again() -> None:
            if pipeline.wants(refill):
                self.read(lane, pipeline, refill)
            else:
                pipeline.waits_no_more(refill)

        asyncio.get_running_loop().call_later(DAMAGED_S, again)

    async def _memory_for(self, pipeline: QueuePipeline) -> None:
        """Wait while memory is full, and spill undeliverable messages in all queues.

        A queue with nothing to offer does not wait: others may hold the memory forever.
        """
        memory = pipeline.jobs.window.memory

        def may_read() -> bool:
            if memory.left or pipeline.closed:
                return True
            with _noisy.confined("relief", "no memory freed for spilled messages; trying again"):
                memory.relieve()
            return memory.left > 0 or not pipeline.offers

        while not may_read():
            await self._context.settled.wait(_LOOK_AGAIN_S, until=may_read)

    async def fetch(
        self, lane: GroupLane, pipeline: QueuePipeline, offsets: list[int]
    ) -> dict[int, StoredMessage]:
        """Return the messages at the rising *offsets* (at least one) that still exist undamaged.

        Empty if the ownership of *pipeline* ends meanwhile.
        """
        reader = _Reader(self._context, lane.name, pipeline)
        found: dict[int, StoredMessage] = {}
        async for _, messages in reader.read([Refill(b"", tuple(offsets))]):
            found |= {message.queue_offset: message for message in messages}
        return found


class _Reserved:
    """Memory reserved for *refills* of records of *record_bytes*, as far as available, until they
    are read.
    """

    def __init__(self, memory: Budget, record_bytes: int, refills: list[Refill]) -> None:
        self._memory = memory
        jobs = sum(len(refill.offsets) for refill in refills)
        self._bytes_each = min(record_bytes, memory.left // jobs)
        self._bytes = self._bytes_each * jobs

    def __enter__(self) -> Self:
        self._memory.take(self._bytes)
        return self

    def release(self, refill: Refill) -> None:
        """Release the reservation of *refill*, whose messages now count themselves."""
        came = self._bytes_each * len(refill.offsets)
        self._bytes -= came
        self._memory.give_back(came)

    def __exit__(self, *_: object) -> None:
        self._memory.give_back(self._bytes)


class _Reader:
    """Reads the refills of one queue and tracks the size of its records."""

    def __init__(self, context: UpstreamContext, group: Group, pipeline: QueuePipeline) -> None:
        self._client = context.client
        self._group = group
        self._pipeline = pipeline
        self._log = queue_log("refill", group=group, queue=pipeline.queue)
        self.record_bytes = pipeline.jobs.window.job_bytes or _RECORD_BYTES

    async def read(
        self,
        refills: list[Refill],
        on_damage: Callable[[Refill, PullResult], None] | None = None,
    ) -> AsyncIterator[tuple[Refill, list[StoredMessage]]]:
        """Yield each of *refills* with its remaining messages, once they are read; ends with the
        pipeline.

        One with a damaged message ends before it. If that is its first one, *on_damage* is called
        instead, with a refill of that message alone; None: damaged messages are left out.
        """
        under_way = RefillPass(refills)
        back_off_s = FIRST_BACK_OFF_S
        while (due := under_way.next_read(self.record_bytes)) and not self._pipeline.closed:
            offset, how_many_messages = due
            try:
                result = await self._client.pull(
                    self._pipeline.queue,
                    group=self._group,
                    offset=offset,
                    max_messages=how_many_messages,
                    suspend_ms=0,
                )
                if is_other_life(self._pipeline, result.life):
                    return  # the queue's reader notices it and ends the period
                self._check_life(result, offset)
                if result.status is PullStatus.NO_NEW:
                    # Not deleted: replicas of a master that restarted have yet to confirm it, say.
                    raise RemotingError(f"the broker does not show offset {offset} yet")
            except Exception as error:  # including bugs: no key may stop silently
                self._log.warning(
                    "spilled messages not read; retrying",
                    reason=str(error),
                    exc_info=None if isinstance(error, RemotingError) else error,
                )
                await asyncio.sleep(back_off_s)
                back_off_s = min(back_off_s * 2, _LONGEST_BACK_OFF_S)
                continue
            back_off_s = FIRST_BACK_OFF_S
            if on_damage is not None and result.status is PullStatus.DAMAGED:
                for refill, messages, damaged in under_way.met_damage(result.next_offset):
                    if refill.offsets:
                        self._report_deleted(refill, messages)
                        yield refill, messages
                    else:
                        on_damage(replace(refill, offsets=(damaged,)), result)
                    del messages
                continue
            if result.messages:
                self.record_bytes = sum(m.size for m in result.messages) // len(result.messages)
            for refill, messages in under_way.was_read(result.messages, result.next_offset):
                self._report_deleted(refill, messages)
                yield refill, messages
                del messages
            del result

    def _check_life(self, result: PullResult, offset: int) -> None:
        """Let the queue's reader end the period if *result*, of a pull at *offset*, is of another
        life of the topic, at a broker that does not report lives. Raises RemotingError then.
        """
        pipeline = self._pipeline
        if pipeline.life is not None or (anchor := pipeline.anchor) is None:
            return
        if shows_another(result, anchor, asked=offset):
            pipeline.doubt_life()
            raise RemotingError(
                f"offset {offset} has another message: the topic was deleted and created again"
            )

    def _report_deleted(self, refill: Refill, messages: list[StoredMessage]) -> None:
        if len(messages) < len(refill.offsets):
            there = {message.queue_offset for message in messages}
            gone = [offset for offset in refill.offsets if offset not in there]
            self._log.error(
                "spilled messages were deleted before their turn came",
                lost=len(gone),
                first_offset=gone[0],
                last_offset=gone[-1],
            )
