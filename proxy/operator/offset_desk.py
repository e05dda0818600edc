"""Operations on the offsets of a group: show, reset, skip what is damaged."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any

from broker_core.client import QueueRange
from broker_core.clock import now_ns
from broker_core.errors import RemotingError
from broker_core.names import Group, QueueName, Topic
from proxy.core.access.audit_record import Change
from proxy.core.broadcast.member_group import member_group
from proxy.core.pipeline.queue_pipeline import QueuePipeline
from proxy.core.records.parked_key import TWIN_MARK
from proxy.errors import Unavailable, UnknownName, WrongState
from proxy.lane.group_lane import GroupLane
from proxy.lane.lanes import Lanes, topic_named
from proxy.upstream.broker_questions import BrokerQuestions
from proxy.upstream.context import UpstreamContext
from proxy.upstream.ownership.group_ownership import GroupOwnership
from proxy.upstream.ownership.owned_queue import OwnedQueue
from proxy.upstream.ownership.owner_book import OwnerBook, OwnerRow
from proxy.upstream.ownership.resets import Place


@dataclass(frozen=True, slots=True)
class ResetWish:
    """Target of a reset: an offset, a time, the begin, or else the end. ``expect``: the required
    current offset.
    """

    by: str
    reason: str
    to_offset: int | None = None
    to_ms: int | None = None
    to_begin: bool = False
    expect: int | None = None
    dry_run: bool = False


@dataclass(frozen=True, slots=True)
class SkipWish:
    """The offset of a damaged message to skip."""

    by: str
    reason: str
    offset: int


class OffsetDesk:
    """Any proxy can show offsets. Only a queue's owner resets it, or any proxy if it has none."""

    def __init__(
        self,
        context: UpstreamContext,
        lanes: Lanes,
        ownerships: Mapping[Group, GroupOwnership],
        book: OwnerBook,
    ) -> None:
        self._context = context
        self._lanes = lanes
        self._ownerships = ownerships
        self._book = book

    async def show(self, group: str, topic: str | None) -> dict[str, Any]:
        """Return the offsets of *group* in the queues of its topics (or of *topic*), without those
        of brokers that do not answer: ``unanswered`` has their errors, by name.

        Raises UnknownName; Unavailable if no broker answers.
        """
        lane = self._lanes.named(group)
        names = [Topic(each.name) for each in lane.settings.topics]
        if topic is not None:
            names = [topic_named(lane, topic)]
        ask = BrokerQuestions()
        rows: list[dict[str, Any]] = []
        missing: UnknownName | None = None
        for name in names:
            try:
                rows += await self._of_topic(ask, lane, name)
            except UnknownName as error:  # it does not exist yet
                missing = missing or error.with_traceback(None)
        if not rows and ask.unanswered:
            raise Unavailable(ask.sentence)
        if not rows and missing is not None:
            raise missing
        return {"group": lane.name, "queues": rows, "unanswered": ask.unanswered}

    async def reset(self, group: str, topic: str, qid: str, wish: ResetWish) -> dict[str, Any]:
        """Move *group* to another offset of one queue.

        Leases on the queue end. Messages in between are skipped, or delivered again.

        Raises UnknownName, OwnedElsewhere, WrongState, Unavailable, RemotingError.
        """
        lane = self._lanes.named(group)
        if lane.is_broadcast:
            raise WrongState(
                f"group {lane.name!r} is a broadcast group with one offset per client: reset group"
                f" '{member_group(lane.name, 'CLIENT')}'"
            )
        name = topic_named(lane, topic)
        queue = await self._book.queue(lane.name, name, qid)
        ownership = self._ownerships[lane.name]
        owned = ownership.owned(queue)
        if owned is None:
            await self._book.refuse_elsewhere(lane.name, queue)
        to, life = await self._to(queue, wish)
        reset = QueueReset(self._context, lane, queue, to, wish)
        if wish.dry_run:
            return reset.plan(await self._place(lane, queue, owned))
        if owned is None:
            await ownership.reset_free(queue, reset.move, life=life)
        else:
            async with reset.move(_place(owned)) as (offset, why):
                reset.plan(_place(owned))  # the group may have moved on
                await owned.reset_to(offset, **why)
            ownership.wake()
        return reset.done

    async def skip(self, group: str, topic: str, qid: str, wish: SkipWish) -> dict[str, Any]:
        """Skip the damaged message at which a queue or one of its keys waits, and no other one; at
        the read position also the damaged ones behind it.

        *qid*: ``broker-a_0p`` for the parked messages of ``broker-a_0``. Raises UnknownName,
        OwnedElsewhere, WrongState, Unavailable, RemotingError.
        """
        lane = self._lanes.named(group)
        queue = await self._book.queue(
            lane.name, topic_named(lane, topic), qid.removesuffix(TWIN_MARK)
        )
        owned = self._ownerships[lane.name].owned(queue)
        if owned is None:
            await self._book.refuse_elsewhere(lane.name, queue)
            raise WrongState(
                f"no proxy owns queue {queue.qid} of {queue.topic!r} for group {lane.name!r}, and"
                " only an owner knows damaged messages: skip it once a client pulls"
            )
        pipeline: QueuePipeline | None = owned.for_reset()
        if qid.endswith(TWIN_MARK):
            pipeline = owned.for_reset().twin
        if pipeline is None:
            raise WrongState(f"queue {queue.qid} of {queue.topic!r} has no parked messages")
        change = Change(
            actor=wish.by,
            verb="offsets skip",
            group=lane.name,
            reason=wish.reason,
            topic=queue.topic,
            target=qid,
            before={"damaged": wish.offset},
            after={"skipped": wish.offset},
        )
        async with self._context.audit.change(change) as entry:
            owned.for_reset()  # still, after the wait for the audit record
            pipeline.at(now_ns())
            effects = pipeline.skip_damaged(wish.offset, audit=entry.id)
            lane.apply_effects(pipeline, effects)
            await self._record(lane, pipeline)
        skipped = [offset for offset, _ in effects.finished]
        return {"topic": queue.topic, "queue": qid, "offset": wish.offset, "skipped": len(skipped)}

    # ---- inside ---------------------------------------------------------------------------------

    async def _of_topic(
        self, ask: BrokerQuestions, lane: GroupLane, topic: Topic
    ) -> list[dict[str, Any]]:
        try:
            queues = await self._book.queues(lane.name, topic)
        except RemotingError as error:
            ask.note(f"the brokers of {topic}", error)
            return []

        async def at_broker(there: list[QueueName]) -> list[dict[str, Any]]:
            rows = await self._book.rows(lane.name, there)
            ranges = await self._context.client.queue_ranges(there, group=lane.name)
            return [self._row(lane, row, ranges[row.queue]) for row in rows]

        answers = await ask.ask_each(queues, at_broker)
        return [row for rows in answers for row in rows]

    async def _record(self, lane: GroupLane, pipeline: QueuePipeline) -> None:
        try:
            await self._context.recorder.record(lane, pipeline)
        except RemotingError as error:
            raise Unavailable(
                "the message is skipped, but this is not recorded yet: the next owner would wait"
                f" for it again: {error}"
            ) from None

    def _row(self, lane: GroupLane, row: OwnerRow, range_: QueueRange) -> dict[str, Any]:
        queue = row.queue
        owned = self._ownerships[lane.name].owned(queue)
        base = range_.begin if range_.committed is None else range_.committed
        if owned is not None and (pipeline := owned.pipeline) is not None:
            base = pipeline.committable
        elif row.last is not None and row.last.snapshot is not None:
            base = max(base, row.last.snapshot.base)
        return {
            "topic": queue.topic,
            "queue": queue.qid,
            "begin": range_.begin,
            "end": range_.end,
            "committed": range_.committed,
            "base": base,
            "lag": max(0, range_.end - base),
            "state": row.state,
            "owner": row.last.own.owner if row.last is not None and row.state == "owned" else None,
            "http": row.last.own.http if row.last is not None and row.state == "owned" else None,
        }

    async def _to(self, queue: QueueName, wish: ResetWish) -> tuple[int, int | None]:
        """Return the offset that *wish* means, and the life of the topic that has it."""
        client = self._context.client
        begin, end, _, life = (await client.queue_ranges([queue]))[queue]
        if wish.to_ms is not None:
            return min(end, max(begin, await client.offset_at(queue, wish.to_ms))), life
        if wish.to_begin:
            return begin, life
        to = end if wish.to_offset is None else wish.to_offset
        if not begin <= to <= end:
            raise WrongState(
                f"offset {to} is outside queue {queue.qid} of {queue.topic!r}, which has offsets"
                f" {begin} to {end}"
            )
        return to, life

    async def _place(self, lane: GroupLane, queue: QueueName, owned: OwnedQueue | None) -> Place:
        if owned is not None:
            return _place(owned)
        (row,) = await self._book.rows(lane.name, [queue])
        range_ = (await self._context.client.queue_ranges([queue], group=lane.name))[queue]
        base = range_.begin if range_.committed is None else range_.committed
        if row.last is None or row.last.snapshot is None:
            return Place(base, parked=0)
        last = row.last.snapshot
        return Place(max(base, last.base), len(last.parked), 0, len(last.unfinished))


