"""Whether the queue that a send was for is elsewhere now, or nowhere.

A route is up to 30 s old. Meanwhile a topic may be deleted and made again with fewer queues or on
other brokers, a queue be taken away, a broker leave. What a broker refuses for such a reason, or
what never reached one, is not stored: a queue may be chosen again.
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

#: Pauses between sends to queues that are not there, in seconds.
_PAUSES_S = (0.05, 0.1, 0.2, 0.4, 0.8)
T = TypeVar("T")


def is_in_doubt(error: RemotingError) -> bool:
    """True if what was sent may be stored, although *error* came of it."""
    return isinstance(error, ConnectionLost | RequestTimeout) and not isinstance(
        error, NotConnected
    )


def says_not_there(error: RemotingError) -> bool:
    """True if nothing was stored, for want of the topic, the queue or its broker."""
    return isinstance(error, NotConnected) or (
        isinstance(error, BrokerError) and error.says_missing
    )


async def has_moved(client: BrokerClient, queue: QueueName, error: RemotingError) -> bool:
    """True if a send to *queue* that ended by *error* stored nothing and should go where its topic
    is now: the route of *client* was asked for anew.

    False for other errors, and if the route still has the queue of a broker that cannot be reached,
    or that forbids the send.
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
    """Return what *send* does with the queue of *find_queue*, which is asked again, for 1.5 s, when
    that queue has moved. Raises the last one's RemotingError.
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
