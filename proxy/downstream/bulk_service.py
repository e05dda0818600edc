"""ConsumerService for bulk readers: fetch offset ranges, set positions, ask for stats and ranges.

A bulk reader holds its own positions; nothing here takes a lease or keeps order across queues.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import structlog

from broker_core.client import BrokerClient, PullResult
from broker_core.clock import now_ns
from broker_core.errors import RemotingError
from broker_core.names import Group, QueueName, Topic, parse_qid
from broker_core.remoting.message import StoredMessage
from broker_core.tasks import cancel_and_wait, spawn
from proxy.core.allocation import allocate
from proxy.downstream.requests import MAX_LINGER_MS, MIN_LINGER_MS, user_properties
from proxy.downstream.thrift_server import Entry, Reply, awaiting
from proxy.errors import OrderlaneError, Refused
from proxy.group_lane import GroupLane
from proxy.lanes import Lanes
from proxy.logs import NoisyLog
from proxy.settings import GroupSettings, LimitSettings
from thrift_idl import consumer, consumer_service

_log = structlog.get_logger("bulk")

#: A reader not seen for so long has no share of the queues any more.
_READER_NS = 30_000_000_000
#: For so long after its last ack nobody else may move a group's positions.
_ACK_HOLD_NS = 60_000_000_000
_BATCH = 256
_UNKNOWN_NAME = 404


@dataclass(slots=True)
class _Readers:
    """The bulk readers of one group, by consumerId."""

    seen_ns: dict[str, int] = field(default_factory=dict)
    acker: str = ""
    acked_ns: int = 0

    def present(self, consumer_id: str, now: int) -> list[str]:
        """All readers of late, *consumer_id* among them."""
        self.seen_ns[consumer_id] = now
        gone = [each for each, seen in self.seen_ns.items() if now - seen > _READER_NS]
        for each in gone:
            del self.seen_ns[each]
        return list(self.seen_ns)

    def may_ack(self, consumer_id: str, now: int) -> bool:
        """True if no other reader acked of late."""
        return self.acker in ("", consumer_id) or now - self.acked_ns > _ACK_HOLD_NS


class BulkService:
    """Reads through *client* for the groups of *lanes*."""

    def __init__(self, client: BrokerClient, lanes: Lanes, limits: LimitSettings) -> None:
        self._client = client
        self._lanes = lanes
        self._limits = limits
        self._readers: dict[Group, _Readers] = {}
        self._noisy = NoisyLog(_log)
        self.refused_acks = 0

    def entries(self) -> Mapping[str, Entry]:
        """The methods by name."""
        return {
            "fetch": Entry(consumer_service.fetch_args, awaiting(self._fetch)),
            "ack": Entry(consumer_service.ack_args, awaiting(self._ack)),
            "ranges": Entry(consumer_service.ranges_args, awaiting(self._ranges)),
            "getConsumeStats": Entry(
                consumer_service.getConsumeStats_args, awaiting(self._consume_stats)
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
        wanted = await self._wanted(request)
        if not wanted:  # an empty answer at once makes DDMQ's Java client spin
            await asyncio.sleep(linger_ms / 1000)
        count = request.maxBatchSize if (request.maxBatchSize or 0) > 0 else _BATCH
        pulls = {
            queue: (Group(request.groupId), offset, min(count, 1024))
            for queue, offset in wanted.items()
        }
        results = await self._read(pulls, wait_ms=0)
        if not any(result.messages for result in results.values()):
            results = await self._read(pulls, wait_ms=linger_ms)
        answers = self._answers(wanted, results)
        return consumer_service.fetch_result(success=consumer.FetchResponse(results=answers))

    async def _wanted(self, request: Any) -> dict[QueueName, int]:
        """The queues to read with the offsets to read from."""
        lane = self._lanes.find(request.groupId)
        if lane is None:
            self._noisy.warning(
                str(request.groupId), "fetch for an unknown group", group=request.groupId
            )
            return {}
        readers = self._readers.setdefault(lane.name, _Readers())
        members = readers.present(request.consumerId or "", now_ns())
        if request.fetchOffset:
            return _positions(request.fetchOffset)
        wanted = {}
        for topic in lane.settings.topics:
            queues = await self._client.queues(Topic(topic.name))
            for queue in allocate(request.consumerId or "", members, queues):
                wanted[queue] = await self._start(lane, queue)
        return wanted

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
        self, pulls: Mapping[QueueName, tuple[Group, int, int]], *, wait_ms: int
    ) -> dict[QueueName, PullResult]:
        """Read all queues at once, with *wait_ms* until one has some; failed ones are absent."""
        if not pulls:
            return {}
        tasks = {
            spawn(
                self._client.pull(
                    queue, group=group, offset=offset, max_messages=count, suspend_ms=wait_ms
                ),
                name=f"fetch {queue}",
            ): queue
            for queue, (group, offset, count) in pulls.items()
        }
        results: dict[QueueName, PullResult] = {}
        pending = set(tasks)
        while pending and not (wait_ms and any(each.messages for each in results.values())):
            done, pending = await asyncio.wait(pending, return_when=asyncio.FIRST_COMPLETED)
            for task in done:
                error = task.exception()
                if error is None:
                    results[tasks[task]] = task.result()
                elif not isinstance(error, RemotingError):
                    raise error
                else:
                    queue = str(tasks[task])
                    self._noisy.warning(queue, "fetch failed", queue=queue, reason=str(error))
        await cancel_and_wait(*pending)
        return results

    def _answers(
        self, wanted: Mapping[QueueName, int], results: Mapping[QueueName, PullResult]
    ) -> list[Any]:
        """One QidResponse a queue, always with the next offset, or a client loses its place."""
        bytes_left = self._limits.max_answer_bytes
        answers = []
        for queue, offset in wanted.items():
            result = results.get(queue)
            messages: list[StoredMessage] = []
            next_offset = offset if result is None else result.next_offset
            for message in () if result is None else result.messages:
                if bytes_left <= 0:
                    next_offset = message.queue_offset
                    break
                messages.append(message)
                bytes_left -= len(message.body)
            answers.append(
                consumer.QidResponse(
                    topic=queue.topic,
                    qid=queue.qid,
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
        readers = self._readers.setdefault(lane.name, _Readers())
        now = now_ns()
        if not readers.may_ack(request.consumerId or "", now):
            return False
        readers.acker, readers.acked_ns = request.consumerId or "", now
        positions = _positions(request.offsets or {})
        try:
            for queue, offset in positions.items():
                await self._client.commit_offset(lane.name, queue, offset)
        except RemotingError as error:
            self._noisy.warning(lane.name, "ack failed", group=lane.name, reason=str(error))
            return False
        return True

    # ---- questions ------------------------------------------------------------------------------

    async def _consume_stats(self, arguments: Any, _reply: Reply) -> Any:
        request = arguments.request
        lane = None if request is None else self._lanes.find(request.group)
        stats = []
        for topic in () if lane is None else lane.settings.topics:
            if lane is None or request.topic not in (None, topic.name):
                continue
            committed, ends = {}, {}
            for queue in await self._client.queues(Topic(topic.name)):
                ends[queue.qid] = await self._client.max_offset(queue)
                offset = await self._client.committed_offset(lane.name, queue)
                committed[queue.qid] = 0 if offset is None else offset
            stats.append(
                consumer.ConsumeStats(
                    group=lane.name, topic=topic.name, consumeOffsets=committed, produceOffsets=ends
                )
            )
        return consumer_service.getConsumeStats_result(success=stats)

    async def _ranges(self, arguments: Any, _reply: Reply) -> Any:
        request = arguments.request
        try:
            if request is None:
                raise Refused("ranges came without its request")
            lane = self._lanes.require(request.groupId, request.topics)
            ranges = [
                await self._range(lane.name, queue, request.timestampMs)
                for topic in request.topics or ()
                for queue in await self._client.queues(Topic(topic))
            ]
        except (OrderlaneError, RemotingError) as error:
            failure = consumer.PullException(code=_UNKNOWN_NAME, message=str(error))
            return consumer_service.ranges_result(error=failure)
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


def _positions(offsets: Mapping[str, Mapping[str, int]]) -> dict[QueueName, int]:
    """Positions by queue; what names no queue, or no offset, is passed over."""
    positions = {}
    for topic, by_qid in offsets.items():
        for qid, offset in by_qid.items():
            try:
                queue = parse_qid(Topic(topic), qid)
            except ValueError:
                continue
            if offset >= 0:
                positions[queue] = offset
    return positions


def _message(stored: StoredMessage) -> Any:
    return consumer.Message(
        key=stored.key,
        value=stored.body,
        tag=stored.tag,
        offset=stored.queue_offset,
        properties=user_properties(stored),
        bornAtMs=stored.born_ms,
        messageId=stored.message_id,
    )
