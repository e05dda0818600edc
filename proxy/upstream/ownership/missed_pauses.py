"""Pauses that a queue has to begin with although its own records do not have them.

Operators pause a key of a topic, or a group, in all queues. But queues may be added later, a topic
be added to its group later, and a queue that was taken away for a while, or whose broker was, is
not there when operators pause the others.
"""

from __future__ import annotations

from collections.abc import Mapping

from broker_core.names import QueueName, Topic
from proxy.core.records.paused_key import EVERYTHING, PausedKey
from proxy.lane.group_lane import GroupLane
from proxy.upstream.context import UpstreamContext
from proxy.upstream.ownership.period_start import Begun


async def missed_pauses(
    context: UpstreamContext, lane: GroupLane, queue: QueueName, begun: Begun
) -> Mapping[bytes | None, PausedKey]:
    """Return the pauses of other queues that *queue* has to have: those made since the last of its
    records, which *begun* has, or all if it has none.

    Queues owned here tell without a request. A proxy that owns none reads the records of a few.
    """
    buffer, topic = lane.buffer, queue.topic
    found: dict[bytes | None, PausedKey] = {}
    if not buffer.has_queue_of(topic):
        others: list[Topic] | None = []
        if not len(buffer):
            # A group without settings may have further topics at other proxies.
            listed = [Topic(each.name) for each in lane.settings.topics]
            others = None if lane.auto_created else listed
        found = await context.pauses.of_others(lane.name, queue, others)
    # Last, as they may change during requests.
    for key, how in buffer.paused_keys(topic).items():
        found[key] = how
    if (whole := buffer.paused_whole) is not None:
        found[EVERYTHING] = whole
    last = begun.last
    if last is None or last.forgotten or last.snapshot is None or last.stored_ms is None:
        return found
    since_ms = last.stored_ms  # an older pause was here, too, and was ended by an operator
    return {key: how for key, how in found.items() if how.since_ms > since_ms}
