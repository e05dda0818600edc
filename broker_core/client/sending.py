"""Sends one message, or a batch, to one queue."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from broker_core.client.message_ids import MessageIds
from broker_core.client.requests import BrokerRequests
from broker_core.client.results import EncodedReceipt, SendReceipt, SendStatus
from broker_core.clock import wall_ms
from broker_core.errors import LocalProtocolError
from broker_core.names import Group, QueueName
from broker_core.remoting.codes import RequestCode
from broker_core.remoting.headers import LIFE, MODEL_TOPIC, SendMessageHeader, SendMessageResponse
from broker_core.remoting.message import UNIQ_KEY, OutgoingMessage
from broker_core.remoting.message_batch import encode_batch

_STATUSES = {int(status.value): status for status in SendStatus}
message_ids = MessageIds()

#: Least time for a repeated send, in s: one that ends before its answer comes is in doubt.
LEAST_TRY_S = 0.05

#: Template topics: with the first, a broker that creates topics on sends gives a new one all queues
#: allowed; the second does not exist and prevents the creation.
_ALL_QUEUES, _NO_MODEL = 1024, "#"


def size_of(message: OutgoingMessage) -> int:
    """Return the bytes of body and properties. Raise LocalProtocolError if it cannot be encoded."""
    return len(message.body) + len(message.encoded_properties())


def with_id(message: OutgoingMessage) -> OutgoingMessage:
    """Return *message* with a UNIQ_KEY, keeping an existing one, so that retries share it."""
    if UNIQ_KEY in message.properties:
        return message
    return replace(message, properties={**message.properties, UNIQ_KEY: message_ids.new()})


async def send(
    requests: BrokerRequests,
    queue: QueueName,
    message: OutgoingMessage,
    *,
    group: Group,
    timeout_s: float | None,
    may_create: bool,
    life: int | None = None,
) -> SendReceipt:
    """Send *message*; return once the broker has stored it.

    *may_create*: let the broker create a missing topic, if it does so on sends. *life*: as in
    ``BrokerClient.send``.
    """
    message = with_id(message)
    try:
        properties = message.encoded_properties().decode()
    except UnicodeDecodeError:  # a header is text; the body of a batch takes any bytes
        (receipt,) = await send_batch(
            requests,
            queue,
            [message],
            group=group,
            timeout_s=timeout_s,
            may_create=may_create,
            life=life,
        )
        return receipt
    header = SendMessageHeader(
        producer_group=group,
        topic=queue.topic,
        default_topic=MODEL_TOPIC if may_create else _NO_MODEL,
        default_topic_queue_nums=_ALL_QUEUES,
        queue_id=queue.queue_id,
        sys_flag=message.sys_flag,
        born_timestamp=message.born_ms or wall_ms(),
        flag=message.flag,
        properties=properties,
    )
    answer = await requests.ask(
        queue.broker,
        RequestCode.SEND_MESSAGE_V2,
        _in_life(header, life),
        body=message.body,
        ok=_STATUSES,
        timeout_s=timeout_s,
    )
    place = SendMessageResponse.from_ext(answer.ext)
    return SendReceipt(
        queue=queue._replace(queue_id=place.queue_id),
        offset=place.queue_offset,
        message_id=message.properties[UNIQ_KEY],
        offset_message_id=place.msg_id,
        status=_STATUSES[answer.code],
        recall_handle=place.recall_handle,
    )


async def send_batch(
    requests: BrokerRequests,
    queue: QueueName,
    messages: Sequence[OutgoingMessage],
    *,
    group: Group,
    timeout_s: float | None,
    may_create: bool,
    life: int | None = None,
) -> list[SendReceipt]:
    """Send *messages* in one request: stored all or none, at consecutive offsets.

    *may_create*, *life*: as in ``send``.
    """
    if not messages:
        return []
    sys_flag = messages[0].sys_flag
    if any(each.topic != queue.topic or each.sys_flag != sys_flag for each in messages):
        raise LocalProtocolError(
            f"a batch holds messages of one kind and one topic, here {queue.topic}"
        )
    messages = [with_id(message) for message in messages]
    place, status = await _send_body(
        requests,
        queue,
        encode_batch(messages),
        sys_flag=sys_flag,
        born_ms=messages[0].born_ms or wall_ms(),
        group=group,
        timeout_s=timeout_s,
        may_create=may_create,
        life=life,
    )
    return _batch_receipts(queue, messages, place, status)


async def send_encoded(
    requests: BrokerRequests,
    queue: QueueName,
    body: bytes,
    *,
    born_ms: int,
    group: Group,
    timeout_s: float | None,
    may_create: bool,
) -> EncodedReceipt:
    """Send the messages of *body*, the body of a batch, in one request: stored all or none.

    *born_ms*: their time of birth, since 1970. *may_create*: as in ``send``.
    """
    place, status = await _send_body(
        requests,
        queue,
        body,
        born_ms=born_ms,
        group=group,
        timeout_s=timeout_s,
        may_create=may_create,
    )
    return EncodedReceipt(queue._replace(queue_id=place.queue_id), place.queue_offset, status)


async def _send_body(
    requests: BrokerRequests,
    queue: QueueName,
    body: bytes,
    *,
    born_ms: int,
    group: Group,
    timeout_s: float | None,
    may_create: bool,
    sys_flag: int = 0,
    life: int | None = None,
) -> tuple[SendMessageResponse, SendStatus]:
    """Send the *body* of a batch; return where its messages are."""
    header = SendMessageHeader(
        producer_group=group,
        topic=queue.topic,
        default_topic=MODEL_TOPIC if may_create else _NO_MODEL,
        default_topic_queue_nums=_ALL_QUEUES,
        queue_id=queue.queue_id,
        sys_flag=sys_flag,
        born_timestamp=born_ms,
        batch=True,
    )
    answer = await requests.ask(
        queue.broker,
        RequestCode.SEND_BATCH_MESSAGE,
        _in_life(header, life),
        body=body,
        ok=_STATUSES,
        timeout_s=timeout_s,
    )
    return SendMessageResponse.from_ext(answer.ext), _STATUSES[answer.code]


def _in_life(header: SendMessageHeader, life: int | None) -> dict[str, str]:
    ext = header.to_v2()
    return ext if life is None else {**ext, LIFE: str(life)}


def _batch_receipts(
    queue: QueueName,
    messages: Sequence[OutgoingMessage],
    place: SendMessageResponse,
    status: SendStatus,
) -> list[SendReceipt]:
    stored_ids = place.msg_id.split(",")
    if len(stored_ids) != len(messages):  # 5.x returns one id for some batches
        stored_ids = [place.msg_id] * len(messages)
    return [
        SendReceipt(
            queue=queue._replace(queue_id=place.queue_id),
            offset=place.queue_offset + index,
            message_id=message.properties[UNIQ_KEY],
            offset_message_id=stored_id,
            status=status,
        )
        for index, (message, stored_id) in enumerate(zip(messages, stored_ids, strict=True))
    ]
