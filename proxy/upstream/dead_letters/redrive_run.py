"""Executes the redrive of a group, ``core/dead_letters/redrive.py``: requests, clock, history."""

from __future__ import annotations

import asyncio
import contextlib
from collections import Counter
from collections.abc import Collection

import structlog

from broker_core.client import PullStatus, SendReceipt
from broker_core.client.queue_moves import has_moved, is_in_doubt
from broker_core.clock import now_ns
from broker_core.errors import (
    BrokerError,
    NotSent,
    RemotingError,
    RequestTimeout,
)
from broker_core.names import Group, QueueName
from broker_core.remoting.codes import ResponseCode
from broker_core.remoting.message import UNIQ_KEY, OutgoingMessage
from broker_core.tasks import spawn
from proxy.core.dead_letters.copies import ORDER_KEY
from proxy.core.dead_letters.dead_letter import NotSendable, queue_for, sent_back
from proxy.core.dead_letters.redrive import (
    Commit,
    End,
    Locate,
    Lock,
    Read,
    Redrive,
    RedriveState,
    Send,
    Step,
    Wait,
)
from proxy.core.dead_letters.redriven import FIRST_ID
from proxy.upstream.context import UpstreamContext
from proxy.upstream.dead_letters.copier import dead_letter_topic
from proxy.upstream.records.durable import check_on_disk

_AT_ONCE = 32
_LONGEST_SEND_S = 3.0


def progress_group(group: Group) -> Group:
    """Return the consumer group whose offsets store the progress of a redrive of *group*."""
    return Group(dead_letter_topic(group))


