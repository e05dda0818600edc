"""ConsumerService for bulk readers: fetch offset ranges, set offsets, query statistics and ranges.

A bulk reader keeps its own positions: there are no leases and no order across queues.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from broker_core.client import BrokerClient
from broker_core.clock import now_ns
from broker_core.errors import RemotingError
from broker_core.names import Group, QueueName, Topic
from proxy.core.bulk.pace import BulkPace
from proxy.downstream.bulk.fetch import BulkFetch
from proxy.downstream.bulk.positions import BulkPositions, Position, reader_of
from proxy.downstream.bulk.scheduler import BulkCounts, BulkScheduler
from proxy.downstream.port.connection import Entry, Reply, awaiting
from proxy.downstream.port.gate import refuse_by
from proxy.downstream.port.interpretation import Interpretation, interpretation_of
from proxy.downstream.port.load import Load
from proxy.downstream.port.requests import (
    MAX_LINGER_MS,
    MIN_LINGER_MS,
    refusal,
)
from proxy.errors import OrderlaneError, Refused
from proxy.lane.lanes import Lanes
from proxy.settings.proxy_settings import LimitSettings
from thrift_idl import consumer, consumer_service


class BulkService:
    """Reads through *client* for the groups of *lanes*."""

    def __init__(
        self,
        client: BrokerClient,
        lanes: Lanes,
        limits: LimitSettings,
        *,
        served_ns: Callable[[], int | None],
        load: Load | None = None,
    ) -> None:
        """Create the methods.

        *served_ns* returns the time of the last delivery to a thin client: bulk readers yield to
        thin clients. *load* limits the memory for answers.
        """
        self._client = client
        self._lanes = lanes
        self._positions = BulkPositions(client, lanes)
        pace = BulkPace(limits.bulk_bytes_per_s, limits.bulk_bytes_per_s_beside_clients)
        self._scheduler = BulkScheduler(pace, served_ns)
        self._fetching = BulkFetch(
            client,
            self._positions,
            self._scheduler,
            limits,
            load or Load(limits.max_inflight_bytes),
        )
        self.refused_acks = 0

    @property
    def counts(self) -> Mapping[Group, BulkCounts]:
        """Counters of bulk readers by group."""
        return self._scheduler.counts

    def figures(self) -> dict[str, dict[str, float]]:
        """Return the counters as metrics: bytes read, and seconds of delay by limits."""
        return {
            group: {"bulk_bytes": each.read_bytes, "bulk_held_back": each.held_back_ns / 1e9}
            for group, each in self.counts.items()
        }

    def forget(self, group: Group) -> None:
        """Forget the removed *group*."""
        self._scheduler.counts.pop(group, None)

    def reading(self) -> Mapping[Group, int]:
        """Number of recently active bulk readers by group."""
        return self._positions.reading()

    def entries(self) -> dict[str, Entry]:
        """Return the methods by name."""
        return {
            "fetch": Entry(
                consumer_service.fetch_args,
                awaiting(self._fetching.fetch),
                _refuse_fetch,
                _shed_fetch,
            ),
            "ack": Entry(consumer_service.ack_args, awaiting(self._ack), _refuse_ack, frees=True),
            "ranges": Entry(
                consumer_service.ranges_args,
                awaiting(self._ranges),
                refuse_by(consumer_service.ranges_result),
            ),
            "getConsumeStats": Entry(
                consumer_service.getConsumeStats_args,
                awaiting(self._consume_stats),
                refuse_by(consumer_service.getConsumeStats_result),
            ),
        }

    # ---- ack ------------------------------------------------------------------------------------

    async def _ack(self, arguments: Any, reply: Reply) -> Any:
        try:
            meaning = interpretation_of(reply, arguments)
        except Refused as error:
            self._positions.warn("ack failed", error)
            taken = False
        else:
            taken = arguments.result is not None and await self._commit(arguments.result, meaning)
        self.refused_acks += not taken
        return consumer_service.ack_result(success=taken)

    async def _commit(self, request: Any, meaning: Interpretation) -> bool:
        lane = self._lanes.find(meaning.group)
        if lane is None or lane.presence.joined:
            return False  # unknown, or a group whose offsets its leases decide
        positions = await self._positions.named(lane, request.offsets or {})
        if not await self._have_positions(positions):
            return False
        if not self._positions.readers_of(lane).may_ack(reader_of(request), now_ns()):
            return False
        outcomes = await asyncio.gather(
            *(
                self._client.commit_offset(lane.name, each.queue, each.offset)
                for each in positions
                if each.queue is not None
            ),
            return_exceptions=True,
        )
        failures = [outcome for outcome in outcomes if outcome is not None]
        for failure in failures:
            if not isinstance(failure, RemotingError):
                raise failure
            self._positions.warn("ack failed", failure)
        return not failures

    async def _have_positions(self, positions: Iterable[Position]) -> bool:
        """Return whether all *positions* are offsets that their queues have reached.

        A committed offset beyond the end would skip future messages and hide the lag.
        """
        for each in positions:
            if each.offset < 0:
                return False  # logged where it was found
        there = [each for each in positions if each.queue is not None]
        try:
            ends = await asyncio.gather(
                *(self._client.max_offset(each.queue) for each in there if each.queue is not None)
            )
        except RemotingError as error:
            self._positions.warn("ack failed", error)
            return False
        for each, end in zip(there, ends, strict=True):
            if each.offset > end:
                position = f"topic {each.topic!r}, qid {each.qid!r}, offset {each.offset}"
                self._positions.warn(
                    "an ack is beyond the end of its queue", f"{position}: the queue ends at {end}"
                )
                return False
        return True

    # ---- queries --------------------------------------------------------------------------------

    async def _consume_stats(self, arguments: Any, reply: Reply) -> Any:
        try:
            meaning = interpretation_of(reply, arguments)
            lane = self._lanes.find(meaning.group)
            topics = () if lane is None else lane.settings.topics
            stats = [
                await self._stats(lane.name, Topic(topic.name))
                for topic in topics
                if lane is not None and meaning.serves(topic.name)
            ]
        except (Refused, RemotingError) as error:
            return consumer_service.getConsumeStats_result(error=refusal(error))
        return consumer_service.getConsumeStats_result(success=stats)

    async def _stats(self, group: Group, topic: Topic) -> Any:
        queues = await self._client.queues(topic)
        committed = await asyncio.gather(
            *(self._client.committed_offset(group, queue) for queue in queues)
        )
        ends = await asyncio.gather(*(self._client.max_offset(queue) for queue in queues))
        qids = [queue.qid for queue in queues]
        return consumer.ConsumeStats(
            group=group,
            topic=topic,
            consumeOffsets=dict(zip(qids, (offset or 0 for offset in committed), strict=True)),
            produceOffsets=dict(zip(qids, ends, strict=True)),
        )

    async def _ranges(self, arguments: Any, reply: Reply) -> Any:
        request = arguments.request
        try:
            if request is None:
                raise Refused("ranges came without its request")
            meaning = interpretation_of(reply, arguments)
            topics = meaning.topics or ()
            lane = self._lanes.require(meaning.group, topics)
            queues = [
                queue for topic in topics for queue in await self._client.queues(Topic(topic))
            ]
            ranges = await asyncio.gather(
                *(self._range(lane.name, queue, request.timestampMs) for queue in queues)
            )
        except (OrderlaneError, RemotingError) as error:
            return consumer_service.ranges_result(error=refusal(error))
        return consumer_service.ranges_result(success=ranges)

    async def _range(self, group: Group, queue: QueueName, timestamp_ms: int | None) -> Any:
        at = None if timestamp_ms is None else await self._client.offset_at(queue, timestamp_ms)
        return consumer.QueueRange(
            topic=queue.topic,
            qid=queue.qid,
            beginOffset=await self._client.min_offset(queue),
            endOffset=await self._client.max_offset(queue),
            committedOffset=await self._client.committed_offset(group, queue),
            offsetAtTimestamp=at,
            life=await self._client.life(queue),
        )


def _refuse_fetch(arguments: Any, reply: Reply, error: OrderlaneError) -> None:
    if isinstance(error, Refused):
        reply.fail(error)  # the answer has no field for a sentence
        return
    answer = consumer.FetchResponse(code=refusal(error).code, results=[])
    request = arguments and arguments.request
    linger_ms = (request and request.maxLingerTime) or 0
    delay_s = min(max(linger_ms, MIN_LINGER_MS), MAX_LINGER_MS) / 1000
    # An immediate answer would make DDMQ's Java client spin.
    asyncio.get_running_loop().call_later(
        delay_s, reply, consumer_service.fetch_result(success=answer)
    )


def _shed_fetch(_arguments: Any, reply: Reply, error: OrderlaneError) -> None:
    # Readers of all kinds retry after a fault; a result code ends some of them.
    reply.fail(error)


def _refuse_ack(_arguments: Any, reply: Reply, _error: OrderlaneError) -> None:
    reply(consumer_service.ack_result(success=False))
