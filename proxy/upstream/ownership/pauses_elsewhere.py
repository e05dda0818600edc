"""Pauses that a queue without records has to begin with, as one that was added to its topic."""

from __future__ import annotations

from collections.abc import Mapping

import structlog

from broker_core.errors import RemotingError
from broker_core.names import Group, QueueName
from proxy.core.records.paused_key import PausedKey
from proxy.upstream.context import UpstreamContext
from proxy.upstream.records.anchors import in_life

_log = structlog.get_logger("ownership")


async def paused_elsewhere(
    context: UpstreamContext, group: Group, queue: QueueName
) -> Mapping[bytes | None, PausedKey]:
    """Return the pauses in the records of the topic's other queues; for a proxy that owns none.

    Operators pause a group or a key in all queues, so one other queue tells: the first of its
    broker or, if that one has no records, of another broker. A broker that does not answer is left
    out, as it must not delay queues of others. Raises RemotingError without any queues.
    """
    firsts: dict[str, QueueName] = {}
    for each in await context.client.queues(queue.topic):
        firsts.setdefault(each.broker, each)
    own = firsts.pop(queue.broker, queue)
    for first in (own, *firsts.values()):
        if first == queue:
            continue
        try:
            last = await context.log.owner(group, first)
            life = await context.client.topic_life(first)
            last = await in_life(context.client, group, first, last, life=life)
        except RemotingError as error:
            _log.warning(
                "pauses may be missing in a new queue: another queue's records cannot be read",
                group=group,
                queue=str(queue),
                other=str(first),
                reason=str(error),
            )
            continue
        if last is not None and last.snapshot is not None:
            return last.snapshot.paused
    return {}
