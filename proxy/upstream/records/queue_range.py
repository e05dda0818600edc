"""Reads a range of a queue completely, and finds the end of a queue."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from dataclasses import replace

from broker_core.client import BrokerClient, PullResult
from broker_core.clock import now_ns
from broker_core.errors import RequestTimeout
from broker_core.names import Group, QueueName
from broker_core.remoting.message import StoredMessage

_AT_ONCE = 256
#: Maximum time until a stored message becomes visible.
_SHOWN_WITHIN_NS = 3_000_000_000
#: Interval of checks for it.
_LOOK_AGAIN_S = 0.01


async def shown_end(client: BrokerClient, queue: QueueName, *, stored: int) -> int:
    """Return the end offset of *queue*. Raises RemotingError.

    Apache RocketMQ shows a message a moment after it is stored: waits up to 3 s until the end is at
    least *stored*.
    """
    deadline_ns = now_ns() + _SHOWN_WITHIN_NS
    while True:
        end = await client.max_offset(queue)
        if end >= stored or now_ns() >= deadline_ns:
            return end
        await asyncio.sleep(_LOOK_AGAIN_S)


async def read_range(
    client: BrokerClient, queue: QueueName, *, group: Group, start: int, end: int
) -> AsyncIterator[StoredMessage]:
    """Yield the messages of *queue* from offset *start* to below *end*, all of which are stored.

    Messages deleted by retention are left out. Raises RemotingError.
    """
    async for result in pull_range(client, queue, group=group, start=start, end=end):
        for message in result.messages:
            yield message


async def pull_range(
    client: BrokerClient, queue: QueueName, *, group: Group, start: int, end: int
) -> AsyncIterator[PullResult]:
    """Yield the answers that contain the messages of ``read_range``; at least one if *start* is
    below *end*. Raises RemotingError.
    """
    offset = start
    deadline_ns = now_ns() + _SHOWN_WITHIN_NS
    while offset < end:
        most = min(end - offset, _AT_ONCE)
        result = await client.pull(
            queue, group=group, offset=offset, max_messages=most, suspend_ms=0
        )
        if result.messages and result.messages[-1].queue_offset >= end:  # some are deleted
            below = [each for each in result.messages if each.queue_offset < end]
            result = replace(result, messages=below)
        if result.next_offset > offset:
            offset = result.next_offset
            deadline_ns = now_ns() + _SHOWN_WITHIN_NS
            yield result
        elif now_ns() < deadline_ns:
            await asyncio.sleep(_LOOK_AGAIN_S)
        else:
            raise RequestTimeout(f"{queue}: message {offset} is stored but not visible after 3 s")
