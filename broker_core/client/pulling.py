"""Pulls from one queue: the request and the interpretation of the answer."""

from __future__ import annotations

from broker_core.client.requests import BrokerRequests
from broker_core.client.results import PulledRecords, PullResult, PullStatus
from broker_core.names import Group, QueueName
from broker_core.remoting import headers
from broker_core.remoting.codes import RequestCode
from broker_core.remoting.message import decode_messages

_STATUSES = frozenset(PullStatus)
# Apache RocketMQ checks held pulls every 5 s only, so their answers may be that late.
_ANSWER_S = 10.0
#: Limit of inflated bodies of one answer: a mebibyte may inflate to many gigabytes.
INFLATED_BYTES = 64 * 1024 * 1024


async def pull(
    requests: BrokerRequests,
    queue: QueueName,
    *,
    group: Group,
    offset: int,
    max_messages: int,
    suspend_ms: int,
    tags: str = "*",
    max_bytes: int | None = None,
    timeout_s: float | None = None,
    life: int | None = None,
) -> PulledRecords:
    """Pull once. *max_bytes* is a request that brokers before 5.1 ignore. Raise RemotingError."""
    header = headers.PullMessageHeader(
        consumer_group=group,
        topic=queue.topic,
        queue_id=queue.queue_id,
        queue_offset=offset,
        max_msg_nums=max_messages,
        sys_flag=headers.PullFlag.SUBSCRIPTION | (headers.PullFlag.SUSPEND if suspend_ms else 0),
        commit_offset=0,
        suspend_timeout_millis=suspend_ms,
        subscription=tags,
        sub_version=0,
        expression_type="TAG",
        max_msg_bytes=max_bytes,
        life=life,
    )
    answer = await requests.ask(
        queue.broker,
        RequestCode.PULL_MESSAGE,
        header.to_ext(),
        ok=_STATUSES,
        timeout_s=suspend_ms / 1000 + _ANSWER_S if timeout_s is None else timeout_s,
    )
    place = headers.PullMessageResponse.from_ext(answer.ext)
    status = PullStatus(answer.code)
    return PulledRecords(
        status=status,
        records=bytes(answer.body) if status is PullStatus.FOUND else b"",
        next_offset=place.next_begin_offset,
        min_offset=place.min_offset,
        max_offset=place.max_offset,
        life=place.life,
    )


def decoded(pulled: PulledRecords) -> PullResult:
    """Decode the messages of *pulled*. Raise RemoteProtocolError if its records are invalid.

    If inflated bodies exceed the limit, returns the first messages only; a pull at ``next_offset``
    returns the others.
    """
    messages = decode_messages(pulled.records, most_inflated_bytes=INFLATED_BYTES)
    next_offset = pulled.next_offset
    if sum(message.size for message in messages) < len(pulled.records):
        next_offset = messages[-1].queue_offset + 1
    return PullResult(
        status=pulled.status,
        messages=messages,
        next_offset=next_offset,
        min_offset=pulled.min_offset,
        max_offset=pulled.max_offset,
        life=pulled.life,
    )
