"""The lag of groups and topics that have no clients at this proxy, asked at the brokers.

Queues without an owner appear in no other metric, so messages that no client fetches would go
unnoticed. The queues are asked one after the other, and for at most a tenth of the time: with tens
of thousands of them a look takes minutes.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable

import structlog

from broker_core.client import BrokerClient
from broker_core.clock import now_ns
from broker_core.errors import RemotingError
from broker_core.names import Group, QueueName, Topic
from proxy.lane.group_lane import GroupLane
from proxy.observe.logs import NoisyLog
from proxy.settings.groups import TopicSettings

#: Time to wait after each topic, as a multiple of the time that it took.
_PAUSE = 9

_noisy = NoisyLog(structlog.get_logger("metrics"))


class LagWithoutClients:
    """Looks regularly; ``figures`` has the last result in messages, by group and topic.

    Broadcast groups are left out: their clients have offsets of their own. A topic whose brokers do
    not answer is absent.
    """

    def __init__(self, client: BrokerClient, lanes: Iterable[GroupLane]) -> None:
        """*lanes* is iterated again each time."""
        self._client = client
        self._lanes = lanes
        self._found: dict[tuple[Group, Topic], int] = {}

    def figures(self) -> dict[tuple[Group, Topic], int]:
        """Return the lags; none of a topic for which a client has come since."""
        without = {
            (lane.name, topic.name) for lane in self._lanes for topic in _without_clients(lane)
        }
        return {place: lag for place, lag in self._found.items() if place in without}

    async def run(self, *, every_s: float) -> None:
        """Look every *every_s*, and as long as a look takes, until cancelled."""
        while True:
            await asyncio.sleep(every_s)
            try:
                await self.look()
            except Exception as error:  # a bug must not end the looks
                _noisy.warning("bug", "lag not measured", reason=str(error), exc_info=error)

    async def look(self) -> None:
        """Ask once. Errors of brokers are logged."""
        found: dict[tuple[Group, Topic], int] = {}
        for lane in list(self._lanes):
            for topic in _without_clients(lane):
                began_ns = now_ns()
                try:
                    lag = await self._lag(lane, Topic(topic.name))
                except RemotingError as error:
                    _noisy.warning(
                        lane.name,
                        "lag of a group without clients not known",
                        group=lane.name,
                        topic=topic.name,
                        reason=str(error),
                    )
                else:
                    found[lane.name, Topic(topic.name)] = lag
                await asyncio.sleep(_PAUSE * (now_ns() - began_ns) / 1e9)
        self._found = found

    async def _lag(self, lane: GroupLane, topic: Topic) -> int:
        queues = await self._client.queues(topic)
        return sum([await self._lag_of_queue(lane, queue) for queue in queues])

    async def _lag_of_queue(self, lane: GroupLane, queue: QueueName) -> int:
        end = await self._client.max_offset(queue)
        if not end:
            return 0
        committed = await self._client.committed_offset(lane.name, queue)
        if committed is None and lane.settings.start_from != "earliest":
            return 0  # where it begins is decided when its first client comes
        begin = committed or await self._client.min_offset(queue)
        return max(0, end - begin)


def _without_clients(lane: GroupLane) -> list[TopicSettings]:
    """Return the topics of *lane* that no client at this proxy wants."""
    presence = lane.presence
    if lane.settings.mode == "broadcast" or (presence.joined and presence.shows_all):
        return []
    shown = presence.shown if presence.joined else frozenset()
    return [topic for topic in lane.settings.topics if topic.name not in shown]
