"""ProducerService: sends to the broker, one sharding key to one queue. No decisions about order.

Result codes are DDMQ's. A send that failed may still be stored: its client sends it again with the
same UNIQ_KEY, so that consumers can tell.
"""

from __future__ import annotations

import asyncio
import itertools
import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import structlog

from broker_core.client import BrokerClient, SendReceipt, SendStatus
from broker_core.client.sending import with_id
from broker_core.clock import wall_ms
from broker_core.errors import BrokerError, LocalProtocolError, RemotingError, RequestTimeout
from broker_core.names import QueueName, Topic, check_name
from broker_core.remoting.codes import ResponseCode
from broker_core.remoting.key_hash import queue_index
from broker_core.remoting.message import OutgoingMessage, encode_properties
from proxy.downstream.requests import RESERVED_PROPERTIES
from proxy.downstream.thrift_server import Entry, Reply, awaiting
from proxy.history.record import History
from proxy.logs import NoisyLog
from thrift_idl import producer, producer_service

_log = structlog.get_logger("producers")

OK, UNKNOWN, ILLEGAL, TIMED_OUT, NO_TOPIC = 0, 10, 11, 12, 14
NOT_A_DELAY_TOPIC, BAD_DELAY_TYPE = 18, 31
LOOPS = 3  # DelayMessage.dmsgtype

_CODE_OF_ANSWER = {
    int(ResponseCode.TOPIC_NOT_EXIST): NO_TOPIC,
    int(ResponseCode.MESSAGE_ILLEGAL): ILLEGAL,
}
#: The one status of a stored message that is no success: it may not outlive the broker.
_NOT_ON_DISK = SendStatus.FLUSH_DISK_TIMEOUT

#: DDMQ answers OK to this topic without sending anything: its clients' health check.
HEARTBEAT_TOPIC = "carrera_heartbeat"
MAX_KEY_CHARS = MAX_TAG_CHARS = 255
#: The official broker's default topic: its route shows the queues that a new topic gets.
_TEMPLATE_TOPIC = Topic("TBW102")

#: One request to the broker carries at most so much; more goes in several, in order.
_BATCH_MESSAGES, _BATCH_BYTES = 512, 1_000_000
#: Longest time that a client may give its send.
_MAX_TIMEOUT_MS = 60_000

#: A property that clients may set although the broker reserves it: the message's unique id.
_SETTABLE = frozenset({"UNIQ_KEY"})


class _Illegal(Exception):
    """A message that no broker would take; the text says why."""


@dataclass(frozen=True, slots=True)
class _Routed:
    queue: QueueName
    message: OutgoingMessage
    size: int  # bytes of body and properties


