"""Reads one owned queue in its order, paused while the window is full.

It waits for messages in the read session of its broker, together with all other queues, or by long
polls of its own at brokers without sessions.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from contextlib import suppress

import structlog

from broker_core.batch_wait import BatchWait
from broker_core.client import PullResult, PullStatus
from broker_core.client.read_sessions import QueueReading
from broker_core.clock import now_ns
from broker_core.errors import BrokerError, RemotingError
from broker_core.remoting.codes import ResponseCode
from proxy.core.jobs.starvation import PATIENCE_NS, Patience
from proxy.core.pipeline.queue_pipeline import QueuePipeline
from proxy.core.records.record import Anchor
from proxy.lane.group_lane import GroupLane
from proxy.observe.logs import NoisyLog, queue_log
from proxy.upstream.context import UpstreamContext
from proxy.upstream.pace import interval_s
from proxy.upstream.records.anchors import is_another, is_another_now

_MAX_MESSAGES = 256
#: Times that a broker holds a pull without messages, in s, and such pulls per second in all.
_SUSPEND_S, _LONGEST_SUSPEND_S, _PULLS_PER_S = 15.0, 600.0, 12.0
#: Bytes that a broker may return at once for all queues: free memory, within these bounds.
_LEAST_BYTES, _MOST_BYTES = 64 << 10, 1 << 20
_FIRST_BACK_OFF_S, _LONGEST_BACK_OFF_S = 0.1, 1.0
_LOOK_AGAIN_S = 1.0
#: Reads that fail for as long are shown: shorter failures are those of a restart or a new leader.
_FAILS_NS = 5_000_000_000
#: Until the broker is asked again for a damaged message.
DAMAGED_S = 5.0
#: After that time without an answer, a queue may be in another life, grown past the read position.
_UNSEEN_NS = 1_000_000_000
#: Interval at which the life of a queue is checked that is not read for lack of room.
_ASK_LIFE_NS = 2_000_000_000
_FREED_WITHIN_S = 0.005
#: Messages expected during a wait for further ones that make it worth while: a pull costs as much
#: as many messages, but the wait is for one queue alone.
_WORTH = 2
_MOVED_BACK = "the broker's queue ends below the read position: it was reset or lost its tail"

_noisy = NoisyLog(structlog.get_logger("reader"))


async def read_queue(
    context: UpstreamContext,
    lane: GroupLane,
    pipeline: QueuePipeline,
    *,
    on_reset: Callable[[int], None],
    on_new_life: Callable[[], None],
    on_gone: Callable[[], None] = lambda: None,
) -> None:
    """Read until cancelled, or until the queue starts over.

    *on_reset* receives the end of a queue that has lost messages; *on_new_life* is called if the
    topic was deleted and created again, *on_gone* whenever the broker answers that it has no such
    topic: reading continues.
    """
    sessions = context.sessions
    reading = None if sessions is None else sessions.reading(lane.name, pipeline.queue)
    context.reads.begin()
    try:
        await _read(
            *(context, lane, pipeline, reading),
            on_reset=on_reset,
            on_new_life=on_new_life,
            on_gone=on_gone,
        )
    finally:
        context.reads.end()
        if reading is not None:
            reading.end()


async def _read(
    context: UpstreamContext,
    lane: GroupLane,
    pipeline: QueuePipeline,
    reading: QueueReading | None,
    *,
    on_reset: Callable[[int], None],
    on_new_life: Callable[[], None],
    on_gone: Callable[[], None],
) -> None:
    log = queue_log("reader", group=lane.name, queue=pipeline.queue)
    back_off_s = _FIRST_BACK_OFF_S
    patience = Patience()
    batch_wait = BatchWait(context.settings.limits.batch_wait_ms, worth=_WORTH)
    doubtful = False  # the queue may have begun another life while it was not read
    seen_ns = now_ns()  # time of the last answer
    fails_ns: int | None = None  # since when all reads have failed

    while True:
        room = await _room(context, lane, pipeline, patience)
        if not room:
            on_new_life()
            return
        asked_by, asked_at = pipeline.rules.tags, pipeline.position
        room = min(room, _MAX_MESSAGES)
        # A held read is answered when there is something to read; a doubt needs an answer now.
        now = doubtful and pipeline.life is None
        result = await _pulled(
            context,
            lane,
            pipeline,
            None if now else reading,
            max_messages=room,
            batch_wait=None if now else batch_wait,
            on_gone=on_gone,
        )
        if isinstance(result, str):
            doubtful = True
            fails_ns = now_ns() if fails_ns is None else fails_ns
            if now_ns() - fails_ns >= _FAILS_NS:
                pipeline.read_fails(result)
            await asyncio.sleep(back_off_s)
            back_off_s = min(back_off_s * 2, _LONGEST_BACK_OFF_S)
            continue
        back_off_s, fails_ns = _FIRST_BACK_OFF_S, None
        pipeline.read_fails("")
        unseen_ns, seen_ns = now_ns() - seen_ns, now_ns()
        if result.messages and unseen_ns >= _UNSEEN_NS:
            doubtful = True
        if await _is_other_life(context, lane, pipeline, result, doubtful=doubtful):
            on_new_life()
            return
        doubtful = False
        pipeline.life_checked()
        if pipeline.position != asked_at:
            continue  # an operator skipped damaged messages meanwhile
        if result.status is PullStatus.DAMAGED:
            if pipeline.damaged != result.damage:
                log.error("reading stops at damaged messages", reason=result.damage)
                pipeline.stands_at_damage(result.damage, until=result.next_offset)
            await asyncio.sleep(DAMAGED_S)
            continue
        pipeline.stands_at_damage("", until=0)
        if pipeline.rules.tags != asked_by:
            del result
            continue  # the broker left out messages that are wanted now
        if _is_moved_back(pipeline, result):
            log.error(_MOVED_BACK, position=pipeline.position, end=result.next_offset)
            on_reset(result.next_offset)
            return
        _count_left_out(
            lane, pipeline, result, by_tags=asked_by is not None and not _is_illegal(result)
        )
        pipeline.ends_at(result.max_offset)
        if result.messages and pipeline.life is None:
            newest = result.messages[-1]
            pipeline.anchored(Anchor(newest.queue_offset, newest.physical_offset))
            del newest
        lane.on_messages(pipeline, result.messages, next_offset=result.next_offset)
        del result  # otherwise its messages would stay in memory, uncounted, until the next answer


def _is_illegal(result: PullResult) -> bool:
    return result.status is PullStatus.OFFSET_ILLEGAL


def _is_moved_back(pipeline: QueuePipeline, result: PullResult) -> bool:
    return _is_illegal(result) and result.next_offset < pipeline.position


async def _is_other_life(
    context: UpstreamContext,
    lane: GroupLane,
    pipeline: QueuePipeline,
    result: PullResult,
    *,
    doubtful: bool,
) -> bool:
    """Return True if *result* is from another life of the topic.

    A broker without lives is checked by the log offset of a message when it moved back, after a
    refill found another message, and (*doubtful*) after it did not answer or was not asked.
    """
    if is_other_life(pipeline, result.life):
        return True
    moved_back = _is_moved_back(pipeline, result)
    doubtful = doubtful or pipeline.life_in_doubt
    if (anchor := pipeline.anchor) is None or not (doubtful or moved_back):
        return False
    end = result.next_offset if moved_back else None
    return await is_another(context.client, lane.name, pipeline.queue, anchor, end=end)


async def _pulled(
    context: UpstreamContext,
    lane: GroupLane,
    pipeline: QueuePipeline,
    reading: QueueReading | None,
    *,
    max_messages: int,
    batch_wait: BatchWait | None,
    on_gone: Callable[[], None],
) -> PullResult | str:
    """Return the broker's messages from the read position on; the reason, with a warning, if it
    fails.

    Do not wait for messages without *batch_wait*, which tells whether a pull waits for several.
    """
    result: PullResult | None = None
    try:
        if reading is not None:
            result = await reading.next(
                offset=pipeline.position,
                max_messages=max_messages,
                max_bytes=min(max(context.memory.left, _LEAST_BYTES), _MOST_BYTES),
                tags=pipeline.rules.tag_expression,
                life=pipeline.life,
            )
        if result is None:
            if batch_wait is not None:
                await _gather(lane, pipeline, batch_wait, room=max_messages)
            result = await context.client.pull(
                pipeline.queue,
                group=lane.name,
                offset=pipeline.position,
                max_messages=max_messages,
                suspend_ms=0 if batch_wait is None else _suspend_ms(context),
                tags=pipeline.rules.tag_expression,
                life=pipeline.life,
            )
            if batch_wait is not None:
                batch_wait.came(len(result.messages), now_ns())
    except RemotingError as error:
        if isinstance(error, BrokerError) and error.code == ResponseCode.TOPIC_NOT_EXIST:
            on_gone()
        _noisy.warning(
            f"{lane.name} {pipeline.queue.broker}",  # one warning per broker and group
            "read failed; retrying",
            group=lane.name,
            queue=str(pipeline.queue),
            reason=str(error),
        )
        return str(error)
    return result


async def _gather(
    lane: GroupLane, pipeline: QueuePipeline, batch_wait: BatchWait, *, room: int
) -> None:
    """Let messages gather at the broker before a pull, if they come fast."""
    backlog = max(0, pipeline.end_offset - pipeline.position)
    if wait_ns := batch_wait.begin(now_ns(), ready=backlog, room=room):
        lane.counts[pipeline.topic].batch_waited("pull")
        await asyncio.sleep(wait_ns / 1e9)


def _suspend_ms(context: UpstreamContext) -> int:
    """Return the time for which a broker holds the pull of one queue."""
    suspend_s = interval_s(
        context.reads.number, least_s=_SUSPEND_S, most_s=_LONGEST_SUSPEND_S, per_s=_PULLS_PER_S
    )
    return int(suspend_s * 1000)


async def _room(
    context: UpstreamContext, lane: GroupLane, pipeline: QueuePipeline, patience: Patience
) -> int:
    """Return how many messages may be read, waiting for room; 0 if the topic begins
    another life.
    """

    def look() -> int:
        now, oldest = now_ns(), pipeline.committable
        stuck = patience.stands(oldest, now) and pipeline.oldest_is_out
        starves, room = lane.starves(pipeline, stuck=stuck), pipeline.room()
        read_past = patience.over(
            in_vain=starves and not room,
            oldest=oldest,
            position=pipeline.position,
            now_ns=now,
        )
        if read_past:
            room = _room_past(context, pipeline)
        if pipeline.refills_due:
            lane.apply_effects(pipeline, pipeline.take_refills())
        return room

    look_again_s = PATIENCE_NS / 1e9
    asked_ns = now_ns()
    while not (room := look()):
        await context.settled.wait(look_again_s, until=lambda: look() > 0)
        look_again_s = _LOOK_AGAIN_S
        if now_ns() - asked_ns >= _ASK_LIFE_NS:  # meanwhile no read shows it
            asked_ns = now_ns()
            with suppress(RemotingError):
                if await _is_in_other_life(context, lane, pipeline):
                    return 0
    return room


async def _is_in_other_life(
    context: UpstreamContext, lane: GroupLane, pipeline: QueuePipeline
) -> bool:
    """Return True if the topic is in another life, without a read. Raises RemotingError."""
    if pipeline.life is None and (anchor := pipeline.anchor) is not None:
        return await is_another_now(context.client, lane.name, pipeline.queue, anchor)
    return is_other_life(pipeline, await context.client.life(pipeline.queue))


def is_other_life(pipeline: QueuePipeline, life: int | None) -> bool:
    """Return True if the topic, now in *life*, was created again since *pipeline*'s
    period began.
    """
    return life is not None and pipeline.life is not None and life != pipeline.life


def _room_past(context: UpstreamContext, pipeline: QueuePipeline) -> int:
    """Return the room for clients that wait in vain; it may free memory for other queues."""
    memory = pipeline.jobs.window.memory
    before = memory.used
    room = pipeline.room(demand=True)
    if memory.used < before:
        context.settled.fire_soon(_FREED_WITHIN_S)
    return room


def _count_left_out(
    lane: GroupLane, pipeline: QueuePipeline, result: PullResult, *, by_tags: bool
) -> None:
    """Count messages left out by the broker: by their tags, or (unless *by_tags*) by retention.

    Apache RocketMQ first deletes a file of its log and then corrects its queues: until then its
    answers begin after the deleted messages.
    """
    left_out = result.next_offset - pipeline.position - len(result.messages)
    if left_out <= 0:
        return
    if by_tags:
        lane.passed_over(pipeline, left_out)
        return
    lost = 0
    for gap in _gaps(pipeline.position, result):
        unread = pipeline.jobs.unread_within(gap.start, gap.stop)
        lane.deleted_unread(pipeline, gap, lost=unread)
        lost += unread
    # otherwise an earlier owner finished them, or spilled them: then their refill reports it
    if lost:
        queue_log("reader", group=lane.name, queue=pipeline.queue).error(
            "messages were deleted by retention before this group read them",
            lost=lost,
            first_offset=pipeline.position,
            next_offset=result.next_offset,
        )


def _gaps(position: int, result: PullResult) -> Iterator[range]:
    """Yield the offsets from *position* on that *result* leaves out."""
    for offset in (*(message.queue_offset for message in result.messages), result.next_offset):
        if position < offset:
            yield range(position, offset)
        position = offset + 1
