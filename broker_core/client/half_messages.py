"""Half messages: stored invisibly for consumers, then committed or rolled back."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import replace

from broker_core.client.broker_client import BrokerClient
from broker_core.client.queue_moves import send_where_it_is
from broker_core.client.results import SendReceipt, SendStatus
from broker_core.clock import now_ns
from broker_core.errors import BrokerError, NotSent, RemotingError, RequestTimeout
from broker_core.names import Group, QueueName
from broker_core.remoting.codes import RequestCode
from broker_core.remoting.half_place import HalfPlace
from broker_core.remoting.message import SYS_TRANSACTION_PREPARED, OutgoingMessage
from broker_core.remoting.transaction_headers import End, EndTransactionHeader

#: The property with the producer group of a half message.
PRODUCER_GROUP = "PGROUP"
_PREPARED = "TRAN_MSG"
_IMMUNITY = "CHECK_IMMUNITY_TIME_IN_SECONDS"


async def prepare(
    client: BrokerClient,
    message: OutgoingMessage,
    find_queue: Callable[[], Awaitable[QueueName]],
    *,
    group: Group,
    check_after_s: int | None = None,
    timeout_s: float | None = None,
) -> SendReceipt:
    """Store *message* invisibly, once, in the queue that *find_queue* returns.

    After ConnectionLost or RequestTimeout that is not ``unsent`` it may be stored: the broker asks
    *group*, and the answer must be a roll-back. Raises RemotingError; NotSent if it was stored less
    durably than the broker requires, and rolled back. *timeout_s* limits all of it.

    *check_after_s*: seconds before the broker's first question, instead of its default (6).
    """
    properties = {**message.properties, _PREPARED: "true", PRODUCER_GROUP: group}
    if check_after_s is not None:
        properties[_IMMUNITY] = str(check_after_s)
    half = replace(message, properties=properties, sys_flag=SYS_TRANSACTION_PREPARED)
    began_ns = now_ns()
    receipt = await send_where_it_is(
        client,
        find_queue,
        lambda queue, left_s: client.send(queue, half, group=group, timeout_s=left_s),
        timeout_s=timeout_s,
    )
    if receipt.status is not SendStatus.OK:
        if timeout_s is not None:
            timeout_s = max(0.001, timeout_s - (now_ns() - began_ns) / 1e9)
        await _roll_back(client, place_of_half(receipt, group), timeout_s)
        raise NotSent("stored less durably than required, and so rolled back")
    return receipt


async def _roll_back(client: BrokerClient, place: HalfPlace, timeout_s: float | None) -> None:
    """Roll the transaction of *place* back. Raises RequestTimeout if it may stay open: the broker
    asks.
    """
    try:
        await end(client, place, End.ROLLBACK, timeout_s=timeout_s)
    except RemotingError as error:
        if isinstance(error, BrokerError) and error.says_stored:
            return
        raise RequestTimeout(
            f"stored less durably than required, and perhaps not rolled back: {error}"
        ) from None


def place_of_half(receipt: SendReceipt, group: Group) -> HalfPlace:
    """Return the place of the half message that *receipt* confirms."""
    return HalfPlace(
        broker=receipt.queue.broker,
        topic=receipt.queue.topic,
        group=group,
        half_offset=receipt.offset,
        log_offset=int(receipt.offset_message_id[-16:], 16),
        message_id=receipt.message_id,
    )


async def end(
    client: BrokerClient,
    place: HalfPlace,
    how: int,
    *,
    timeout_s: float | None = None,
) -> None:
    """End the transaction of *place* by ``End.COMMIT`` or ``End.ROLLBACK``; return once that is
    stored.

    May be repeated. Raises BrokerError if it ended otherwise before, or its topic was deleted; with
    code 11 or 12 if it is ended but too few replicas have confirmed that yet. Raises ConnectionLost
    or RequestTimeout if the outcome is unknown: the broker will ask.
    """
    header = end_header(place, how)
    await client.requests.ask(
        place.broker, RequestCode.END_TRANSACTION, header.to_ext(), timeout_s=timeout_s
    )


def end_header(place: HalfPlace, how: int) -> EndTransactionHeader:
    """Return the header that ends the transaction of *place*."""
    return EndTransactionHeader(
        producer_group=place.group,
        tran_state_table_offset=place.half_offset,
        commit_log_offset=place.log_offset,
        commit_or_rollback=how,
        from_transaction_check=place.asked,
        msg_id=place.message_id,
        transaction_id=place.message_id,
        topic=place.topic,
    )
