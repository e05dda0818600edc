"""ConsumerService for bulk readers: fetch offset ranges, set positions, ask for stats and ranges.

A bulk reader holds its own positions; nothing here takes a lease or keeps order across queues.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import structlog

from broker_core.client import BrokerClient, PullResult
from broker_core.clock import now_ns
from broker_core.errors import RemotingError
from broker_core.names import Group, QueueName, Topic, parse_qid
from broker_core.remoting.message import StoredMessage
from broker_core.tasks import cancel_and_wait, spawn
from proxy.core.allocation import allocate
from proxy.core.retry_policy import MS
from proxy.downstream.bulk_readers import BulkReaders
from proxy.downstream.gate import refuse_by
from proxy.downstream.requests import (
    MAX_LINGER_MS,
    MAX_TEXT,
    MIN_LINGER_MS,
    NOT_ALLOWED,
    refusal,
    user_properties,
)
from proxy.downstream.thrift_server import Entry, Reply, awaiting
from proxy.errors import OrderlaneError, Refused, UnknownName
from proxy.group_lane import GroupLane
from proxy.lanes import Lanes
from proxy.logs import NoisyLog
from proxy.settings import GroupSettings, LimitSettings
from thrift_idl import consumer, consumer_service

_log = structlog.get_logger("bulk")

#: Longest text of a log line; what came from a client may be megabytes.
_MAX_REASON = 512


@dataclass(frozen=True, slots=True)
class _Asked:
    """One place that a fetch is about. ``queue`` None: there is nothing to read there."""

    topic: str
    qid: str
    offset: int
    queue: QueueName | None = None
    most: int = 0  # messages in one answer


class BulkService:
    """Reads through *client* for the groups of *lanes*."""

    def __init__(self, client: BrokerClient, lanes: Lanes, limits: LimitSettings) -> None:
        self._client = client
        self._lanes = lanes
        self._limits = limits
        self._readers: dict[Group, BulkReaders] = {}
        self._noisy = NoisyLog(_log)
        self.refused_acks = 0

    def entries(self) -> dict[str, Entry]:
        """The methods by name."""
        return {
            "fetch": Entry(consumer_service.fetch_args, awaiting(self._fetch), _refuse_fetch),
            "ack": Entry(consumer_service.ack_args, awaiting(self._ack), _refuse_ack),
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

    # ---- fetch ----------------------------------------------------------------------------------

    async def _fetch(self, arguments: Any, _reply: Reply) -> Any:
        request = arguments.request
        if request is None:
            raise Refused("fetch came without its request")
        if request.format:
            raise Refused("this version fetches messages only (format 0)")
        linger_ms = min(max(request.maxLingerTime or 0, MIN_LINGER_MS), MAX_LINGER_MS)
        until_ns = now_ns() + linger_ms * MS
        asked = await self._asked(request)
        results: dict[QueueName, PullResult] = {}
        await self._read(request, asked, results, wait_ms=0)
        if not _has_news(asked, results):
            wait_ms = (until_ns - now_ns()) // MS
            if wait_ms > 0:
                await self._read(request, asked, results, wait_ms=wait_ms)
        if not _has_news(asked, results):  # empty at once would make DDMQ's Java client spin
            await asyncio.sleep(max(0, until_ns - now_ns()) / 1e9)
        answers = self._answers(asked, results)
        return consumer_service.fetch_result(success=consumer.FetchResponse(results=answers))

    async def _asked(self, request: Any) -> list[_Asked]:
        """The places to read from: those that the request names, else this reader's share."""
        named = request.fetchOffset or {}
        try:
            lane = self._lanes.require(request.groupId, named)
        except UnknownName as error:
            self._warn("fetch names what is not here", error)
            if (found := self._lanes.find(request.groupId)) is None:
                return [_Asked(*place) for place in _places(named)]
            lane = found
        reader = _reader(request)
        members = self._readers_of(lane).present(reader, now_ns())
        if named:
            return await self._named(lane, named)
        asked = []
        for topic in lane.settings.topics:
            try:
                queues = await self._client.queues(Topic(topic.name))
                share = allocate(reader, members, queues)
                starts = await asyncio.gather(*(self._start(lane, queue) for queue in share))
            except RemotingError as error:
                self._warn("fetch passes over a topic", error)
                continue
            asked += [
                _Asked(topic.name, queue.qid, offset, queue, topic.max_pull_batch)
                for queue, offset in zip(share, starts, strict=True)
            ]
        return asked

    async def _named(
        self, lane: GroupLane, offsets: Mapping[str, Mapping[str, int]]
    ) -> list[_Asked]:
        """The places that a request names, in its order; without a queue where there is none."""
        existing: set[QueueName] = set()
        for topic in offsets:
            if lane.settings.topic(topic) is not None:
                try:
                    existing.update(await self._client.queues(Topic(topic)))
                except RemotingError as error:
                    self._warn("a topic has no route", error)
        asked = []
        for topic, qid, offset in _places(offsets):
            queue, settings = _queue(topic, qid), lane.settings.topic(topic)
            if settings is None or queue not in existing or offset < 0:
                place = f"topic {topic!r}, qid {qid!r}, offset {offset}"
                self._warn("a bulk reader names no place of its group", place)
                asked.append(_Asked(topic, qid, offset))
            else:
                asked.append(_Asked(topic, qid, offset, queue, settings.max_pull_batch))
        return asked

    async def _start(self, lane: GroupLane, queue: QueueName) -> int:
        committed = await self._client.committed_offset(lane.name, queue)
        return committed if committed is not None else await self._first(lane.settings, queue)

    async def _first(self, group: GroupSettings, queue: QueueName) -> int:
        if group.start_ms is not None:
            return await self._client.offset_at(queue, group.start_ms)
        if group.start_from == "latest":
            return await self._client.max_offset(queue)
        return await self._client.min_offset(queue)

    async def _read(
        self,
        request: Any,
        asked: Iterable[_Asked],
        results: dict[QueueName, PullResult],
        *,
        wait_ms: int,
    ) -> None:
        """Read all queues at once into *results*, with *wait_ms* until one has some; failed ones
        stay out.
        """
        pulls = {
            spawn(
                self._pull(each.queue, each, request, suspend_ms=wait_ms),
                name=f"fetch {each.queue}",
            ): each.queue
            for each in asked
            if each.queue is not None
        }
        try:
            pending = set(pulls)
            while pending and not (wait_ms and any(each.messages for each in results.values())):
                done, pending = await asyncio.wait(pending, return_when=asyncio.FIRST_COMPLETED)
                for pull in done:
                    if (result := pull.result()) is not None:
                        results[pulls[pull]] = result
        finally:
            await cancel_and_wait(*pulls)

    async def _pull(
        self, queue: QueueName, asked: _Asked, request: Any, *, suspend_ms: int
    ) -> PullResult | None:
        wanted = request.maxBatchSize or 0
        try:
            return await self._client.pull(
                queue,
                group=Group(request.groupId),
                offset=asked.offset,
                max_messages=min(wanted, asked.most) if wanted > 0 else asked.most,
                suspend_ms=suspend_ms,
            )
        except RemotingError as error:
            self._warn("fetch failed", error)
            return None

    def _answers(
        self, asked: Iterable[_Asked], results: Mapping[QueueName, PullResult]
    ) -> list[Any]:
        """One QidResponse a place, always with the next offset, or a client loses its place."""
        bytes_left = self._limits.max_answer_bytes
        answers = []
        for each in asked:
            result = None if each.queue is None else results.get(each.queue)
            messages: list[StoredMessage] = []
            next_offset = each.offset if result is None else result.next_offset
            for message in () if result is None else result.messages:
                if bytes_left <= 0:
                    next_offset = message.queue_offset
                    break
                messages.append(message)
                bytes_left -= len(message.body)
            answers.append(
                consumer.QidResponse(
                    topic=each.topic,
                    qid=each.qid,
                    nextRequestOffset=next_offset,
                    messages=[_message(message) for message in messages],
                )
            )
        return answers

    # ---- ack ------------------------------------------------------------------------------------

    async def _ack(self, arguments: Any, _reply: Reply) -> Any:
        taken = arguments.result is not None and await self._commit(arguments.result)
        self.refused_acks += not taken
        return consumer_service.ack_result(success=taken)

    async def _commit(self, request: Any) -> bool:
        lane = self._lanes.find(request.groupId)
        if lane is None or lane.joined:
            return False  # unknown, or a group whose positions its leases decide
        readers = self._readers_of(lane)
        if not readers.may_ack(_reader(request), now_ns()):
            return False
        places = await self._named(lane, request.offsets or {})
        outcomes = await asyncio.gather(
            *(
                self._client.commit_offset(lane.name, each.queue, each.offset)
                for each in places
                if each.queue is not None
            ),
            return_exceptions=True,
        )
        failures = [outcome for outcome in outcomes if outcome is not None]
        for failure in failures:
            if not isinstance(failure, RemotingError):
                raise failure
            self._warn("ack failed", failure)
        return not failures

    # ---- questions ------------------------------------------------------------------------------

    async def _consume_stats(self, arguments: Any, _reply: Reply) -> Any:
        request = arguments.request
        lane = None if request is None else self._lanes.find(request.group)
        topics = () if lane is None else lane.settings.topics
        try:
            stats = [
                await self._stats(lane.name, Topic(topic.name))
                for topic in topics
                if lane is not None and request.topic in (None, topic.name)
            ]
        except RemotingError as error:
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

    async def _ranges(self, arguments: Any, _reply: Reply) -> Any:
        request = arguments.request
        try:
            if request is None:
                raise Refused("ranges came without its request")
            topics = dict.fromkeys(request.topics or ())
            lane = self._lanes.require(request.groupId, topics)
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
        )

    # ---- inside ---------------------------------------------------------------------------------

    def _readers_of(self, lane: GroupLane) -> BulkReaders:
        return self._readers.setdefault(lane.name, BulkReaders())

    def _warn(self, event: str, reason: object) -> None:
        self._noisy.warning(event, event, reason=str(reason)[:_MAX_REASON])


