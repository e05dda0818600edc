"""Where a group begins in a queue."""

from __future__ import annotations

from broker_core.client import BrokerClient
from broker_core.names import Group, QueueName, Topic
from proxy.group_settings import GroupSettings
from proxy.upstream.context import UpstreamContext


async def start_offset(
    context: UpstreamContext, group: GroupSettings, queue: QueueName
) -> tuple[int, int]:
    """The committed offset (as the broker stores it) and the offset to start from.

    A group that never owned a queue of the topic begins at ``start_from``, in all of the topic's
    queues at once and committed at once: a crash before the first message must not move "latest".
    All that comes before the first ownership record, so whoever sees a record sees these offsets
    too. A queue that came later begins with its first message. Raises RemotingError.

    Stored messages that the group needs and that are deleted by now are left to the reader, which
    says so.
    """
    client, name = context.client, Group(group.name)
    committed = await client.committed_offset(name, queue)
    if not committed and group.start_from != "earliest":
        async with context.take_overs.first_start(name, queue.topic) as first:
            if first and not await context.log.any_owner(name, queue.topic):
                await _commit_all(client, group, queue.topic)
        committed = await client.committed_offset(name, queue)
    if committed is None:
        return 0, await client.min_offset(queue)
    return committed, committed


async def _commit_all(client: BrokerClient, group: GroupSettings, topic: Topic) -> None:
    name = Group(group.name)
    for each in await client.queues(topic):
        if not await client.has_committed(name, each):
            await client.commit_offset(name, each, await _first(client, group, each))


async def _first(client: BrokerClient, group: GroupSettings, queue: QueueName) -> int:
    if group.start_ms is not None:
        return await client.offset_at(queue, group.start_ms)
    return await client.max_offset(queue)
