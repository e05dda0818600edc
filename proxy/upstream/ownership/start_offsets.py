"""The offset at which a group begins to read a queue."""

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
    """Return the committed offset, as the broker stores it, and the offset to start from.

    *last*: state in the records of the previous owner. Raises RemotingError.

    A group that never owned a queue of the topic begins at ``start_from``, in all queues of the
    topic at once, and commits that: a crash before the first message must not move "latest". This
    precedes the first ownership record, so an owner that sees a record also sees these offsets. A
    queue added later begins with its first message. Each owner records where it began, so a broker
    that loses the commit does not move it, and one that loses the commit of a reset does not undo
    the reset. The first owner in another life of the topic begins with the first message: the
    committed offset may be a late one of the previous life.

    Stored messages that the group needs and retention has deleted are left to the reader, which
    reports them.
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
        begins_life &= last.own.life != last.life  # commits of owners in this life count
    if committed is None or begins_life:
        start = await client.min_offset(queue)
    else:
        start = committed
        if last is not None and last.snapshot is not None:
            start = last.snapshot.begins_at(committed)
    return committed or 0, max(start, _began(last))


def _began(last: LastOwner | None) -> int:
    """Return where the previous owner began, unless a record contains more."""
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