def _places(offsets: Mapping[str, Mapping[str, int]]) -> Iterator[tuple[str, str, int]]:
    """Topic, qid and offset of each entry."""
    for topic, by_qid in offsets.items():
        for qid, offset in by_qid.items():
            yield topic, qid, offset


def _reader(request: Any) -> str:
    return (request.consumerId or "")[:MAX_TEXT]


def _queue(topic: str, qid: str) -> QueueName | None:
    try:
        return parse_qid(Topic(topic), qid)
    except ValueError:
        return None


def _has_news(asked: Iterable[_Asked], results: Mapping[QueueName, PullResult]) -> bool:
    """True if there are messages, or a place to go on from that the reader does not know."""
    return any(
        result.messages or result.next_offset != each.offset
        for each in asked
        if each.queue is not None and (result := results.get(each.queue)) is not None
    )


def _message(stored: StoredMessage) -> Any:
    return consumer.Message(
        key=stored.key,
        value=stored.body,
        tag=stored.tag,
        offset=stored.queue_offset,
        properties=user_properties(stored.properties),
        bornAtMs=stored.born_ms,
        messageId=stored.message_id,
    )


def _refuse_fetch(arguments: Any, reply: Reply, _error: OrderlaneError) -> None:
    answer = consumer.FetchResponse(code=NOT_ALLOWED, results=[])
    linger_ms = (arguments.request and arguments.request.maxLingerTime) or 0
    delay_s = min(max(linger_ms, MIN_LINGER_MS), MAX_LINGER_MS) / 1000
    # At once it would make DDMQ's Java client spin.
    asyncio.get_running_loop().call_later(
        delay_s, reply, consumer_service.fetch_result(success=answer)
    )


def _refuse_ack(_arguments: Any, reply: Reply, _error: OrderlaneError) -> None:
    reply(consumer_service.ack_result(success=False))
