"""Pauses in the records of queues that other proxies own."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Mapping
from itertools import islice
from types import MappingProxyType

import structlog

from broker_core.client import BrokerClient
from broker_core.errors import BrokerError, RemotingError
from broker_core.names import Group, QueueName, Topic
from broker_core.remoting.codes import ResponseCode
from broker_core.tasks import spawn
from proxy.core.records.paused_key import EVERYTHING, PausedKey
from proxy.upstream.records.anchors import in_life
from proxy.upstream.records.ownership_log import OwnershipLog

_log = structlog.get_logger("ownership")

#: A broker that does not answer in that time must not delay the queues of others.
_WAIT_S = 2.0
#: Further topics of a group whose records are read for a pause of the group.
_MOST_TOPICS = 16

_Pauses = Mapping[bytes | None, PausedKey]
_NONE: _Pauses = MappingProxyType({})


class RecordedPauses:
    """Reads pauses. Take-overs of many queues at a time share the requests."""

    def __init__(self, client: BrokerClient, log: OwnershipLog) -> None:
        self._client = client
        self._log = log
        self._reading: dict[tuple[Group, QueueName], asyncio.Task[_Pauses]] = {}
        self._listing: dict[Group, asyncio.Task[list[Topic]]] = {}

    async def of_others(
        self, group: Group, queue: QueueName, topics: Iterable[Topic] | None = ()
    ) -> dict[bytes | None, PausedKey]:
        """Return the pauses of the topic of *queue*, by one other queue at each of its brokers, and
        a pause of the group, also by a queue of each of *topics*; None: of those with records.

        What cannot be read in time is left out, with a warning. O(brokers): called at each
        take-over.
        """
        if topics is None:
            topics = await self._topics(group)
        others = islice((each for each in topics if each != queue.topic), _MOST_TOPICS)
        first = [
            QueueName(queue.topic, each, 0) for each in await self._brokers(group, queue.topic)
        ]
        # Operators pause all queues, so the first one at a broker tells.
        asked = [each if each != queue else each._replace(queue_id=1) for each in first]
        for topic in others:
            brokers = await self._brokers(group, topic)
            asked += [QueueName(topic, each, 0) for each in brokers[:1]]
        readings = {each: self._ask(group, each) for each in asked}
        if not readings:
            return {}
        await asyncio.wait(readings.values(), timeout=_WAIT_S)
        found: dict[bytes | None, PausedKey] = {}
        for each, reading in readings.items():
            if not reading.done():
                self._missing(group, each, "its broker does not answer")
                continue
            for key, how in reading.result().items():
                if each.topic == queue.topic or key is EVERYTHING:
                    found[key] = how
        return found

    async def _topics(self, group: Group) -> list[Topic]:
        if (listing := self._listing.get(group)) is None:
            listing = spawn(self._list(group), name=f"list the topics of {group}")
            self._listing[group] = listing
            listing.add_done_callback(lambda _: self._listing.pop(group))
        return await asyncio.shield(listing)

    async def _list(self, group: Group) -> list[Topic]:
        try:
            return await self._log.topics(group)
        except RemotingError as error:
            self._missing(group, None, str(error))
            return []

    async def _brokers(self, group: Group, topic: Topic) -> list[str]:
        try:
            return await self._client.broker_names(topic)
        except RemotingError as error:
            if not (isinstance(error, BrokerError) and error.code == ResponseCode.TOPIC_NOT_EXIST):
                self._missing(group, topic, str(error))
            return []

    def _ask(self, group: Group, queue: QueueName) -> asyncio.Task[_Pauses]:
        place = group, queue
        if (reading := self._reading.get(place)) is None:
            reading = spawn(self._read(group, queue), name=f"read the pauses of {queue}")
            self._reading[place] = reading
            reading.add_done_callback(lambda _: self._reading.pop(place))
        return reading

    async def _read(self, group: Group, queue: QueueName) -> _Pauses:
        try:
            last = await self._log.owner(group, queue)
            life = await self._client.topic_life(queue)
            last = await in_life(self._client, group, queue, last, life=life)
        except RemotingError as error:
            self._missing(group, queue, str(error))
            return _NONE
        return _NONE if last is None or last.snapshot is None else last.snapshot.paused

    def _missing(self, group: Group, other: QueueName | Topic | None, why: str) -> None:
        _log.warning(
            "pauses may be missing in a queue: the records of others cannot be read",
            group=group,
            other=None if other is None else str(other),
            reason=why,
        )
