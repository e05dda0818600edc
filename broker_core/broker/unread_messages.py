"""Messages that a group with committed offsets has not read, at the beginning of the log."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Mapping

from broker_core.broker.groups.offsets import CommittedOffsets
from broker_core.names import Group, Topic
from broker_core.store.consume_queues import ConsumeQueues

Unread = Mapping[tuple[Group, Topic], int]

#: Queues examined before other work gets its turn; each needs some reads of its index.
_AT_ONCE = 64


class UnreadMessages:
    """Counts by the committed offsets of all groups."""

    def __init__(self, offsets: CommittedOffsets, queues: ConsumeQueues) -> None:
        self._offsets = offsets
        self._queues = queues

    async def between(self, begin: int, end: int) -> Unread:
        """Return the number of unread messages from log offset *begin* to *end*, by group and
        topic.
        """
        found: Counter[tuple[Group, Topic]] = Counter()
        spans: dict[tuple[Topic, int], tuple[int, int]] = {}
        for number, (group, topic, queue_id) in enumerate(list(self._offsets.queues()), 1):
            if number % _AT_ONCE == 0:
                await asyncio.sleep(0)
            queue = self._queues.find(topic, queue_id)
            committed = self._offsets.committed(group, topic, queue_id)
            if queue is None or committed is None:
                continue
            if (topic, queue_id) not in spans:
                spans[topic, queue_id] = (
                    queue.first_at_or_behind(begin),
                    queue.first_at_or_behind(end),
                )
            first, last = spans[topic, queue_id]
            if (unread := last - max(committed, first)) > 0:
                found[group, topic] += unread
        return found
