"""ProducerService: sends messages of thin clients through the broker client's Producer, in order.

A failed send may still be stored: its client resends with the same UNIQ_KEY, so that consumers can
detect the duplicate.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from itertools import islice
from typing import Any

import structlog

from broker_core.client import BrokerClient, Producer, SendReceipt
from broker_core.client.encoded_sends import EncodedBatch, EncodedOutcome
from broker_core.client.producer import DEFAULT_TIMEOUT_S, Outbound
from broker_core.clock import now_ns, wall_ms
from broker_core.errors import BrokerError, RemotingError
from broker_core.names import QueueName, Topic
from broker_core.remoting.codes import ResponseCode
from broker_core.remoting.message import UNIQ_KEY, OutgoingMessage
from proxy.downstream.delay_requests import ADD, DelayRequests
from proxy.downstream.encoded_messages import check_encoded, ids_of
from proxy.downstream.outgoing import IllegalMessage, outbound, topic_named
from proxy.downstream.port.connection import Entry, Refuse, Reply, awaiting
from proxy.downstream.send_counts import SendCounts
from proxy.downstream.send_failures import (
    ILLEGAL,
    NO_TOPIC,
    NOT_ALLOWED,
    NOT_SENT,
    OK,
    TIMED_OUT,
    TOO_FAST,
    UNKNOWN,
    Failure,
    code_of,
    failure_by,
    failure_of,
    failure_on_disk,
    summary,
)
from proxy.downstream.transactions import Transactions
from proxy.errors import OrderlaneError, Overloaded
from proxy.history.record import History
from proxy.observe.logs import NoisyLog
from thrift_idl import producer, producer_service

_log = structlog.get_logger("producers")

#: Reasons of failed sends for metrics; other codes are of invalid requests for delays.
_REASONS = {
    UNKNOWN: "unknown",
    TIMED_OUT: "timed_out",
    NO_TOPIC: "no_topic",
    TOO_FAST: "limit",
    NOT_SENT: "not_sent",
    NOT_ALLOWED: "not_allowed",
}

#: DDMQ answers OK to this topic without sending: its clients' health check.
HEARTBEAT_TOPIC = "carrera_heartbeat"
#: The broker's default topic: its route shows how many queues a new topic gets.
_TEMPLATE_TOPIC = Topic("TBW102")

#: Longest send timeout of a client.
_MAX_TIMEOUT_MS = 60_000


class ProducerService:
    """Sends through *client*."""

    def __init__(self, client: BrokerClient, history: History, *, max_body_bytes: int) -> None:
        self._client = client
        self._history = history
        self._max_body_bytes = max_body_bytes
        self.counts = SendCounts()
        self._noisy = NoisyLog(_log)
        # Requests of one connection are serialized; connections are independent.
        self._producer = Producer(
            client,
            find_queues=self._queues,
            independent=True,
            on_doubt=self._record_doubt,
            on_encoded_doubt=self._record_encoded_doubt,
        )
        self._delays = DelayRequests(
            client, find_queues=self._queues, max_body_bytes=max_body_bytes
        )
        self.transactions = Transactions(
            client, find_queues=self._queues, max_body_bytes=max_body_bytes
        )
        self._creating = asyncio.Lock()
        self._being_created: Topic | None = None

    def entries(self) -> dict[str, Entry]:
        """Return the methods by name."""
        return {
            "sendSync": Entry(
                producer_service.sendSync_args,
                awaiting(self._send_sync),
                *self._refusals(producer_service.sendSync_result, producer.Result),
            ),
            "sendAsync": Entry(
                producer_service.sendAsync_args,
                awaiting(self._send_async),
                *self._refusals(producer_service.sendAsync_result, producer.Result),
            ),
            "sendBatchSync": Entry(
                producer_service.sendBatchSync_args,
                awaiting(self._send_batch),
                *self._refusals(producer_service.sendBatchSync_result, producer.Result),
            ),
            "sendEncoded": Entry(
                producer_service.sendEncoded_args,
                awaiting(self._send_encoded),
                *self._refusals(producer_service.sendEncoded_result, producer.EncodedResult),
            ),
            "sendDelaySync": Entry(
                producer_service.sendDelaySync_args,
                awaiting(self._send_delay),
                *self._refusals(producer_service.sendDelaySync_result, producer.DelayResult),
            ),
            "prepareTransaction": Entry(
                producer_service.prepareTransaction_args,
                awaiting(self._prepare),
                *self._refusals(producer_service.prepareTransaction_result, producer.Prepared),
            ),
            "endTransaction": Entry(
                producer_service.endTransaction_args,
                awaiting(self._end),
                *self._refusals(producer_service.endTransaction_result, producer.Result),
            ),
            "transactionChecks": Entry(
                producer_service.transactionChecks_args,
                self._wait_for_checks,
                *self._refusals(producer_service.transactionChecks_result, producer.ChecksAnswer),
            ),
            "writableQueues": Entry(
                producer_service.writableQueues_args,
                awaiting(self._writable_queues),
                *self._refusals(producer_service.writableQueues_result, producer.WritableQueues),
            ),
        }

    def _refusals(
        self, result: Callable[..., Any], outcome: Callable[..., Any]
    ) -> tuple[Refuse, Refuse]:
        """Return the answers to a forbidden send, and to one over a limit."""

        def refuse(_arguments: Any, reply: Reply, error: OrderlaneError) -> None:
            code = TOO_FAST if isinstance(error, Overloaded) else NOT_ALLOWED
            self.counts.refused(_REASONS[code])
            reply(result(success=outcome(code=code, msg=str(error))))

        return refuse, refuse

    # ---- methods --------------------------------------------------------------------------------

    async def _send_sync(self, arguments: Any, _reply: Reply) -> Any:
        timeout_s = _timeout_s(arguments.timeout)
        result = await self._send([arguments.message], timeout_s=timeout_s)
        return producer_service.sendSync_result(success=result)

    async def _send_async(self, arguments: Any, _reply: Reply) -> Any:
        result = await self._send([arguments.message])
        return producer_service.sendAsync_result(success=result)

    async def _send_batch(self, arguments: Any, _reply: Reply) -> Any:
        result = await self._send(arguments.messages or [])
        return producer_service.sendBatchSync_result(success=result)

    async def _send_encoded(self, arguments: Any, _reply: Reply) -> Any:
        result = await self._counted(self._send_as_encoded(arguments.batch))
        return producer_service.sendEncoded_result(success=result)

    async def _send_delay(self, arguments: Any, _reply: Reply) -> Any:
        timeout_s = _timeout_s(arguments.timeout)
        delayed = arguments.delayMessage
        result = await self._counted(self._delays.request(delayed, timeout_s=timeout_s))
        if result.code == OK and delayed.action == ADD:
            self.counts.stored([len(delayed.body or b"")])
        return producer_service.sendDelaySync_result(success=result)

    async def _prepare(self, arguments: Any, _reply: Reply) -> Any:
        request = arguments.request
        result = await self._counted(self.transactions.prepare(request))
        if result.code == OK:
            sent = request.message
            self.counts.stored([len((sent.value or "") if sent.body is None else sent.body)])
        return producer_service.prepareTransaction_result(success=result)

    async def _end(self, arguments: Any, reply: Reply) -> Any:
        verify = reply.principal is not None
        result = await self.transactions.end(arguments.request, verify=verify)
        return producer_service.endTransaction_result(success=result)

    def _wait_for_checks(self, arguments: Any, reply: Reply) -> None:
        self.transactions.wait(arguments.request, reply)

    async def _writable_queues(self, arguments: Any, _reply: Reply) -> Any:
        topic = "" if arguments.request is None else arguments.request.topic
        try:
            queues = await self._queues(topic_named(topic))
        except IllegalMessage as error:
            answer = producer.WritableQueues(code=ILLEGAL, msg=str(error))
        except RemotingError as error:
            answer = producer.WritableQueues(code=code_of(error), msg=str(error))
        else:
            answer = producer.WritableQueues(code=OK, qids=[each.qid for each in queues])
        return producer_service.writableQueues_result(success=answer)

    # ---- sending --------------------------------------------------------------------------------

    async def _send(self, messages: Sequence[Any], *, timeout_s: float = DEFAULT_TIMEOUT_S) -> Any:
        """Send *messages*; return one Result, with one per message if not all were stored."""
        if all(each is not None and each.topic == HEARTBEAT_TOPIC for each in messages):
            return producer.Result(code=OK, msg="OK")
        return await self._counted(self._send_all(messages, timeout_s))

    async def _counted(self, sending: Awaitable[Any]) -> Any:
        """Return the result of a send, and count it."""
        began_ns = now_ns()
        result = await sending
        reason = None if result.code == OK else _REASONS.get(result.code, "illegal")
        self.counts.answered(reason, now_ns() - began_ns)
        return result

    async def _send_all(self, messages: Sequence[Any], timeout_s: float) -> Any:
        found: list[Outbound] = []
        try:
            for each in messages:
                found.append(outbound(each, max_body_bytes=self._max_body_bytes))
        except IllegalMessage as error:
            where = f"message {len(found) + 1} of {len(messages)}: " if len(messages) > 1 else ""
            return producer.Result(code=ILLEGAL, msg=f"{where}{error}")
        outcomes = await self._producer.send_batch(found, timeout_s=timeout_s)
        self._record([each for each in outcomes if isinstance(each, SendReceipt)])
        judged = [failure_of(each) for each in outcomes]
        self.counts.stored(
            len(sent.message.body)
            for sent, failure in zip(found, judged, strict=True)
            if failure is None
        )
        failures = [failure for failure in judged if failure is not None]
        if not failures:
            return producer.Result(code=OK, msg="OK")
        # Clients that do not read the results of the messages must learn of a doubt.
        in_doubt = next((each for each in failures if each.in_doubt), None)
        worst = in_doubt or failures[0]
        code, reason = worst.code, worst.reason
        self._noisy.warning(f"code {code}", "send failed", code=code, reason=reason)
        if len(outcomes) == 1:
            return producer.Result(code=code, msg=reason)
        text = summary(len(failures), len(outcomes), worst)
        return producer.Result(code=code, msg=text, messages=_message_results(judged))

    async def _send_as_encoded(self, sent: Any) -> Any:
        """Send the messages of an EncodedBatch; return an EncodedResult."""
        try:
            if sent is None:
                raise IllegalMessage("the request has no batch")
            topic, body, count = topic_named(sent.topic), sent.body or b"", sent.count or 0
            checked = check_encoded(body, count=count, max_body_bytes=self._max_body_bytes)
        except IllegalMessage as error:
            return producer.EncodedResult(code=ILLEGAL, msg=str(error))
        batch = EncodedBatch(topic, body, checked.ends, sent.qid, wall_ms(), sent.route)
        outcome = await self._producer.send_encoded(batch, timeout_s=_timeout_s(sent.timeoutMs))
        self._record_encoded(batch, outcome)
        failure = None if outcome.error is None else failure_by(outcome.error)
        stored = 0
        for receipt, messages in outcome.receipts:
            if (lost := failure_on_disk(receipt.status, receipt.queue)) is not None:
                failure = lost
                break
            stored += messages
        self.counts.stored_batch(checked.body_bytes[:stored])
        if failure is None:
            return producer.EncodedResult(code=OK)
        code, reason = failure.code, failure.reason
        self._noisy.warning(f"code {code}", "send failed", code=code, reason=reason)
        text = summary(count - stored, count, failure)
        return producer.EncodedResult(code=code, msg=text, stored=stored)

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

    def _record_doubt(self, messages: Sequence[OutgoingMessage], error: RemotingError) -> None:
        if self._history.enabled:
            self._history.write_many(
                "send_info",
                [
                    {"msg": each.properties[UNIQ_KEY], "topic": each.topic, "error": str(error)}
                    for each in messages
                ],
            )

    def _record_encoded(self, batch: EncodedBatch, outcome: EncodedOutcome) -> None:
        if self._history.enabled:
            ids = iter(ids_of(batch.body))
            self._history.write_many(
                "send_ok",
                [
                    {
                        "msg": message_id,
                        "topic": receipt.queue.topic,
                        "queue": receipt.queue.qid,
                        "offset": receipt.offset + number,
                    }
                    for receipt, messages in outcome.receipts
                    for number, message_id in enumerate(islice(ids, messages))
                ],
            )

    def _record_encoded_doubt(self, topic: Topic, body: bytes, error: RemotingError) -> None:
        if self._history.enabled:
            self._history.write_many(
                "send_info",
                [{"msg": each, "topic": topic, "error": str(error)} for each in ids_of(body)],
            )

    # ---- routing --------------------------------------------------------------------------------

    async def _queues(self, topic: Topic) -> list[QueueName]:
        """Return the topic's queues; an unknown topic is created where the brokers allow it."""
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
        # Create the topic completely before the first send. If the send created it, as in RocketMQ,
        # the number of queues would change between two messages of a key.
        if topic not in await self._client.topics():
            try:
                template = await self._client.writable_queues(_TEMPLATE_TOPIC, fresh=True)
            except BrokerError:
                template = []  # brokers that create no topics
            for broker in sorted({queue.broker for queue in template}):
                count = sum(queue.broker == broker for queue in template)
                await self._client.create_topic(topic, queues=count, broker=broker)
        return await self._client.writable_queues(topic, fresh=True)


def _timeout_s(timeout_ms: int | None) -> float:
    """Return a client's timeout, or the default without one."""
    return min(max(timeout_ms or 0, 0), _MAX_TIMEOUT_MS) / 1000 or DEFAULT_TIMEOUT_S


def _message_results(judged: Sequence[Failure | None]) -> list[Any]:
    results = []
    before = None
    for each in judged:
        code, reason = (OK, None) if each is None else (each.code, each.reason)
        results.append(producer.MessageResult(code=code, msg=None if reason == before else reason))
        before = reason
    return results
