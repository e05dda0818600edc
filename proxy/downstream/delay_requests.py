"""sendDelaySync: delayed messages and their cancellation, with DDMQ's result codes.

A delayed message waits at its broker. Its ``uniqDelayMsgId`` is the broker's recall handle with
broker, topic and message; so any proxy can cancel it without state.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import replace
from typing import Any

from broker_core import chance
from broker_core.client import BrokerClient, SendReceipt
from broker_core.client.queue_moves import before_a_send, send_where_it_is
from broker_core.clock import now_ns, wall_ms
from broker_core.errors import BrokerError, InvalidCommand, RemotingError
from broker_core.names import Group, QueueName, Topic
from broker_core.remoting.codes import ResponseCode
from broker_core.remoting.key_hash import place_of
from broker_core.remoting.message import KEYS, OutgoingMessage
from broker_core.remoting.recall_handle import RecallHandle
from proxy.downstream.delay_times import delay_properties
from proxy.downstream.outgoing import IllegalMessage, outgoing_message, topic_named
from proxy.downstream.port.interpretation import CANCEL, topic_of_delay
from proxy.downstream.send_failures import ILLEGAL, OK, code_of, failure_of
from thrift_idl import producer

_NO_DELAYS, _BAD_ID, _BAD_TYPE, _BAD_ACTION, _BAD_TIME = 18, 30, 31, 32, 33

ADD = 1  # DelayMessage.action
_ONCE = 2  # DelayMessage.dmsgtype
_GROUP = Group("orderlane")
#: Latest accepted time: a larger one was probably given in milliseconds instead of seconds.
_LAST_S = 32_503_680_000  # the year 3000


class _Refused(Exception):
    def __init__(self, code: int, why: str) -> None:
        super().__init__(why)
        self.code = code


class DelayRequests:
    """Sends through *client*."""

    def __init__(
        self,
        client: BrokerClient,
        *,
        find_queues: Callable[[Topic], Awaitable[list[QueueName]]],
        max_body_bytes: int,
    ) -> None:
        self._client = client
        self._find_queues = find_queues
        self._max_body_bytes = max_body_bytes

    async def request(self, message: Any, *, timeout_s: float) -> Any:
        """Process a DelayMessage and return its DelayResult."""
        try:
            if message is None:
                raise IllegalMessage("the request has no message")
            if message.action == CANCEL:
                return await self._cancel(message, timeout_s)
            if message.action == ADD:
                return await self._add(message, timeout_s)
            raise _Refused(_BAD_ACTION, f"action {message.action}: 1 adds, 2 cancels")
        except IllegalMessage as error:
            return producer.DelayResult(code=ILLEGAL, msg=f"{error}: nothing was done")
        except _Refused as error:
            return producer.DelayResult(code=error.code, msg=f"{error}: nothing was done")
        except RemotingError as error:
            return producer.DelayResult(code=code_of(error), msg=str(error))

    async def _add(self, message: Any, timeout_s: float) -> Any:
        if message.dmsgtype not in (None, _ONCE):
            raise _Refused(
                _BAD_TYPE,
                f"dmsgtype {message.dmsgtype}: only 2, a single delivery, is supported",
            )
        seconds = message.timestamp
        if seconds is None or not 0 < seconds < _LAST_S:
            raise _Refused(_BAD_TIME, f"timestamp {seconds}: expected seconds since 1970")
        properties = dict(message.properties or {})
        outgoing = outgoing_message(
            topic_named(message.topic),
            message.body or b"",
            key=properties.pop(KEYS, None),  # delayed messages have no field for the key
            tag=message.tags or None,
            properties=properties,
            max_body_bytes=self._max_body_bytes,
        )
        receipt = await self._sent(outgoing, due_ms=seconds * 1000, timeout_s=timeout_s)
        if (failed := failure_of(receipt)) is not None:
            return producer.DelayResult(code=failed.code, msg=failed.reason)
        return _done(receipt.recall_handle or receipt.message_id)

    async def _sent(
        self, outgoing: OutgoingMessage, *, due_ms: int, timeout_s: float
    ) -> SendReceipt:
        """Send *outgoing* for delivery at *due_ms*. Raises _Refused, RemotingError."""

        async def find_queue() -> QueueName:
            queues = await self._find_queues(outgoing.topic)
            if not queues:
                remark = f"topic {outgoing.topic} has no writable queue"
                raise BrokerError(ResponseCode.NO_PERMISSION, remark, request="send")
            place = place_of(outgoing.key)
            number = chance.number_below(len(queues)) if place is None else abs(place)
            return queues[number % len(queues)]

        async def send(queue: QueueName, left_s: float | None) -> SendReceipt:
            with before_a_send():
                takes_times = await self._client.delays.takes_times(queue.broker, timeout_s=left_s)
            try:
                delay = delay_properties(due_ms, now_ms=wall_ms(), takes_times=takes_times)
            except ValueError as error:
                raise _Refused(_BAD_TIME, str(error)) from None
            later = replace(outgoing, properties={**outgoing.properties, **delay})
            left_s = max(0.001, (deadline_ns - now_ns()) / 1e9)
            return await self._client.send(queue, later, timeout_s=left_s)

        deadline_ns = now_ns() + int(timeout_s * 1e9)
        return await send_where_it_is(self._client, find_queue, send, timeout_s=timeout_s)

    async def _cancel(self, message: Any, timeout_s: float) -> Any:
        text = message.uniqDelayMsgId or ""
        try:
            handle = RecallHandle.from_text(text)
        except InvalidCommand:
            raise _Refused(
                _BAD_ID,
                f"uniqDelayMsgId {text[:120]!r} names no message that can be cancelled: expected"
                " the id in the answer to the delayed message, from a broker that supports recalls",
            ) from None
        if message.topic and message.topic != handle.topic:
            raise _Refused(_BAD_ID, f"the message was sent to topic {handle.topic}")
        topic = topic_named(topic_of_delay(message))
        try:
            await self._client.delays.recall(
                handle.broker_name, topic, text, group=_GROUP, timeout_s=timeout_s
            )
        except BrokerError as error:
            if error.code == ResponseCode.ILLEGAL_OPERATION:
                raise _Refused(_BAD_ID, str(error)) from error
            if error.code in (ResponseCode.REQUEST_CODE_NOT_SUPPORTED, ResponseCode.NO_PERMISSION):
                raise _Refused(
                    _NO_DELAYS, f"the broker does not support recalls: {error}"
                ) from error
            raise
        return _done(text)


def _done(delay_id: str) -> Any:
    return producer.DelayResult(code=OK, msg="OK", uniqDelayMsgId=delay_id)
