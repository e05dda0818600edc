"""Distinguishes lives of topics at brokers without lives, such as Apache's, by log offsets.

A broker has one log, so messages stored later have a higher log offset, whatever their queue
offsets are. A message at a queue offset is the same as before only if it has the same log offset; a
message finished when an ownership record was made has a lower log offset than the record.
"""

from __future__ import annotations

from broker_core.client import BrokerClient, PullResult, PullStatus, TopicLife
from broker_core.errors import RemotingError
from broker_core.names import Group, QueueName
from broker_core.remoting.message import StoredMessage
from proxy.core.records.record import Anchor
from proxy.core.records.replay import LastOwner


async def is_another(
    client: BrokerClient, group: Group, queue: QueueName, anchor: Anchor, *, end: int | None = None
) -> bool:
    """Return True if *queue* is in another life than the message *anchor*.

    *end*: the end offset, if it is below the anchor. False if it is unknown, because retention
    deleted the message.
    """
    at = anchor.offset if end is None else end - 1
    message = await _at(client, group, queue, at)
    if message is None:
        return False
    if at == anchor.offset:
        return message.physical_offset != anchor.log_offset
    return message.physical_offset > anchor.log_offset


async def is_another_now(
    client: BrokerClient, group: Group, queue: QueueName, anchor: Anchor
) -> bool:
    """Return the same as ``is_another`` of a queue whose end is not known. Raises RemotingError."""
    end = await client.max_offset(queue)
    below = end if end <= anchor.offset else None
    return await is_another(client, group, queue, anchor, end=below)


def shows_another(result: PullResult, anchor: Anchor, *, asked: int) -> bool:
    """Return True if *result*, of a pull at an offset *asked* below *anchor*, is of another life:
    messages from there on are newer than *anchor*, or there are none.
    """
    if result.status is PullStatus.OFFSET_ILLEGAL and result.next_offset < asked:
        return True
    return any(
        each.physical_offset > anchor.log_offset
        for each in result.messages
        if each.queue_offset <= anchor.offset
    )


async def in_life(
    client: BrokerClient,
    group: Group,
    queue: QueueName,
    last: LastOwner | None,
    *,
    life: TopicLife,
) -> LastOwner | None:
    """Return the part of *last* that counts in *life* of the topic; without a number: decide by log
    offsets.

    Raises RemotingError.
    """
    if last is None or life.number is not None:
        return None if last is None else last.in_life(life.number, former=life.former)
    return last.in_new_life(None) if await _is_of_another(client, group, queue, last) else last


async def _is_of_another(
    client: BrokerClient, group: Group, queue: QueueName, last: LastOwner
) -> bool:
    """Return True if *queue* is in another life than *last*.

    Then a message read by its owner has another log offset, or a finished one is newer than its
    last record. Raises RemotingError.
    """
    snapshot = last.snapshot
    if snapshot is None:
        return False
    if (anchor := snapshot.anchor) is not None:
        return await is_another_now(client, group, queue, anchor)
    end = await client.max_offset(queue)
    if last.log_offset is None:
        return False
    message = await _at(client, group, queue, min(snapshot.base, end) - 1)
    return message is not None and message.physical_offset > last.log_offset


async def _at(
    client: BrokerClient, group: Group, queue: QueueName, offset: int
) -> StoredMessage | None:
    if offset < 0:
        return None
    try:
        found = await client.pull(queue, group=group, offset=offset, max_messages=1, suspend_ms=0)
    except RemotingError:
        return None  # the next read asks again
    return next((each for each in found.messages if each.queue_offset == offset), None)
