"""Stores the dead letters of jobs that are given up; each job finishes once its copy is stored."""

from __future__ import annotations

import asyncio
from typing import Any

import structlog

from broker_core.clock import now_ns, wall_ms
from broker_core.errors import BrokerError, RemotingError
from broker_core.names import DEAD_LETTER_PREFIX, Group, QueueName, Topic
from broker_core.remoting.codes import ResponseCode
from broker_core.remoting.message import OutgoingMessage
from broker_core.tasks import spawn
from proxy.core.dead_letters.copies import (
    ATTEMPTS,
    CHAIN,
    FIRST_FAILURE,
    LAST_FAILURE,
    ORDER_KEY,
    ORIGIN_EPOCH,
    ORIGIN_ID,
    ORIGIN_OFFSET,
    ORIGIN_QUEUE,
    ORIGIN_TOPIC,
    REASON,
    Form,
    copied,
    packed_key,
    topic_in_life,
)
from proxy.core.jobs.chains import Job
from proxy.core.keys.order_key import key_text
from proxy.core.pipeline.queue_pipeline import QueuePipeline
from proxy.lane.group_lane import GroupLane
from proxy.upstream.context import UpstreamContext
from proxy.upstream.records.durable import check_on_disk

_log = structlog.get_logger("dead-letters")

_FIRST_BACK_OFF_S, _LONGEST_BACK_OFF_S = 0.1, 5.0
#: Longer reasons and keys are cut: the properties of a message hold at most 32,767 bytes.
_MAX_TEXT = 1024


def dead_letter_topic(group: Group) -> Topic:
    """Return ``%DLQ%group``, as in RocketMQ."""
    return Topic(DEAD_LETTER_PREFIX + group)


class DeadLetters:
    """Sends dead letters until the broker stores them or the queue is lost."""

    def __init__(self, context: UpstreamContext) -> None:
        self._context = context
        self._tasks: set[asyncio.Task[None]] = set()

    def store(self, lane: GroupLane, pipeline: QueuePipeline, job: Job) -> None:
        """Store *job*'s copy in the background, then let the lane finish it."""
        message = copy_of(job, pipeline, to=dead_letter_topic(lane.name))
        task = spawn(
            self._store(lane, pipeline, job, message),
            name=f"dead letter {pipeline.queue}@{job.offset}",
        )
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    def tasks(self) -> set[asyncio.Task[None]]:
        """Return the running tasks."""
        return set(self._tasks)

    async def _store(
        self, lane: GroupLane, pipeline: QueuePipeline, job: Job, message: OutgoingMessage
    ) -> None:
        queue = QueueName(dead_letter_topic(lane.name), pipeline.queue.broker, 0)
        log = _log.bind(
            group=lane.name, topic=pipeline.queue.topic, qid=pipeline.qid, offset=job.offset
        )
        refusal = await self._until_stored(queue, message, pipeline, log)
        for form in (Form.SHORT, Form.CUT):
            if not refusal or job.message is None:  # or the message was skipped meanwhile
                break
            if form is Form.CUT:
                pipeline.not_whole(job)
                log.error("dead letter cut: the broker refuses it as too long", reason=refusal)
            message = copy_of(job, pipeline, to=queue.topic, form=form)
            refusal = await self._until_stored(queue, message, pipeline, log)
        if refusal:
            log.error("message given up without a dead letter", reason=refusal)
        if pipeline.closed:
            return
        log.warning(
            "message dead-lettered",
            attempts=job.attempts,
            reason=job.reason,
            dead_letter_topic=queue.topic,
        )
        await self._until_owned(pipeline)
        lane.dead_lettered(pipeline, job)

    async def _until_stored(
        self, queue: QueueName, message: OutgoingMessage, pipeline: QueuePipeline, log: Any
    ) -> str:
        """Send *message* until the broker stores it or the queue is lost, and return an empty text.

        Return the reason if the broker will never store it.
        """
        back_off_s = _FIRST_BACK_OFF_S
        while not pipeline.closed:
            try:
                await self._send(queue, message)
            except RemotingError as error:
                if error.illegal:
                    return str(error)
                log.error("dead letter not stored; its key waits; retrying", reason=str(error))
                await asyncio.sleep(back_off_s)
                back_off_s = min(back_off_s * 2, _LONGEST_BACK_OFF_S)
            else:
                break
        return ""

    async def _until_owned(self, pipeline: QueuePipeline) -> None:
        """Wait until a finish takes effect here, or the queue is lost to its next owner."""
        while not (pipeline.closed or pipeline.is_owned(now_ns())):
            await self._context.settled.wait(_FIRST_BACK_OFF_S)

    async def _send(self, queue: QueueName, message: OutgoingMessage) -> None:
        try:
            there = queue in await self._context.client.queues(queue.topic)
        except BrokerError as error:
            if error.code != ResponseCode.TOPIC_NOT_EXIST:
                raise
            there = False
        if not there:
            await self._context.client.create_topic(queue.topic, queues=1, broker=queue.broker)
        check_on_disk([await self._context.client.send(queue, message)])


def copy_of(
    job: Job,
    pipeline: QueuePipeline,
    *,
    to: Topic,
    form: Form = Form.WHOLE,
    life: int | None = None,
) -> OutgoingMessage:
    """Return the message of *job* for the topic *to*, with the data of its failures. *life*: in a
    parked copy, that of the message's topic.
    """
    stored = job.message
    if stored is None:
        raise RuntimeError(f"{job} is given up without its message")
    lag_ms = (now_ns() - job.last_failure_ns) // 1_000_000 if job.last_failure_ns else 0
    last_ms = wall_ms() - lag_ms
    first_ms = last_ms - (job.last_failure_ns - job.first_failure_ns) // 1_000_000
    about: dict[str, Any] = {
        ORIGIN_TOPIC: topic_in_life(pipeline.topic, life),
        ORIGIN_ID: stored.message_id[:_MAX_TEXT],
        ORIGIN_QUEUE: pipeline.queue.qid,
        ORIGIN_OFFSET: job.offset,
        ORIGIN_EPOCH: pipeline.epoch,
        ATTEMPTS: job.attempts,
        REASON: job.reason[:_MAX_TEXT],
        ORDER_KEY: (key_text(job.key) or "")[:_MAX_TEXT],
        CHAIN: packed_key(job.key),
        FIRST_FAILURE: first_ms,
        LAST_FAILURE: last_ms,
    }
    said = {name: text for name, value in about.items() if (text := str(value))}
    return copied(stored, said, to=to, form=form)
