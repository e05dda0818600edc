"""Detects that the queue of a send has moved or was deleted.

A route is up to 30 s old. Meanwhile a topic may be deleted and created again with fewer queues or
on other brokers, a queue be removed, or a broker leave. A send refused for such a reason, or that
never reached a broker, was not stored: another queue may be chosen.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import TypeVar

from broker_core.client.broker_client import BrokerClient
from broker_core.errors import (
    BrokerError,
    ConnectionLost,
    NotConnected,
    RemotingError,
    RequestTimeout,
)
from broker_core.names import QueueName

#: Pauses between sends to missing queues, in seconds.
_PAUSES_S = (0.05, 0.1, 0.2, 0.4, 0.8)
T = TypeVar("T")


def is_in_doubt(error: RemotingError) -> bool:
    """Return whether the message may be stored in spite of *error*."""
    if isinstance(error, BrokerError):
        return error.says_unconfirmed
    return isinstance(error, ConnectionLost | RequestTimeout) and not isinstance(
        error, NotConnected
    )


def says_not_there(error: RemotingError) -> bool:
    """Return whether nothing was stored because topic, queue or broker is missing."""
    return isinstance(error, NotConnected) or (
        isinstance(error, BrokerError) and error.says_missing
    )


async def has_moved(client: BrokerClient, queue: QueueName, error: RemotingError) -> bool:
    """Return whether a send to *queue* that failed with *error* should use the topic's new route.

    If so, nothing was stored, and *client* has already fetched the route. False for other errors,
    and if the route still contains the queue of a broker that cannot be reached, or that forbids
    the send.
    """
    forbidden = isinstance(error, BrokerError) and error.says_forbidden
    if not (forbidden or says_not_there(error)):
        return False
    try:
        route = await client.writable_queues(queue.topic, fresh=True)
    except BrokerError as unknown:
        return unknown.says_missing
    except RemotingError:
        return False
    return queue not in route or (isinstance(error, BrokerError) and error.says_missing)


async def send_where_it_is(
    client: BrokerClient,
    find_queue: Callable[[], Awaitable[QueueName]],
    send: Callable[[QueueName], Awaitable[T]],
) -> T:
    """Call *send* with the queue of *find_queue*; repeat both for 1.5 s while that queue has moved.

    Returns the result, or raises the last RemotingError.
    """
    for pause_s in _PAUSES_S:
        queue = await find_queue()
        try:
            return await send(queue)
        except RemotingError as error:
            if not await has_moved(client, queue, error):
                raise
        await asyncio.sleep(pause_s)
    return await send(await find_queue())