class RedriveRun:
    """One redrive of *group*'s dead letters, from construction until its end."""

    def __init__(
        self,
        context: UpstreamContext,
        group: Group,
        queues: Collection[QueueName],
        *,
        by: str,
        audit: str,
        rate: float,
        skip: Collection[tuple[QueueName, int]],
        counts: Counter[tuple[str, str]],
    ) -> None:
        """Start the redrive.

        Args:
            context: The proxy's brokers and settings.
            group: The group whose dead letters are sent.
            queues: Queues of its dead-letter topic.
            by: The operator.
            audit: Id of the audit record.
            rate: Messages per second; 0: no limit.
            skip: Queue and offset of each dead letter to skip.
            counts: Messages sent back, by group and topic.
        """
        lock = context.settings.lock
        self.group = group
        self.by = by
        self.rate = rate
        self.redrive = Redrive(
            queues,
            renewal_ns=int(lock.renewal_s * 1e9),
            trust_ns=int(lock.trust_s * 1e9),
            rate=rate,
            skip=skip,
        )
        self._context = context
        self._queues = sorted(queues)
        self._progress = progress_group(group)
        self._counts = counts
        self._audit = audit
        self._lives: dict[QueueName, int | None] = {}  # of the topic, at the start
        self._noted = ""
        self._begun = asyncio.Event()
        self._stop = asyncio.Event()
        self._log = structlog.get_logger("redrive").bind(group=group)
        self._task = spawn(self._run(), name=f"redrive dead letters of {group}")

    @property
    def running(self) -> bool:
        """Whether it is running or its locks are not released yet."""
        return not self._task.done()

    @property
    def state(self) -> RedriveState:
        """State of the redrive; running until its locks are released."""
        return RedriveState.RUNNING if self.running else self.redrive.state

    async def begun(self) -> None:
        """Return once the redrive has begun or failed to begin."""
        await self._begun.wait()

    async def stop(self) -> None:
        """Stop after the message that is being sent."""
        self.redrive.stop()
        self._stop.set()
        await asyncio.wait([self._task])

    async def _run(self) -> None:
        redrive = self.redrive
        self._record_progress("started", audit=self._audit)
        try:
            while not isinstance(step := redrive.step(now_ns()), End):
                await self._do_or_wait(step)
        except Exception as bug:  # it must not end silently
            self._log.error("redrive of dead letters failed", reason=str(bug), exc_info=bug)
            redrive.failed(f"a bug: {bug!r}")
        finally:
            with contextlib.suppress(RemotingError):  # the locks expire in time
                await self._context.client.unlock(self._progress, self._queues)
            self._record_progress(redrive.state)
            self._begun.set()

    async def _do_or_wait(self, step: Step) -> None:
        redrive = self.redrive
        try:
            await self._do(step)
        except NotSendable as error:
            assert isinstance(step, Send)
            redrive.not_sendable(step, str(error))
        except RemotingError as error:
            if not error.retriable:
                redrive.failed(str(error))
            else:
                if redrive.reason != str(error):
                    self._log.warning("redrive of dead letters waits", reason=str(error))
                redrive.trouble(str(error), now_ns=now_ns())
                self._begun.set()
        if redrive.note != self._noted:
            self._noted = redrive.note
            self._log.error("dead letters have changed during the redrive", what=redrive.note)

    async def _do(self, step: Step) -> None:
        redrive, client = self.redrive, self._context.client
        match step:
            case Lock():
                await self._lock()
            case Locate(queue):
                if self._is_of_another_life(queue, await client.life(queue)):
                    return
                redrive.located(
                    queue,
                    committed=await client.committed_offset(self._progress, queue) or 0,
                    low=await client.min_offset(queue),
                    end=await client.max_offset(queue),
                )
            case Read():
                await self._read(step)
            case Send():
                self._begun.set()
                await self._send(step)
            case Commit(queue, offset):
                life = self._lives[queue]
                await client.commit_offset(self._progress, queue, offset, life=life, not_lower=True)
                redrive.committed()
                if step.skipped:
                    self._record_progress("skipped", dead_letter=f"{queue.qid}@{offset - 1}")
            case Wait(ns):
                self._begun.set()
                with contextlib.suppress(TimeoutError):
                    async with asyncio.timeout(ns / 1e9):
                        await self._stop.wait()

    async def _lock(self) -> None:
        asked_ns = now_ns()  # trust counts from before the request
        answer = await self._context.client.lock(
            self._progress,
            self._queues,
            timeout_s=self._context.settings.lock.request_timeout_s,
        )
        if answer.granted.issuperset(self._queues):
            self.redrive.granted(asked_ns=asked_ns)
        elif answer.unanswered:
            brokers = ", ".join(sorted({queue.broker for queue in answer.unanswered}))
            raise RequestTimeout(f"{brokers} did not answer a request for locks")
        else:
            self.redrive.refused(
                f"dead letters of {self.group!r} are being redriven by another proxy; if it was"
                " killed, its locks expire within a minute"
            )

    async def _read(self, step: Read) -> None:
        result = await self._context.client.pull(
            step.queue,
            group=self._progress,
            offset=step.offset,
            max_messages=_AT_ONCE,
            suspend_ms=0,
        )
        if self._is_of_another_life(step.queue, result.life):
            return
        illegal = result.status is PullStatus.OFFSET_ILLEGAL
        moved_back = illegal and result.next_offset < step.offset
        self.redrive.found(
            step,
            result.messages,
            next_offset=result.next_offset,
            end=result.next_offset if moved_back else result.max_offset,
            now_ns=now_ns(),
        )

    def _is_of_another_life(self, queue: QueueName, life: int | None) -> bool:
        """Return True and end the redrive if *queue* is in another *life* than at first.

        Messages and offsets of the previous life do not apply to it.
        """
        if self._lives.setdefault(queue, life) == life:
            return False
        self.redrive.failed(
            f"topic {queue.topic} was deleted and created again: start the redrive again"
        )
        return True

    # ---- sending --------------------------------------------------------------------------------

    async def _send(self, step: Send) -> None:
        message = sent_back(step.stored, step.queue)
        about = {"msg": message.properties[UNIQ_KEY], "topic": message.topic}
        history = self._context.history
        tagged = {} if message.tag is None else {"tag": message.tag}
        first = message.properties.get(FIRST_ID) or step.stored.message_id
        history.write("send", **about, key=message.key, first=first, **tagged)
        if step.doubtful:
            history.write("send_info", **about, error="an earlier redrive may have sent it")
        try:
            receipt = await self._stored(step, message)
        except NotSendable as error:
            history.write("send_fail", **about, error=str(error))
            raise
        except RemotingError as error:
            event = "send_info" if is_in_doubt(error) else "send_fail"
            history.write(event, **about, error=str(error))
            raise
        history.write("send_ok", **about, queue=receipt.queue.qid, offset=receipt.offset)
        self.redrive.sent(step, now_ns=now_ns())
        self._counts[self.group, message.topic] += 1
        self._log.info(
            "dead letter sent back",
            dead_letter=f"{step.queue.qid}@{step.stored.queue_offset}",
            topic=message.topic,
            qid=receipt.queue.qid,
            offset=receipt.offset,
            order=step.stored.properties.get(ORDER_KEY) or message.key,
        )

    async def _stored(self, step: Send, message: OutgoingMessage) -> SendReceipt:
        client, queue = self._context.client, None
        try:
            queues = await client.writable_queues(message.topic)
            if not queues:
                raise NotSendable(f"topic {message.topic} has no writable queue")
            queue = queue_for(message, queues, stored=step.stored)
            timeout_s = min(_LONGEST_SEND_S, step.within_ns / 1e9)
            receipt = await client.send(queue, message, timeout_s=timeout_s)
        except RemotingError as error:
            if error.retriable:
                raise
            if queue is not None and await has_moved(client, queue, error):
                raise NotSent(str(error)) from None  # the next attempt uses the new route
            unknown = isinstance(error, BrokerError) and error.code == ResponseCode.TOPIC_NOT_EXIST
            why = f"topic {message.topic} does not exist" if unknown else str(error)
            raise NotSendable(why) from None
        check_on_disk([receipt])
        return receipt

    def _record_progress(self, state: RedriveState | str, **fields: object) -> None:
        """Record the progress in history and log, with the operator."""
        redrive = self.redrive
        about = {
            "state": str(state),
            "by": self.by,
            "sent": redrive.sent_back,
            "skipped": redrive.skipped,
            "reason": redrive.reason,
            **fields,
        }
        place = {"group": self.group, "topic": self._progress}
        self._context.history.write("dead_letter_redrive", **place, **about)
        self._log.warning("redrive of dead letters", **about)
