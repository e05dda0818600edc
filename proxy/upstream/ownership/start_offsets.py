"""The offset at which a group begins to read a queue."""

from __future__ import annotations

from broker_core.client import BrokerClient
from broker_core.errors import RemotingError
from broker_core.names import Group, QueueName, Topic
from proxy.core.records.replay import LastOwner
from proxy.settings.groups import GroupSettings
from proxy.upstream.context import UpstreamContext

#: By how much the wall clock of a proxy may be ahead of a broker's without loss: messages have the
#: broker's times.
_CLOCKS_DIFFER_MS = 300_000


async def start_offset(
    context: UpstreamContext,
    group: GroupSettings,
    queue: QueueName,
    *,
    last: LastOwner | None = None,
    awaited_ms: int | None = None,
) -> tuple[int, int]:
    """Return the committed offset, as the broker stores it, and the offset to start from.

    *last*: state in the records of the previous owner. *awaited_ms*: the group has waited for the
    topic since then, so "latest" means messages since then, and some before if it was not new, but
    its brokers were away. Raises RemotingError.

    A group that never owned a queue of the topic begins at ``start_from``, in all queues of the
    topic at once, and commits that: a crash before the first message must not move it. This
    precedes the first ownership record, so an owner that sees a record also sees these offsets. A
    queue added later begins with offset 0. Each owner records where it began, so a broker that
    loses the commit does not move it, and one that loses the commit of a reset does not undo the
    reset. The first owner in another life of the topic begins with offset 0: the committed offset
    may be a late one of the previous life.

    Messages that the group needs and retention has deleted are left to the reader, which reports
    them, also those of a queue that had no owner so far.
    """
    client, name = context.client, Group(group.name)
    committed = await client.committed_offset(name, queue)
    if not committed and await _may_begin_later(client, group, queue):
        async with context.take_overs.first_start(name, queue.topic) as first:
            # "earliest" needs no broker but the queue's own.
            strict = group.start_from != "earliest"
            if first and not await context.log.any_owner(name, queue.topic, strict=strict):
                await _commit_all(client, group, queue.topic, awaited_ms)
        committed = await client.committed_offset(name, queue)
    begins_life = last is not None and last.begins_life
    if last is not None and last.life is not None:
        begins_life &= last.own.life != last.life  # commits of owners in this life count
    snapshot = None if last is None else last.snapshot
    if begins_life or (committed is None and snapshot is None):
        start = 0
    elif committed is None:  # its commits were deleted
        start = await client.min_offset(queue)
    else:
        start = committed if snapshot is None else snapshot.begins_at(committed)
    return committed or 0, max(start, _began(last))


async def _may_begin_later(client: BrokerClient, group: GroupSettings, queue: QueueName) -> bool:
    """Return whether a new group may begin to read *queue* later than at offset 0."""
    return group.start_from != "earliest" or await client.min_offset(queue) > 0


def _began(last: LastOwner | None) -> int:
    """Return where the previous owner began, unless a record contains more."""
    if last is None or last.snapshot is not None or last.damage is not None:
        return 0
    return last.own.start if last.own.start is not None and last.own.life == last.life else 0


async def _commit_all(
    client: BrokerClient, group: GroupSettings, topic: Topic, awaited_ms: int | None
) -> None:
    queues, left_out = await client.queues(topic), set[str]()
    for queue in queues:
        if queue.broker in left_out:
            continue
        try:
            await _commit_first(client, group, queue, awaited_ms)
        except RemotingError:
            if group.start_from != "earliest":
                raise
            left_out.add(queue.broker)


async def _commit_first(
    client: BrokerClient, group: GroupSettings, queue: QueueName, awaited_ms: int | None
) -> None:
    name = Group(group.name)
    if await _may_begin_later(client, group, queue) and not await client.has_committed(name, queue):
        life, first = await client.life(queue), await _first(client, group, queue, awaited_ms)
        # Another first owner may have begun meanwhile.
        await client.commit_offset(name, queue, first, life=life, at_once=True, if_none=True)


async def _first(
    client: BrokerClient, group: GroupSettings, queue: QueueName, awaited_ms: int | None
) -> int:
    if group.start_from == "earliest":
        return await client.min_offset(queue)
    since_ms = group.start_ms
    if since_ms is None and awaited_ms is not None:
        since_ms = max(0, awaited_ms - _CLOCKS_DIFFER_MS)
    if since_ms is not None:
        return await client.offset_at(queue, since_ms)
    return await client.max_offset(queue)
