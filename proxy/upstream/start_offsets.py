"""Where a group begins in a queue."""

from __future__ import annotations

from broker_core.client import BrokerClient
from broker_core.names import Group, QueueName
from proxy.group_settings import GroupSettings
from proxy.upstream.ownership_log import OwnershipLog


async def start_offset(
    client: BrokerClient, log: OwnershipLog, group: GroupSettings, queue: QueueName
) -> tuple[int, int]:
    """The committed offset (as the broker stores it) and the offset to start from.

    A group that never owned a queue of the topic begins at ``start_from``, in all of the topic's
    queues at once and committed at once: a crash before the first message must not move "latest".
    All that comes before the first ownership record, so whoever sees a record sees these offsets
    too. A queue that came later begins with its first message. Raises RemotingError.

    Stored messages that the group needs and that are deleted by now are left to the reader, which
    says so.
    """
    name = Group(group.name)
    committed = await client.committed_offset(name, queue)
    if not committed and group.start_from != "earliest":
        if not await log.any_owner(name, queue.topic):
            for each in await client.queues(queue.topic):
                if not await client.has_committed(name, each):
                    await client.commit_offset(name, each, await _first(client, group, each))
        committed = await client.committed_offset(name, queue)
    if committed is None:
        return 0, await client.min_offset(queue)
    return committed, committed


async def _first(client: BrokerClient, group: GroupSettings, queue: QueueName) -> int:
    if group.start_ms is not None:
        return await client.offset_at(queue, group.start_ms)
    return await client.max_offset(queue)