class QueueReset:
    """One reset of one queue."""

    def __init__(
        self,
        context: UpstreamContext,
        lane: GroupLane,
        queue: QueueName,
        to: int,
        wish: ResetWish,
    ) -> None:
        self._context = context
        self._lane = lane
        self._queue = queue
        self._to = to
        self._wish = wish
        self.done: dict[str, Any] = {}

    def plan(self, place: Place) -> dict[str, Any]:
        """Return the effect of the reset. Raises WrongState if it is not allowed."""
        queue, to, base = self._queue, self._to, place.base
        if self._wish.expect not in (None, base):
            raise WrongState(
                f"group {self._lane.name!r} is at offset {base} in queue {queue.qid} of"
                f" {queue.topic!r}, not at {self._wish.expect}: run the dry run again"
            )
        if to < base and place.parked:
            raise WrongState(
                f"queue {queue.qid} has parked keys ({place.parked}), whose earlier messages would"
                " be delivered after the parked ones: redrive these keys first"
            )
        self.done = {
            "topic": queue.topic,
            "queue": queue.qid,
            "from": base,
            "to": to,
            "skipped": max(0, to - base),
            "repeated": max(0, base - to),
            "leases_ended": place.leased,
            "parked_keys_kept": place.parked,
            "dry_run": self._wish.dry_run,
        }
        return self.done

    @asynccontextmanager
    async def move(self, place: Place) -> AsyncIterator[tuple[int, dict[str, object]]]:
        """Audit the reset and yield its offset and details, as ``Moving`` requires."""
        self.plan(place)
        wish, queue = self._wish, self._queue
        change = Change(
            actor=wish.by,
            verb="offsets reset",
            group=self._lane.name,
            reason=wish.reason,
            topic=queue.topic,
            target=queue.qid,
            before={"base": place.base},
            after={"base": self._to},
        )
        async with self._context.audit.change(change) as entry:
            why: dict[str, object] = {"by": wish.by, "reason": wish.reason, "audit": entry.id}
            yield self._to, why if wish.expect is None else {**why, "expect": wish.expect}


def _place(owned: OwnedQueue) -> Place:
    """Return the group's position in an owned queue. Raises WrongState if it is not known yet."""
    pipeline = owned.for_reset()
    return Place(
        pipeline.committable,
        parked=len(pipeline.parked),
        leased=len(pipeline.leases),
        unfinished=pipeline.jobs.unfinished,
    )
