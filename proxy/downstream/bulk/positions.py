"""Positions (queue and offset) that bulk readers request explicitly or through the group's
share.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import structlog

from broker_core.client import BrokerClient
from broker_core.clock import now_ns
from broker_core.errors import RemotingError
from broker_core.names import Group, QueueName, Topic, parse_qid
from proxy.core.ownership.allocation import allocate
from proxy.downstream.bulk.readers import BulkReaders
from proxy.downstream.port.interpretation import Interpretation
from proxy.downstream.port.requests import MAX_TEXT
from proxy.errors import Unavailable, UnknownName
from proxy.lane.group_lane import GroupLane
from proxy.lane.lanes import Lanes
from proxy.observe.logs import NoisyLog
from proxy.settings.groups import GroupSettings

_log = structlog.get_logger("bulk")

#: Longest logged text, in characters; client input may be megabytes.
_MAX_REASON = 512


@dataclass(frozen=True, slots=True)
class Position:
    """One requested position. ``queue`` is None if the queue is unavailable here."""

    topic: str
    qid: str
    offset: int
    queue: QueueName | None = None
    most: int = 0  # maximum messages per answer, if decoded


class BulkPositions:
    """Tracks the bulk readers of each group and resolves their positions."""

    def __init__(self, client: BrokerClient, lanes: Lanes) -> None:
        self._client = client
        self._lanes = lanes
        self._readers: dict[Group, BulkReaders] = {}
        self._noisy = NoisyLog(_log)

    def readers_of(self, group: Group) -> BulkReaders:
        """Return the bulk readers of *group*."""
        return self._readers.setdefault(group, BulkReaders())

    def forget(self, group: Group) -> None:
        """Forget the removed *group*."""
        self._readers.pop(group, None)

    def reading(self) -> dict[Group, int]:
        """Return the number of recently active bulk readers by group."""
        return {group: readers.count(now_ns()) for group, readers in self._readers.items()}

    def warn(self, event: str, reason: object) -> None:
        """Log a warning that clients can provoke, at a limited rate."""
        self._noisy.warning(event, event, reason=str(reason)[:_MAX_REASON])

    async def asked(self, request: Any, meaning: Interpretation) -> list[Position]:
        """Return the positions of a FetchRequest, interpreted as *meaning*: those it names, or its
        reader's share.
        """
        named = request.fetchOffset or {}
        try:
            lane = self._lanes.require(meaning.group, meaning.topics or ())
        except (UnknownName, Unavailable) as error:
            self.warn("fetch names an unknown group or topic", error)
            if (found := self._lanes.find(meaning.group)) is None:
                return [Position(*each) for each in _entries(named)]
            lane = found
        reader = reader_of(request)
        members = self.readers_of(lane.name).present(reader, now_ns())
        if named:
            return await self.named(lane, named)
        positions = []
        for topic in lane.settings.topics:
            if not meaning.serves(topic.name):
                continue
            try:
                queues = await self._client.queues(Topic(topic.name))
                share = allocate(reader, members, queues)
                starts = await asyncio.gather(*(self._start(lane, queue) for queue in share))
            except RemotingError as error:
                self.warn("fetch skips a topic", error)
                continue
            positions += [
                Position(topic.name, queue.qid, offset, queue, topic.max_pull_batch)
                for queue, offset in zip(share, starts, strict=True)
            ]
        return positions

    async def named(
        self, lane: GroupLane, offsets: Mapping[str, Mapping[str, int]]
    ) -> list[Position]:
        """Return the positions named in a request, in its order, without a queue where none
        exists.
        """
        existing: set[QueueName] = set()
        for topic in offsets:
            if topic in lane.topics:
                try:
                    existing.update(await self._client.queues(Topic(topic)))
                except RemotingError as error:
                    self.warn("a topic has no route", error)
        positions = []
        for topic, qid, offset in _entries(offsets):
            queue, settings = _queue(topic, qid), lane.topics.get(topic)
            if settings is None or queue not in existing or offset < 0:
                position = f"topic {topic!r}, qid {qid!r}, offset {offset}"
                self.warn(
                    "a bulk reader names a queue or offset that its group does not have", position
                )
                positions.append(Position(topic, qid, offset))
            else:
                positions.append(Position(topic, qid, offset, queue, settings.max_pull_batch))
        return positions

    async def _start(self, lane: GroupLane, queue: QueueName) -> int:
        committed = await self._client.committed_offset(lane.name, queue)
        return committed if committed is not None else await self._first(lane.settings, queue)

    async def _first(self, group: GroupSettings, queue: QueueName) -> int:
        if group.start_ms is not None:
            return await self._client.offset_at(queue, group.start_ms)
        if group.start_from == "latest":
            return await self._client.max_offset(queue)
        return await self._client.min_offset(queue)


def reader_of(request: Any) -> str:
    """Return the consumerId of a request."""
    return (request.consumerId or "")[:MAX_TEXT]


def _entries(offsets: Mapping[str, Mapping[str, int]]) -> Iterator[tuple[str, str, int]]:
    """Yield topic, qid and offset of each entry."""
    for topic, by_qid in offsets.items():
        for qid, offset in by_qid.items():
            yield topic, qid, offset


def _queue(topic: str, qid: str) -> QueueName | None:
    try:
        return parse_qid(Topic(topic), qid)
    except ValueError:
        return None
