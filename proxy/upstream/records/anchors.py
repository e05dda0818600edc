"""Lives of topics at brokers that do not tell them apart, as Apache's: by places in their log.

A broker has one log, so what was stored later stands behind it, whatever offsets it has in its
queue. The message at an offset is the one that was there before only if it stands at the same place
of the log; and one that was finished when an ownership record was made stands ahead of that record.
"""

from __future__ import annotations

from broker_core.client import BrokerClient
from broker_core.errors import RemotingError
from broker_core.names import Group, QueueName
from broker_core.remoting.message import StoredMessage
from proxy.core.records.record import Anchor
from proxy.core.records.replay import LastOwner


async def is_another(
    client: BrokerClient, group: Group, queue: QueueName, anchor: Anchor, *, end: int | None = None
) -> bool:
    """True if *queue* is of another life than the message *anchor* was. *end*: where it ends, if
    that is below it. False if nobody can say, for retention deleted what stood there.
    """
    at = anchor.offset if end is None else end - 1
    message = await _at(client, group, queue, at)
    if message is None:
        return False
    if at == anchor.offset:
        return message.physical_offset != anchor.log_offset
    return message.physical_offset > anchor.log_offset


async def in_life(
    client: BrokerClient,
    group: Group,
    queue: QueueName,
    last: LastOwner | None,
    *,
    life: int | None,
) -> LastOwner | None:
    """What counts of *last* in *life* of the topic; None: by what stands in *queue*. Raises
    RemotingError.
    """
    if last is None or life is not None:
        return None if last is None else last.in_life(life)
    return last.begun_anew(None) if await _is_of_another(client, group, queue, last) else last


async def _is_of_another(
    client: BrokerClient, group: Group, queue: QueueName, last: LastOwner
) -> bool:
    """True if *queue* is of another life than what *last* says: what the owner had read stands
    elsewhere, or what it had finished came later than its last record. Raises RemotingError.
    """
    snapshot = last.snapshot
    if snapshot is None:
        return False
    end = await client.max_offset(queue)
    if (anchor := snapshot.anchor) is not None:
        below = end if end <= anchor.offset else None
        return await is_another(client, group, queue, anchor, end=below)
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
        return None  # asked again with the next read
    return next((each for each in found.messages if each.queue_offset == offset), None)
