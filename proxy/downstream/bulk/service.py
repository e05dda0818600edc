"""ConsumerService for bulk readers: fetch offset ranges, report progress, query topics, ranges and
statistics.

A bulk reader keeps its own positions: there are no leases and no order across queues.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Mapping
from types import MappingProxyType
from typing import Any

from broker_core.client import BrokerClient, QueueRange
from broker_core.clock import now_ns
from broker_core.errors import BrokerError, RemotingError
from broker_core.names import Group, QueueName, Topic, is_internal_topic
from broker_core.remoting.codes import ResponseCode
from proxy.core.access.rights import Access, Right
from proxy.core.bulk.pace import BulkPace
from proxy.downstream.bulk.fetch import BulkFetch
from proxy.downstream.bulk.positions import BulkPositions, Position, reader_of
from proxy.downstream.bulk.readers import ACK_HOLD_NS
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
from proxy.errors import Forbidden, NotOfGroup, OrderlaneError, Refused
from proxy.lane.group_lane import GroupLane
from proxy.lane.lanes import Lanes
from proxy.settings.proxy_settings import LimitSettings
from thrift_idl import consumer, consumer_service

#: Queues of an answer that are looked up and encoded before other calls get their turn.
_RANGES_AT_ONCE = 500


class BulkService:
    """Reads through *client* for the groups of *lanes*."""

    def __init__(
        self,
        client: BrokerClient,
        lanes: Lanes,
        limits: LimitSettings,
        *,
        served_ns: Callable[[], int | None],
        has_owner: Callable[[Group, Topic], Awaitable[bool]],
        load: Load | None = None,
        may: Callable[[str | None, Access], bool] = lambda _principal, _act: True,
    ) -> None:
        """Create the methods.

        *served_ns* returns the time of the last delivery to a thin client: bulk readers yield to
        thin clients. *has_owner* returns whether a queue of a topic ever had an owner in a group;
        it may raise RemotingError. *load* limits the memory for answers. *may* tells whether a
        principal may do something.
        """
        self._client = client
        self._lanes = lanes
        self._positions = BulkPositions(client, lanes)
        pace = BulkPace(
            limits.bulk_bytes_per_s,
            limits.bulk_bytes_per_s_beside_clients,
            bound_ns=limits.bulk_added_delay_ms * 1_000_000,
        )
        self._scheduler = BulkScheduler(pace, served_ns)
        self._fetching = BulkFetch(
            client,
            self._positions,
            self._scheduler,
            limits,
            load or Load(limits.max_inflight_bytes),
        )
        self._has_owner = has_owner
        self._may = may
        self.refused_acks = 0

    @property
    def counts(self) -> Mapping[Group, BulkCounts]:
        """Counters of bulk readers by group."""
        return self._scheduler.counts

    def figures(self) -> dict[str, dict[str, float]]:
        """Return the counters as metrics: bytes read, seconds of delay by limits, messages."""
        return {
            group: {
                "bulk_bytes": each.read_bytes,
                "bulk_held_back": each.held_back_ns / 1e9,
                "bulk_lost": each.lost,
                "bulk_skipped": each.skipped,
                "bulk_repeated": each.repeated,
            }
            for group, each in self.counts.items()
        }

    def forget(self, group: Group) -> None:
        """Forget the removed *group*."""
        self._scheduler.counts.pop(group, None)
        self._positions.forget(group)

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
            "topics": Entry(
                consumer_service.topics_args,
                awaiting(self._topics),
                refuse_by(consumer_service.topics_result),
            ),
            "report": Entry(
                consumer_service.report_args,
                awaiting(self._report),
                refuse_by(consumer_service.report_result),
                frees=True,
            ),
            "getConsumeStats": Entry(
                consumer_service.getConsumeStats_args,
                awaiting(self._consume_stats),
                refuse_by(consumer_service.getConsumeStats_result),
            ),
        }

    # ---- progress -------------------------------------------------------------------------------

    async def _ack(self, arguments: Any, reply: Reply) -> Any:
        try:
            meaning = interpretation_of(reply, arguments)
        except Refused as error:
            self._positions.warn("ack failed", error)
            taken = False
        else:
            taken = arguments.result is not None and await self._acked(arguments.result, meaning)
        self.refused_acks += not taken
        return consumer_service.ack_result(success=taken)

    async def _acked(self, request: Any, meaning: Interpretation) -> bool:
        lane = self._lanes.find(meaning.group)
        if lane is None:
            return False
        return await self._commit(lane, request.offsets or {}, reader_of(request)) is None

    async def _report(self, arguments: Any, reply: Reply) -> Any:
        request = arguments.request
        try:
            if request is None:
                raise Refused("report came without its request")
            meaning = interpretation_of(reply, arguments)
            lane = await self._reporting_lane(meaning)
            self._count(lane, request)
            why = await self._reported(lane, meaning, request)
            self.refused_acks += why is not None
        except (OrderlaneError, RemotingError) as error:
            return consumer_service.report_result(error=refusal(error))
        return consumer_service.report_result(success=consumer.ReportAnswer(refusal=why))

    async def _reported(self, lane: GroupLane, meaning: Interpretation, request: Any) -> str | None:
        """Set the offsets of a report in the topics that the group has: a query keeps those of
        topics that it no longer finds. Return why not all are set, a sentence; None if they are.
        """
        unknown = _unknown_topics(lane, meaning.topics or ())
        offsets = {
            topic: qids for topic, qids in (request.offsets or {}).items() if topic in lane.topics
        }
        if not offsets:
            return unknown
        why = await self._commit(lane, offsets, reader_of(request), request.lives or {})
        if why is None and unknown is not None:
            return f"{unknown}; the offsets of its other topics are set"
        return why

    async def _reporting_lane(self, meaning: Interpretation) -> GroupLane:
        """Return the lane of the group, created if it may be; it may lack topics of the report."""
        lane = self._lanes.find(meaning.group)
        if lane is None or lane.auto_created:
            try:
                return await self._lane_of(meaning)
            except RemotingError:
                if lane is None:
                    raise
        return lane

    def _count(self, lane: GroupLane, request: Any) -> None:
        reader = reader_of(request)
        self.counts[lane.name].add(
            lost=_total(request.lost),
            skipped=_total(request.skipped),
            repeated=_total(request.repeated),
        )
        for what, found in (("lost", request.lost), ("skipped", request.skipped)):
            if found:
                of = ", ".join(f"{number} of {topic}" for topic, number in sorted(found.items()))
                self._positions.warn(
                    f"a bulk reader {what} messages", f"{reader} in group {lane.name}: {of}"
                )

    async def _commit(
        self,
        lane: GroupLane,
        offsets: Mapping[str, Mapping[str, int]],
        reader: str,
        lives: Mapping[str, Mapping[str, int]] = MappingProxyType({}),
    ) -> str | None:
        """Set the committed offsets of the group. Return why not, a sentence; None if they were
        set.

        *lives*: those in which the reader read the queues; of others the life of its last read
        without offsets counts.
        """
        if lane.presence.joined:
            return (
                f"thin clients consume with group {lane.name!r}, and their leases decide its"
                " offsets: use a group of your own"
            )
        if why := await self._owned(lane, offsets):
            return why
        positions = await self._positions.named(lane, offsets)
        readers = self._positions.readers_of(lane.name)
        read_in = {
            each.queue: readers.life_read(reader, each.queue) if life is None else life
            for each in positions
            if each.queue is not None
            for life in (lives.get(each.topic, {}).get(each.qid),)
        }
        if why := await self._beyond(positions, read_in):
            return why
        if not readers.may_ack(reader, now_ns()):
            return (
                f"the reader {readers.acker!r} reported progress of group {lane.name!r} within the"
                f" last {ACK_HOLD_NS // 1_000_000_000} s, and this one is {reader!r}: use another"
                " group, or the same consumerId if it replaces that reader"
            )
        outcomes = await asyncio.gather(
            *(
                self._client.commit_offset(
                    *(lane.name, each.queue, each.offset),
                    life=read_in[each.queue],
                )
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
        return f"a broker failed: {failures[0]}" if failures else None

    async def _owned(self, lane: GroupLane, topics: Iterable[str]) -> str | None:
        """Return why bulk readers cannot move the offsets of the group in *topics*; None if no thin
        client ever consumed them, at any proxy: the next owner would skip unfinished messages.
        """
        for topic in topics:
            try:
                owned = topic in lane.topics and await self._has_owner(lane.name, Topic(topic))
            except RemotingError as error:
                self._positions.warn("ack failed", error)
                return f"a broker failed: {error}"
            if owned:
                return (
                    f"thin clients consumed topic {topic!r} with group {lane.name!r}, and the"
                    " group's ownership records decide its offsets: use a group of your own"
                )
        return None

    async def _beyond(
        self, positions: Iterable[Position], read_in: Mapping[QueueName, int | None]
    ) -> str | None:
        """Return why *positions* cannot be committed; None if their queues have reached them in the
        lives in which they were read (*read_in*; None: unknown).

        A committed offset beyond the end would skip future messages and hide the lag, and so would
        one of a former life of the topic. Brokers check the life again.
        """
        for each in positions:
            if each.offset < 0:
                return f"{_place(each)} is below 0"  # logged where it was found
        there = {each.queue: each for each in positions if each.queue is not None}
        try:
            ranges = await self._client.queue_ranges(there)
        except RemotingError as error:
            self._positions.warn("ack failed", error)
            return f"a broker failed: {error}"
        for queue, each in there.items():
            end, life = ranges[queue].end, ranges[queue].life
            if None not in (life, read_in[queue]) and life != read_in[queue]:
                why = (
                    f"{_place(each)}: it was read in life {read_in[queue]} of the topic, which was"
                    " deleted and created again since, or restored from an older copy, and is now"
                    f" in life {life}"
                )
                self._positions.warn("an ack is of a former life of its topic", why)
                return why
            if each.offset > end:
                why = f"{_place(each)}: the queue ends at {end}"
                self._positions.warn("an ack is beyond the end of its queue", why)
                return why
        return None

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
        ranges = await self._client.queue_ranges(queues, group=group)
        return consumer.ConsumeStats(
            group=group,
            topic=topic,
            consumeOffsets={queue.qid: ranges[queue].committed or 0 for queue in queues},
            produceOffsets={queue.qid: ranges[queue].end for queue in queues},
        )

    async def _topics(self, arguments: Any, reply: Reply) -> Any:
        request = arguments.request
        try:
            if request is None:
                raise Refused("topics came without its request")
            interpretation_of(reply, arguments)
            found = await self._readable_topics(Group(request.groupId), reply.principal)
        except (OrderlaneError, RemotingError) as error:
            return consumer_service.topics_result(error=refusal(error))
        return consumer_service.topics_result(success=found)

    async def _readable_topics(self, group: Group, principal: str | None) -> list[str]:
        """Return the existing topics that *principal* can read as *group*, sorted.

        Raises UnknownName, Unavailable, RemotingError, and Forbidden if it may read none of the
        group's.
        """
        existing = set(await self._client.topics())
        self._lanes.check_settings(group)
        lane = self._lanes.find(group)
        if self._lanes.auto_create and (lane is None or lane.auto_created):
            topics: set[str] = {each for each in existing if not is_internal_topic(each)}
        else:
            topics = {each.name for each in self._lanes.require(group, None).settings.topics}
        allowed = {each for each in topics if self._may(principal, _bulk_access(group, each))}
        if topics and not allowed:
            raise Forbidden(
                f"{principal} may not read any topic in bulk as group {group!r}: see this proxy's"
                " setting access"
            )
        return sorted(allowed & existing)

    async def _ranges(self, arguments: Any, reply: Reply) -> Any:
        request = arguments.request
        try:
            if request is None:
                raise Refused("ranges came without its request")
            meaning = interpretation_of(reply, arguments)
            lane = await self._lane_of(meaning)
            ranges = await self._ranges_of(lane, meaning.topics or (), request)
        except NotOfGroup as error:
            return consumer_service.ranges_result(error=await self._outside(error, meaning))
        except (OrderlaneError, RemotingError) as error:
            return consumer_service.ranges_result(error=refusal(error))
        return consumer_service.ranges_result(success=ranges)

    async def _outside(self, error: NotOfGroup, meaning: Interpretation) -> Any:
        """Return the refusal of a request with a topic that its group does not have.

        If the topic exists, the code differs from that of an unknown one: a reader gives up the
        messages of a deleted topic, but not those of a topic that it may no longer read.
        """
        lane = self._lanes.find(meaning.group)
        topics = meaning.topics or ()
        known = () if lane is None else lane.topics
        for topic in (each for each in topics if each not in known):
            try:
                await self._client.queues(Topic(topic), fresh=True)
            except RemotingError as why:
                if not isinstance(why, BrokerError) or why.code != ResponseCode.TOPIC_NOT_EXIST:
                    return refusal(why)
            else:
                return refusal(
                    Refused(
                        f"{error}; topic {topic!r} exists: add it to the group in the proxy's"
                        " settings"
                    )
                )
        return refusal(error)

    async def _ranges_of(self, lane: GroupLane, topics: Iterable[str], request: Any) -> list[Any]:
        group = None if request.withoutCommitted else lane.name
        queues = await self._queues(topics)
        ranges = await self._client.queue_ranges(queues, group=group)
        # Brokers also answer for queues that a topic had before it was created again.
        empty = {queue.topic for queue in queues if ranges[queue].end == 0}
        if empty:
            there = await self._queues(empty, fresh=True)
            queues = [queue for queue in queues if queue.topic not in empty] + there
            if new := [queue for queue in there if queue not in ranges]:
                ranges = {**ranges, **await self._client.queue_ranges(new, group=group)}
        answer = []
        for at in range(0, len(queues), _RANGES_AT_ONCE):
            some = queues[at : at + _RANGES_AT_ONCE]
            answer += await asyncio.gather(
                *(self._range(queue, ranges[queue], request.timestampMs) for queue in some)
            )
            await asyncio.sleep(0)  # other calls go between
        return answer

    async def _queues(self, topics: Iterable[str], *, fresh: bool = False) -> list[QueueName]:
        """Return the queues of *topics*; *fresh*: as a nameserver has them now."""
        by_topic = await asyncio.gather(
            *(self._client.queues(Topic(topic), fresh=fresh) for topic in topics)
        )
        return [queue for each in by_topic for queue in each]

    async def _lane_of(self, meaning: Interpretation) -> GroupLane:
        """Return the lane of the group, which has the topics of the request.

        Raises UnknownName as ``Lanes.require``, and RemotingError for a topic that does not exist
        before a group created on its first use gets it.
        """
        topics = meaning.topics or ()
        if self._lanes.auto_create:
            await asyncio.gather(*(self._client.queues(Topic(topic)) for topic in topics))
        return self._lanes.require(meaning.group, topics)

    async def _range(self, queue: QueueName, found: QueueRange, timestamp_ms: int | None) -> Any:
        at = None if timestamp_ms is None else await self._client.offset_at(queue, timestamp_ms)
        return consumer.QueueRange(
            topic=queue.topic,
            qid=queue.qid,
            beginOffset=found.begin,
            endOffset=found.end,
            committedOffset=found.committed,
            offsetAtTimestamp=at,
            life=found.life,
        )


def _bulk_access(group: Group, topic: str) -> Access:
    return Access(Right.BULK, group, (topic,))


def _total(counts: Mapping[str, int] | None) -> int:
    return sum(max(0, number) for number in (counts or {}).values())


def _unknown_topics(lane: GroupLane, topics: Iterable[str]) -> str | None:
    """Return which of *topics* the group does not have, a sentence; None if it has all."""
    unknown = [topic for topic in topics if topic not in lane.topics]
    return f"group {lane.name!r} has no topic {unknown[0]!r}" if unknown else None


def _place(position: Position) -> str:
    return f"topic {position.topic!r}, qid {position.qid!r}, offset {position.offset}"


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
