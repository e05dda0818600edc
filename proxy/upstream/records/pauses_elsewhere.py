"""Pauses that a queue without records has to begin with, as one that was added to its topic."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from types import MappingProxyType

import structlog

from broker_core.client import BrokerClient
from broker_core.errors import RemotingError
from broker_core.names import Group, QueueName, Topic
from broker_core.tasks import spawn
from proxy.core.records.paused_key import PausedKey
from proxy.upstream.records.anchors import in_life
from proxy.upstream.records.ownership_log import OwnershipLog

_log = structlog.get_logger("ownership")

_Pauses = Mapping[bytes | None, PausedKey]
_NONE: _Pauses = MappingProxyType({})


class PausesElsewhere:
    """Reads pauses from the records of queues that other proxies own. Take-overs of many queues at
    a time share the requests.
    """

    def __init__(self, client: BrokerClient, log: OwnershipLog) -> None:
        self._client = client
        self._log = log
        self._reading: dict[tuple[Group, Topic, str], asyncio.Task[_Pauses]] = {}

    async def of(self, group: Group, queue: QueueName) -> _Pauses:
        """Return the pauses of the topic of *queue*; for a proxy that owns no queue of it.

        Operators pause a group or a key in all queues, so one other queue tells: the first of its
        broker or, if that one has no records, of another broker. A broker that does not answer is
        left out, as it must not delay queues of others.
        """
        place = group, queue.topic, queue.broker
        if (reading := self._reading.get(place)) is None:
            reading = spawn(self._read(*place), name=f"read the pauses of {queue.topic}")
            self._reading[place] = reading
            reading.add_done_callback(lambda _: self._reading.pop(place))
        return await asyncio.shield(reading)

    async def _read(self, group: Group, topic: Topic, broker: str) -> _Pauses:
        other = QueueName(topic, broker, 0)
        try:
            others = [each for each in await self._client.broker_names(topic) if each != broker]
        except RemotingError as error:
            self._missing(group, other, error)
            others = []
        for each in (broker, *others):
            other = QueueName(topic, each, 0)
            try:
                last = await self._log.owner(group, other)
                life = await self._client.topic_life(other)
                last = await in_life(self._client, group, other, last, life=life)
            except RemotingError as error:
                self._missing(group, other, error)
                continue
            if last is not None and last.snapshot is not None:
                return last.snapshot.paused
        return _NONE

    def _missing(self, group: Group, other: QueueName, error: RemotingError) -> None:
        _log.warning(
            "pauses may be missing in a new queue: another queue's records cannot be read",
            group=group,
            other=str(other),
            reason=str(error),
        )