class ProducerService:
    """Sends through *client*."""

    def __init__(self, client: BrokerClient, history: History, *, max_body_bytes: int) -> None:
        self._client = client
        self._history = history
        self._max_body_bytes = max_body_bytes
        self._noisy = NoisyLog(_log)
        self._turns = itertools.count()
        self._creating = asyncio.Lock()
        self._being_created: Topic | None = None

    def entries(self) -> Mapping[str, Entry]:
        """The methods by name."""
        return {
            "sendSync": Entry(producer_service.sendSync_args, awaiting(self._send_sync)),
            "sendAsync": Entry(producer_service.sendAsync_args, awaiting(self._send_async)),
            "sendBatchSync": Entry(producer_service.sendBatchSync_args, awaiting(self._send_batch)),
            "sendDelaySync": Entry(producer_service.sendDelaySync_args, awaiting(self._send_delay)),
        }

    # ---- methods --------------------------------------------------------------------------------

    async def _send_sync(self, arguments: Any, _reply: Reply) -> Any:
        timeout_s = min(max(arguments.timeout or 0, 0), _MAX_TIMEOUT_MS) / 1000 or None
        result = await self._send([arguments.message], timeout_s=timeout_s)
        return producer_service.sendSync_result(success=result)

    async def _send_async(self, arguments: Any, _reply: Reply) -> Any:
        result = await self._send([arguments.message], timeout_s=None)
        return producer_service.sendAsync_result(success=result)

    async def _send_batch(self, arguments: Any, _reply: Reply) -> Any:
        result = await self._send(arguments.messages or [], timeout_s=None)
        return producer_service.sendBatchSync_result(success=result)

    async def _send_delay(self, arguments: Any, _reply: Reply) -> Any:
        message = arguments.delayMessage
        loops = message is not None and message.dmsgtype == LOOPS
        code = BAD_DELAY_TYPE if loops else NOT_A_DELAY_TOPIC
        what = "repeated messages are not served" if loops else "this version has no delays yet"
        result = producer.DelayResult(code=code, msg=f"{what}: nothing was sent")
        return producer_service.sendDelaySync_result(success=result)

    # ---- sending --------------------------------------------------------------------------------

    async def _send(self, messages: Sequence[Any], *, timeout_s: float | None) -> Any:
        """Send *messages* in order; one Result for all: the first failure, if any."""
        if all(each is not None and each.topic == HEARTBEAT_TOPIC for each in messages):
            return producer.Result(code=OK, msg="OK")
        try:
            routed = [await self._route(each) for each in messages]
        except _Illegal as error:
            return producer.Result(code=ILLEGAL, msg=str(error))
        except RemotingError as error:
            return self._failure(error)
        by_queue: dict[QueueName, list[_Routed]] = {}
        for each in routed:
            by_queue.setdefault(each.queue, []).append(each)
        outcomes = await asyncio.gather(
            *(self._to_queue(*each, timeout_s=timeout_s) for each in by_queue.items())
        )
        failures = [each for each in outcomes if each is not None]
        return self._failure(failures[0]) if failures else producer.Result(code=OK, msg="OK")

    async def _to_queue(
        self, queue: QueueName, messages: list[_Routed], *, timeout_s: float | None
    ) -> RemotingError | None:
        """Send to one queue, in order, stopping at the first failure, which is returned."""
        try:
            for chunk in _chunks(messages):
                if len(chunk) == 1:
                    receipts = [await self._client.send(queue, chunk[0], timeout_s=timeout_s)]
                else:
                    receipts = await self._client.send_batch(queue, chunk, timeout_s=timeout_s)
                self._record(receipts)
                if late := [each for each in receipts if each.status is _NOT_ON_DISK]:
                    raise RequestTimeout(f"{queue}: {len(late)} messages were not on disk in time")
        except RemotingError as error:
            return error
        return None

    def _record(self, receipts: Sequence[SendReceipt]) -> None:
        if self._history.enabled:
            self._history.write_many(
                "send_ok",
                [
                    {
                        "msg": receipt.message_id,
                        "topic": receipt.queue.topic,
                        "queue": receipt.queue.qid,
                        "offset": receipt.offset,
                    }
                    for receipt in receipts
                ],
            )

    def _failure(self, error: RemotingError) -> Any:
        code = UNKNOWN
        if isinstance(error, RequestTimeout):
            code = TIMED_OUT
        elif isinstance(error, BrokerError):
            code = _CODE_OF_ANSWER.get(error.code, UNKNOWN)
        self._noisy.warning(f"code {code}", "send failed", code=code, reason=str(error))
        return producer.Result(code=code, msg=str(error))

    # ---- routing --------------------------------------------------------------------------------

    async def _route(self, message: Any) -> _Routed:
        """The message as brokers take it, and its queue. Raises _Illegal or RemotingError."""
        if message is None:
            raise _Illegal("there is no message in this request")
        try:
            topic = Topic(check_name("topic", message.topic or ""))
        except ValueError as error:
            raise _Illegal(str(error)) from None
        outgoing = self._outgoing(topic, message)
        try:
            size = len(outgoing.body) + len(encode_properties(outgoing.all_properties()))
        except LocalProtocolError as error:
            raise _Illegal(str(error)) from None
        queues = await self._queues(topic)
        if not queues:
            raise BrokerError(
                ResponseCode.NO_PERMISSION, f"topic {topic} has no writable queue", request="send"
            )
        return _Routed(queues[self._choose(message, len(queues))], outgoing, size)

    def _choose(self, message: Any, count: int) -> int:
        """Index of the queue: explicit, by hashId, by the key's hash, at random, or in turn."""
        partition = -1 if message.partitionId is None else int(message.partitionId)
        if partition >= 0:
            return partition % count
        if partition < -1:
            return random.randrange(count)  # as DDMQ's clients ask: -2
        if message.hashId is not None:
            return abs(int(message.hashId)) % count
        if message.key:
            return queue_index(message.key, count)
        return next(self._turns) % count

    def _outgoing(self, topic: Topic, message: Any) -> OutgoingMessage:
        body = message.body if message.body is not None else (message.value or "").encode()
        if not 0 < len(body) <= self._max_body_bytes:
            raise _Illegal(
                f"a body of {len(body)} bytes: it should have 1 to {self._max_body_bytes}"
            )
        key, tag = message.key or None, message.tags or None
        for what, text, limit in (("key", key, MAX_KEY_CHARS), ("tag", tag, MAX_TAG_CHARS)):
            if text is not None and len(text) > limit:
                raise _Illegal(f"a {what} of {len(text)} characters: at most {limit} are taken")
        properties = dict(message.properties or {})
        for name, value in properties.items():
            if name in RESERVED_PROPERTIES and name not in _SETTABLE:
                raise _Illegal(f"property {name!r} is reserved by the broker: rename it")
            if not name or not value:
                raise _Illegal(f"property {name!r} with value {value!r}: neither may be empty")
        # The id is given here, not at the send: it belongs to what is counted and checked.
        return with_id(
            OutgoingMessage(
                topic=topic, body=body, key=key, tag=tag, properties=properties, born_ms=wall_ms()
            )
        )

    async def _queues(self, topic: Topic) -> list[QueueName]:
        """The topic's queues; an unknown one is created where the brokers allow it."""
        if topic != self._being_created:
            try:
                return await self._client.writable_queues(topic)
            except BrokerError as error:
                if error.code != ResponseCode.TOPIC_NOT_EXIST:
                    raise
        async with self._creating:
            self._being_created = topic
            try:
                return await self._create(topic)
            finally:
                self._being_created = None

    async def _create(self, topic: Topic) -> list[QueueName]:
        # Made whole before the first send: were it made by the send, as RocketMQ does it, its
        # number of queues would change between two messages of a key.
        if topic not in await self._client.topics():
            try:
                template = await self._client.writable_queues(_TEMPLATE_TOPIC, fresh=True)
            except BrokerError:
                template = []  # brokers that create no topics
            for broker in sorted({queue.broker for queue in template}):
                count = sum(queue.broker == broker for queue in template)
                await self._client.create_topic(topic, queues=count, broker=broker)
        return await self._client.writable_queues(topic, fresh=True)


def _chunks(messages: Sequence[_Routed]) -> list[list[OutgoingMessage]]:
    chunks: list[list[OutgoingMessage]] = []
    size = _BATCH_BYTES
    for each in messages:
        if size + each.size > _BATCH_BYTES or len(chunks[-1]) >= _BATCH_MESSAGES:
            chunks.append([])
            size = 0
        chunks[-1].append(each.message)
        size += each.size
    return chunks
