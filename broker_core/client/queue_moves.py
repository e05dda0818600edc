"""Detects that the queue of a send has moved or was deleted.

A route is up to 30 s old. Meanwhile a topic may be deleted and created again with fewer queues or
on other brokers, a queue be removed, or a broker leave. A send refused for such a reason, or that
never reached a broker, was not stored: another queue may be chosen.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from typing import TypeVar

from broker_core.client.broker_client import BrokerClient
from broker_core.clock import now_ns
from broker_core.errors import (
    BrokerError,
    NotConnected,
    NotSent,
    RemotingError,
)
from broker_core.names import QueueName

#: Pauses between sends to missing queues, in seconds.
_PAUSES_S = (0.05, 0.1, 0.2, 0.4, 0.8)
T = TypeVar("T")


def is_in_doubt(error: RemotingError) -> bool:
    """Return whether the message may be stored in spite of *error*."""
    if isinstance(error, BrokerError):
        return error.says_unconfirmed or error.says_stored
    return not (error.unsent or error.illegal)


def says_not_there(error: RemotingError) -> bool:
    """Return whether nothing was stored because topic, queue or broker is missing."""
    return isinstance(error, NotConnected) or (
        isinstance(error, BrokerError) and error.says_missing
    )


@contextmanager
def before_a_send() -> Iterator[None]:
    """Raise NotSent for an error of the block that leaves its own request's effect unknown: nothing
    of the message is sent in it.
    """
    try:
        yield
    except RemotingError as error:
        if not is_in_doubt(error):
            raise
        raise NotSent(f"not sent: {error}") from None


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
    send: Callable[[QueueName, float | None], Awaitable[T]],
    *,
    timeout_s: float | None = None,
) -> T:
    """Call *send* with the queue of *find_queue*; repeat both for 1.5 s while that queue has moved.

    Returns the result, or raises the last RemotingError; NotSent if no queue was found. *send* has
    to keep the time limit that it gets, what is left of *timeout_s* (None: no limit): whether a
    send that takes longer has any effect is for it to say.
    """
    deadline_ns = None if timeout_s is None else now_ns() + int(timeout_s * 1e9)
    for pause_s in _PAUSES_S:
        queue = await _found(find_queue, _left_s(deadline_ns))
        try:
            return await send(queue, _left_s(deadline_ns))
        except RemotingError as error:
            if not await _may_repeat(client, queue, error, deadline_ns, pause_s):
                raise
        await asyncio.sleep(pause_s)
    queue = await _found(find_queue, _left_s(deadline_ns))
    return await send(queue, _left_s(deadline_ns))


async def _found(find_queue: Callable[[], Awaitable[QueueName]], left_s: float | None) -> QueueName:
    """Return the queue of *find_queue*. Raises NotSent if it takes longer than *left_s*."""
    try:
        async with asyncio.timeout(left_s):
            with before_a_send():
                return await find_queue()
    except TimeoutError:
        raise NotSent(f"not sent: no queue was found within {left_s or 0:.3g} s") from None


async def _may_repeat(
    client: BrokerClient,
    queue: QueueName,
    error: RemotingError,
    deadline_ns: int | None,
    pause_s: float,
) -> bool:
    """Return whether the queue of a send that failed with *error* has moved, and time is left for
    another one after *pause_s*.
    """
    try:
        async with asyncio.timeout(_left_s(deadline_ns)):
            moved = await has_moved(client, queue, error)
    except TimeoutError:
        return False
    left_s = _left_s(deadline_ns)
    return moved and (left_s is None or left_s > pause_s)


def _left_s(deadline_ns: int | None) -> float | None:
    return None if deadline_ns is None else max(0.001, (deadline_ns - now_ns()) / 1e9)
