"""Where a group begins in a queue."""

from __future__ import annotations

from broker_core.client import BrokerClient
from broker_core.names import Group, QueueName, Topic
from proxy.core.records.replay import LastOwner
from proxy.settings.groups import GroupSettings
from proxy.upstream.context import UpstreamContext


async def start_offset(
    context: UpstreamContext,
    group: GroupSettings,
    queue: QueueName,
    *,
    last: LastOwner | None = None,
) -> tuple[int, int]:
    """The committed offset (as the broker stores it) and the offset to start from. *last*: what
    the records say of the owner before.

    A group that never owned a queue of the topic begins at ``start_from``, in all of the topic's
    queues at once and committed at once: a crash before the first message must not move "latest".
    All that comes before the first ownership record, so whoever sees a record sees these offsets
    too. A queue that came later begins with its first message. Each owner writes down where it
    began, so a broker that forgets the commit does not move it. The first owner in another
    incarnation of the topic begins with the first message: what is committed there may have come
    late, of a message that is gone. Raises RemotingError.

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
    begins_life = last is not None and last.begins_life
    if last is not None and last.life is not None:
        begins_life &= last.own.life != last.life  # what owners in this life committed counts
    if committed is None or begins_life:
        start = await client.min_offset(queue)
    else:
        start = committed
    return committed or 0, max(start, _began(last))


def _began(last: LastOwner | None) -> int:
    """Where the owner before began, if no record says more."""
    if last is None or last.snapshot is not None or last.damage is not None:
        return 0
    return last.own.start if last.own.start is not None and last.own.life == last.life else 0


async def _commit_all(client: BrokerClient, group: GroupSettings, topic: Topic) -> None:
    name = Group(group.name)
    for each in await client.queues(topic):
        if not await client.has_committed(name, each):
            life, first = await client.life(each), await _first(client, group, each)
            await client.commit_offset(name, each, first, life=life, at_once=True)


async def _first(client: BrokerClient, group: GroupSettings, queue: QueueName) -> int:
    if group.start_ms is not None:
        return await client.offset_at(queue, group.start_ms)
    return await client.max_offset(queue)
