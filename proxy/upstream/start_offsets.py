"""Where a group begins in a queue."""

from __future__ import annotations

from broker_core.client import BrokerClient
from broker_core.names import Group, QueueName
from proxy.settings import GroupSettings


async def start_offset(
    client: BrokerClient, group: GroupSettings, queue: QueueName
) -> tuple[int, int]:
    """The committed offset (as the broker stores it) and the offset to start from.

    A group that never committed anything of the topic begins at ``start_from``, in all of the
    topic's queues at once and committed at once: a crash before the first message must not move
    "latest". A queue that came later begins with its first message. Raises RemotingError.
    """
    name = Group(group.name)
    committed = await client.committed_offset(name, queue)
    if committed is None:
        if group.start_from != "earliest" and not await _began(client, name, queue):
            for each in await client.queues(queue.topic):
                if await client.committed_offset(name, each) is None:
                    await client.commit_offset(name, each, await _first(client, group, each))
            committed = await client.committed_offset(name, queue)
        if committed is None:
            committed = 0
    return committed, max(committed, await client.min_offset(queue))


async def _began(client: BrokerClient, group: Group, queue: QueueName) -> bool:
    for each in await client.queues(queue.topic):
        if await client.committed_offset(group, each) is not None:
            return True
    return False


async def _first(client: BrokerClient, group: GroupSettings, queue: QueueName) -> int:
    if group.start_ms is not None:
        return await client.offset_at(queue, group.start_ms)
    return await client.max_offset(queue)
