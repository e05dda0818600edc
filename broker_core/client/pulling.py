"""Pulls from one queue: the request and the interpretation of the answer."""

from __future__ import annotations

from contextlib import suppress
from operator import attrgetter

from broker_core.client.requests import BrokerRequests
from broker_core.client.resets import reset_ignored
from broker_core.client.results import PulledRecords, PullResult, PullStatus
from broker_core.errors import BrokerError, RemoteProtocolError
from broker_core.names import Group, QueueName
from broker_core.remoting import headers
from broker_core.remoting.codes import RequestCode, ResponseCode, request_name
from broker_core.remoting.message import StoredMessage, decode_message, decode_messages

_STATUSES = frozenset(PullStatus)
#: Answers without messages that move the reader. A slave of Apache RocketMQ, also one that acts as
#: master or was master before, moves no reader: it repeats the offset that was asked for.
_MOVES = (PullStatus.NO_MATCH, PullStatus.OFFSET_ILLEGAL)
#: Remark of Apache RocketMQ 5 to the first pull after an administrator reset the group's offset.
_RESET = "OFFSET_RESET"
_size_of = attrgetter("size")
# Apache RocketMQ checks held pulls every 5 s only, so their answers may be that late.
ANSWER_S = 10.0
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
    """Pull once. *max_bytes* is a request that brokers before 5.1 ignore. Raise RemotingError, also
    for an answer of Apache RocketMQ that is not about the messages at *offset*.
    """
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
        timeout_s=suspend_ms / 1000 + ANSWER_S if timeout_s is None else timeout_s,
    )
    place = headers.PullMessageResponse.from_ext(answer.ext)
    status = PullStatus(answer.code)
    if status in _MOVES:
        if answer.remark == _RESET:
            raise reset_ignored(group, queue, to=place.next_begin_offset)
        if place.next_begin_offset == offset:
            raise BrokerError(
                ResponseCode.SERVICE_NOT_AVAILABLE,
                f"broker {queue.broker} has not offset {offset} of {queue}, or not yet: a replica"
                " that is not the master answers",
                request=request_name(RequestCode.PULL_MESSAGE),
            )
    return PulledRecords(
        status=status,
        records=bytes(answer.body) if status is PullStatus.FOUND else b"",
        next_offset=place.next_begin_offset,
        min_offset=place.min_offset,
        max_offset=place.max_offset,
        life=place.life,
        damage=answer.remark or "" if status is PullStatus.DAMAGED else "",
    )


def decoded(pulled: PulledRecords, offset: int) -> PullResult:
    """Decode the messages of *pulled* from *offset* on. Raise RemoteProtocolError if its records
    are invalid.

    Apache RocketMQ's brokers do not verify bodies: the messages before a body that does not match
    its checksum are returned, or, if it is that of *offset*, DAMAGED. If inflated bodies exceed the
    limit, returns the first messages only; a pull at ``next_offset`` returns the others.
    """
    try:
        messages = decode_messages(
            pulled.records, check_bodies=True, most_inflated_bytes=INFLATED_BYTES
        )
    except RemoteProtocolError as error:
        return _before_damage(pulled, offset, error)
    next_offset = pulled.next_offset
    if sum(map(_size_of, messages)) < len(pulled.records):
        next_offset = messages[-1].queue_offset + 1
    return PullResult(
        status=pulled.status,
        messages=messages,
        next_offset=next_offset,
        min_offset=pulled.min_offset,
        max_offset=pulled.max_offset,
        life=pulled.life,
        damage=pulled.damage,
    )


def _before_damage(pulled: PulledRecords, offset: int, error: RemoteProtocolError) -> PullResult:
    """Return the messages before the first invalid one. Raise *error* unless that is legible."""
    data, position = pulled.records, 0
    messages: list[StoredMessage] = []
    with suppress(RemoteProtocolError):
        while position < len(data):
            messages.append(decode_message(data, position, check_crc=True))
            position += messages[-1].size
    damage = ""
    if messages:
        status, next_offset = pulled.status, messages[-1].queue_offset + 1
    else:
        try:
            found = decode_message(data, plain=False)
        except RemoteProtocolError:
            raise error from None
        status, next_offset = PullStatus.DAMAGED, found.queue_offset + 1
        if found.queue_offset > offset:  # those before it were left out, and are intact
            status, next_offset = PullStatus.NO_MATCH, found.queue_offset
    if status is PullStatus.DAMAGED:
        damage = (
            f"message {found.queue_offset} of queue {found.queue_id} of topic {found.topic} is"
            f" damaged at offset {found.physical_offset} of the broker's log: its body does not"
            " match its checksum"
        )
    return PullResult(
        status=status,
        messages=messages,
        next_offset=next_offset,
        min_offset=pulled.min_offset,
        max_offset=pulled.max_offset,
        life=pulled.life,
        damage=damage,
    )
