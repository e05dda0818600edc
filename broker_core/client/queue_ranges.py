"""The offsets of many queues: one request for up to 1,024 queues of a topic at the embedded broker,
one for each topic at others.
"""

from __future__ import annotations

import asyncio
from collections import defaultdict
from collections.abc import Iterable, Sequence
from typing import NamedTuple

from broker_core.client.gathered import ASK_AGAIN_NS, NOT_SERVED
from broker_core.client.requests import BrokerRequests
from broker_core.clock import now_ns
from broker_core.errors import BrokerError, RemoteProtocolError
from broker_core.names import Group, QueueName, Topic
from broker_core.remoting.admin_headers import TopicOnlyHeader
from broker_core.remoting.codes import RequestCode
from broker_core.remoting.queue_maps import object_with_queue_map
from broker_core.remoting.queue_ranges import (
    MAX_QUEUES,
    ReadRangesHeader,
    ReadRangesResponse,
    ranges_from_bytes,
)

#: Requests to one broker under way at a time: others of the client go between them, and a silent
#: broker keeps no other waiting.
_AT_ONCE = 4


class QueueRange(NamedTuple):
    """The offset of the oldest message of a queue, and its end.

    Args:
        committed: the group's committed offset; None if there is none, or if no group was named.
        life: the life of the topic; None if its broker reports none.
    """

    begin: int
    end: int
    committed: int | None = None
    life: int | None = None


class QueueRanges:
    """Requests of one client."""

    def __init__(self, requests: BrokerRequests) -> None:
        self._requests = requests
        self._refused_ns: dict[str, int] = {}  # when a broker refused the extension
        self._free: defaultdict[str, asyncio.Semaphore] = defaultdict(
            lambda: asyncio.Semaphore(_AT_ONCE)
        )

    async def read(
        self, queues: Iterable[QueueName], group: Group | None
    ) -> dict[QueueName, QueueRange]:
        """Return the ranges of *queues*; committed offsets only of those that have a life.

        Raises RemotingError.
        """
        places: defaultdict[tuple[str, Topic], list[int]] = defaultdict(list)
        for queue in queues:
            places[queue.broker, queue.topic].append(queue.queue_id)
        parts = await asyncio.gather(
            *(
                self._of_topic(broker, topic, sorted(set(ids)), group)
                for (broker, topic), ids in places.items()
            )
        )
        return {queue: found for part in parts for queue, found in part.items()}

    def broker_lost(self, broker: str) -> None:
        """Note a lost connection: another version may answer at *broker* from now on."""
        self._refused_ns.pop(broker, None)

    async def _of_topic(
        self, broker: str, topic: Topic, ids: Sequence[int], group: Group | None
    ) -> dict[QueueName, QueueRange]:
        refused_ns = self._refused_ns.get(broker)
        if refused_ns is None or now_ns() - refused_ns >= ASK_AGAIN_NS:
            try:
                parts = await asyncio.gather(
                    *(self._part(broker, topic, part, group) for part in runs(ids))
                )
                return {queue: found for part in parts for queue, found in part.items()}
            except BrokerError as error:
                if error.code not in NOT_SERVED:
                    raise
                self._refused_ns[broker] = now_ns()
        return await self._by_statistics(broker, topic, ids)

    async def _part(
        self, broker: str, topic: Topic, part: range, group: Group | None
    ) -> dict[QueueName, QueueRange]:
        header = ReadRangesHeader(
            topic=topic, queue_id=part.start, count=len(part), consumer_group=group
        )
        async with self._free[broker]:
            answer = await self._requests.ask(broker, RequestCode.READ_RANGES, header.to_ext())
        life = ReadRangesResponse.from_ext(answer.ext).life
        entries = ranges_from_bytes(answer.body, len(part))
        return {
            QueueName(topic, broker, queue_id): QueueRange(*entry, life)
            for queue_id, entry in zip(part, entries, strict=True)
        }

    async def _by_statistics(
        self, broker: str, topic: Topic, ids: Sequence[int]
    ) -> dict[QueueName, QueueRange]:
        code = RequestCode.GET_TOPIC_STATS_INFO
        async with self._free[broker]:
            answer = await self._requests.ask(broker, code, TopicOnlyHeader(topic=topic).to_ext())
        _, table = object_with_queue_map(answer.body, "offsetTable", what="topic statistics")
        found = {}
        for queue_id in ids:
            queue = QueueName(topic, broker, queue_id)
            try:
                ends = table[queue]
                found[queue] = QueueRange(int(ends["minOffset"]), int(ends["maxOffset"]))
            except (KeyError, TypeError, ValueError):
                raise RemoteProtocolError(
                    f"{broker} answered the statistics of topic {topic} without queue {queue_id}"
                ) from None
        return found


def runs(ids: Sequence[int]) -> list[range]:
    """Return the ascending *ids* as ranges without gaps, each of at most MAX_QUEUES."""
    found: list[range] = []
    for each in ids:
        if found and each == found[-1].stop and len(found[-1]) < MAX_QUEUES:
            found[-1] = range(found[-1].start, each + 1)
        else:
            found.append(range(each, each + 1))
    return found
