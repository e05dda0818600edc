"""Stores the copies of jobs that are given up: first the copy, then the job finishes."""

from __future__ import annotations

import asyncio
from typing import Any

import structlog

from broker_core.clock import now_ns, wall_ms
from broker_core.errors import BrokerError, RemotingError
from broker_core.names import DEAD_LETTER_PREFIX, Group, QueueName, Topic
from broker_core.remoting.codes import ResponseCode
from broker_core.remoting.compression import SYS_COMPRESSED, SYS_COMPRESSION_TYPE
from broker_core.remoting.message import (
    KEYS,
    MAX_PROPERTIES_BYTES,
    TAGS,
    OutgoingMessage,
)
from broker_core.tasks import spawn
from proxy.core.dead_letter import body_as_sent
from proxy.core.job_chains import Job
from proxy.core.order_key import key_text
from proxy.core.parked_copy import ORIGIN_EPOCH, ORIGIN_OFFSET
from proxy.core.queue_pipeline import QueuePipeline
from proxy.group_lane import GroupLane
from proxy.upstream.context import UpstreamContext
from proxy.upstream.durable import check_on_disk

_log = structlog.get_logger("dead-letters")

_FIRST_BACK_OFF_S, _LONGEST_BACK_OFF_S = 0.1, 5.0
#: Reasons and keys longer than this are cut: properties of a message hold 32,767 bytes in all.
_MAX_TEXT = 1024
#: What a copy can do without, if it has more properties than a message may carry.
_OPTIONAL = frozenset({"ORDERLANE_REASON", "ORDERLANE_ORDER_KEY"})
#: What it cannot do without: a parked copy is found by them, a dead letter goes back by them.
_NEEDED = frozenset({KEYS, TAGS, ORIGIN_OFFSET, ORIGIN_EPOCH, "DLQ_ORIGIN_TOPIC"})


def dead_letter_topic(group: Group) -> Topic:
    """``%DLQ%group``, as in RocketMQ."""
    return Topic(DEAD_LETTER_PREFIX + group)


class DeadLetters:
    """Sends dead letters until the broker has them or the queue is lost."""

    def __init__(self, context: UpstreamContext) -> None:
        self._context = context
        self._tasks: set[asyncio.Task[None]] = set()

    def store(self, lane: GroupLane, pipeline: QueuePipeline, job: Job) -> None:
        """Store *job*'s copy in the background, then let the lane finish it."""
        message = copy_of(job, pipeline, to=dead_letter_topic(lane.name))
        task = spawn(
            self._store(lane, pipeline, job, message=message),
            name=f"dead letter {pipeline.queue}@{job.offset}",
        )
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    def tasks(self) -> set[asyncio.Task[None]]:
        """Those under way."""
        return set(self._tasks)

    async def _store(
        self, lane: GroupLane, pipeline: QueuePipeline, job: Job, *, message: OutgoingMessage
    ) -> None:
        queue = QueueName(dead_letter_topic(lane.name), pipeline.queue.broker, 0)
        log = _log.bind(group=lane.name, topic=pipeline.queue.topic, qid=pipeline.qid)
        back_off_s = _FIRST_BACK_OFF_S
        while not pipeline.closed:
            try:
                await self._send(queue, message)
            except RemotingError as error:
                log.error(
                    "dead letter not stored; its key waits", offset=job.offset, reason=str(error)
                )
                await asyncio.sleep(back_off_s)
                back_off_s = min(back_off_s * 2, _LONGEST_BACK_OFF_S)
                continue
            log.warning(
                "message dead-lettered",
                offset=job.offset,
                attempts=job.attempts,
                reason=job.reason,
                dead_letter_topic=queue.topic,
            )
            await self._until_owned(pipeline)
            lane.dead_lettered(pipeline, job)
            return

    async def _until_owned(self, pipeline: QueuePipeline) -> None:
        """Until what finishes here counts; or the queue is lost, and it is its next owner's."""
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


def copy_of(job: Job, pipeline: QueuePipeline, *, to: Topic) -> OutgoingMessage:
    """The message of *job* for the topic *to*, with all that is known of its failures."""
    stored = job.message
    if stored is None:
        raise RuntimeError(f"{job} is given up without its message")
    lag_ms = (now_ns() - job.last_failure_ns) // 1_000_000 if job.last_failure_ns else 0
    last_ms = wall_ms() - lag_ms
    first_ms = last_ms - (job.last_failure_ns - job.first_failure_ns) // 1_000_000
    about: dict[str, Any] = {
        "DLQ_ORIGIN_TOPIC": pipeline.topic,
        "DLQ_ORIGIN_MESSAGE_ID": stored.message_id,
        "ORDERLANE_QUEUE": pipeline.queue.qid,
        ORIGIN_OFFSET: job.offset,
        ORIGIN_EPOCH: pipeline.epoch,
        "ORDERLANE_ATTEMPTS": job.attempts,
        "ORDERLANE_REASON": _clean(job.reason),
        "ORDERLANE_ORDER_KEY": _clean(key_text(job.key) or ""),
        "ORDERLANE_FIRST_FAILURE_MS": first_ms,
        "ORDERLANE_LAST_FAILURE_MS": last_ms,
    }
    properties = _fitting(
        {name: value.replace("\x01", " ") for name, value in stored.properties.items()}
        | {name: str(value) for name, value in about.items()}
    )
    key, tag = properties.pop(KEYS, None), properties.pop(TAGS, None)
    return OutgoingMessage(
        topic=to,
        body=body_as_sent(stored),
        key=key,
        tag=tag,
        properties=properties,
        born_ms=stored.born_ms,
        flag=stored.flag,
        sys_flag=stored.sys_flag & (SYS_COMPRESSED | SYS_COMPRESSION_TYPE),
    )


def _fitting(properties: dict[str, str]) -> dict[str, str]:
    """As many of *properties* as a message may carry: a copy that no broker takes would block its
    key for ever.
    """
    sizes = {
        name: len(f"{name}{value}".encode("utf-8", "backslashreplace")) + 2
        for name, value in properties.items()
    }
    excess = sum(sizes.values()) - MAX_PROPERTIES_BYTES
    left_out = []
    for name in sorted(sizes, key=lambda name: (name not in _OPTIONAL, -sizes[name])):
        if excess <= 0:
            break
        if name in _NEEDED:
            continue
        excess -= sizes[name]
        left_out.append(name)
    if left_out:
        _log.warning("dead letter is short of properties: they are too long", left_out=left_out)
    return {name: value for name, value in properties.items() if name not in left_out}


def _clean(text: str) -> str:
    """Text without the two separators of a property string, cut to a sane length."""
    return text.replace("\x01", " ").replace("\x02", " ")[:_MAX_TEXT]
