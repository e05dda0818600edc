"""Operations on leases: list, show, extend, revoke."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from broker_core.clock import now_ns, wall_ms
from broker_core.names import Group, QueueName, Topic, parse_qid
from proxy.core.access.audit_record import Change
from proxy.core.keys.ids import LeaseId
from proxy.core.keys.order_key import key_text, known_as
from proxy.core.keys.retry_policy import MS
from proxy.core.leases.lease_book import Lease
from proxy.core.pipeline.queue_pipeline import QueuePipeline
from proxy.core.records.parked_key import TWIN_MARK
from proxy.errors import OrderlaneError, UnknownName
from proxy.lane.group_lane import GroupLane
from proxy.lane.lanes import Lanes, topic_named
from proxy.upstream.context import UpstreamContext
from proxy.upstream.ownership.owner_book import OwnerBook


@dataclass(frozen=True, slots=True)
class LeaseWish:
    """Selects leases; None matches any value."""

    limit: int = 1000
    topic: str | None = None
    queue: str | None = None
    key: str | None = None
    client: str | None = None

    def takes(self, row: dict[str, Any]) -> bool:
        """Return whether *row* is selected."""
        key = None if self.key is None else known_as(self.key)
        wanted = {"topic": self.topic, "queue": self.queue, "key": key, "client": self.client}
        return all(row[name] == value for name, value in wanted.items() if value is not None)


class LeaseDesk:
    """Operations on leases of this proxy's queues; errors for other queues name their owner.

    A lease is named by topic, queue, epoch and number, such as ``orders:broker-a_3:812:15``.
    """

    def __init__(self, context: UpstreamContext, lanes: Lanes, book: OwnerBook) -> None:
        self._context = context
        self._lanes = lanes
        self._book = book

    async def rows(self, group: str, wish: LeaseWish) -> dict[str, Any]:
        """Return the live leases of *group* at this proxy, the next to expire first.

        Raises UnknownName for an unknown group, topic or queue; RemotingError.
        """
        lane = self._lanes.named(group)
        await self._check_place(lane, wish)
        found = [row for each in lane.buffer for row in _rows(each) if wish.takes(row)]
        found.sort(key=lambda row: (row["ends_in_ms"], row["lease"]))
        return {"group": lane.name, "live": len(found), "leases": found[: wish.limit]}

    async def show(self, group: str, name: str) -> dict[str, Any]:
        """Return one lease. Raises UnknownName if it has ended, OwnedElsewhere, RemotingError."""
        return _row(*await self._find(self._lanes.named(group), name))

    async def extend(
        self, group: str, name: str, *, ms: int | None, by: str, reason: str
    ) -> dict[str, Any]:
        """Set the deadline to *ms* from now; maximum and default are one visibility timeout."""
        lane = self._lanes.named(group)
        pipeline, lease = await self._find(lane, name)
        length_ms = pipeline.visibility_ns // MS
        wanted_ms = min(ms or length_ms, length_ms)
        row = _row(pipeline, lease)
        change = _change("lease extend", lane, row, by=by, reason=reason, after=wanted_ms)
        async with self._context.audit.change(change):
            if lane.extend(pipeline.topic, pipeline.qid, [lease.lease_id], ms=wanted_ms):
                raise OrderlaneError(
                    f"lease {name} is not extended: it has just ended, or its queue is being"
                    " handed over"
                )
        return _row(pipeline, lease)

    async def revoke(self, group: str, name: str, *, by: str, reason: str) -> dict[str, Any]:
        """End a lease and its ordered run.

        Its messages are delivered again at once, or given up by the failure policy. Later verdicts
        of the client are ignored.
        """
        lane = self._lanes.named(group)
        pipeline, lease = await self._find(lane, name)
        row = _row(pipeline, lease)
        change = _change("lease revoke", lane, row, by=by, reason=reason, after="ended")
        async with self._context.audit.change(change):
            if pipeline.has_ended:  # the next owner waits for the lease, by our last record
                raise OrderlaneError(
                    f"lease {name} is not revoked: its queue is being handed over, and the next"
                    " owner waits for its end"
                )
            effects = pipeline.revoke(lease.lease_id, now_ns=now_ns())
            lane.apply_effects(pipeline, effects)
            if not (effects.revoked or effects.unsent):
                raise OrderlaneError(f"lease {name} has just ended")
        return {**row, "ends_in_ms": 0}

    async def _check_place(self, lane: GroupLane, wish: LeaseWish) -> None:
        """Raise UnknownName for a missing queue, which would look like one without leases."""
        if wish.topic is None:
            topics = [Topic(each.name) for each in lane.settings.topics]
        else:
            topics = [topic_named(lane, wish.topic)]
        if wish.queue is None or any(
            each.place == wish.queue and each.topic in topics for each in lane.buffer
        ):
            return
        unknown = None
        for topic in topics:
            try:
                await self._book.queue(lane.name, topic, wish.queue.removesuffix(TWIN_MARK))
            except UnknownName as error:
                unknown = unknown or str(error)
            else:
                return  # not owned by this proxy
        if unknown is not None:
            raise UnknownName(unknown)

    async def _find(self, lane: GroupLane, name: str) -> tuple[QueuePipeline, Lease]:
        topic, place, epoch, number = _parts(name)
        for pipeline in lane.buffer:
            if (pipeline.topic, pipeline.place) == (topic, place):
                lease = pipeline.leases.live(number)
                if lease is not None and pipeline.epoch == epoch:
                    return pipeline, lease
                raise UnknownName(f"lease {name} has ended")
        if lane.settings.topic(topic) is not None:
            await self._book.refuse_elsewhere(lane.name, _queue(topic, place))
        raise UnknownName(f"group {lane.name!r} has no lease {name} at this proxy")


def _parts(name: str) -> tuple[Topic, str, int, LeaseId]:
    topic, _, rest = name.partition(":")
    place, epoch, number = (*rest.rsplit(":", 2), "", "")[:3]
    if not (topic and place and _is_number(epoch) and _is_number(number)):
        raise UnknownName(
            f"invalid lease name {name[:200]!r}: write it as orders:broker-a_3:812:15"
        )
    return Topic(topic), place, int(epoch), LeaseId(int(number))


def _is_number(text: str) -> bool:
    return text.isascii() and text.isdecimal() and len(text) < 20


def _queue(topic: Topic, place: str) -> QueueName:
    """Return the queue of *place*, which may name the twin for parked messages."""
    try:
        return parse_qid(topic, place.removesuffix(TWIN_MARK))
    except ValueError as error:
        raise UnknownName(str(error)) from None


def _rows(pipeline: QueuePipeline) -> Iterator[dict[str, Any]]:
    return (_row(pipeline, lease) for lease in pipeline.leases)


def _row(pipeline: QueuePipeline, lease: Lease) -> dict[str, Any]:
    ends_in_ms = max(0, (lease.deadline_ns - now_ns()) // MS)
    head = lease.run[0].lease_id if lease.run else None
    return {
        "lease": _name(pipeline, lease.lease_id),
        "topic": pipeline.topic,
        "queue": pipeline.place,
        "offset": lease.job.offset,
        "key": None if lease.job.key is None else key_text(lease.job.key),
        "message_id": lease.job.message.message_id if lease.job.message else None,
        "client": lease.holder.client,
        "connection": lease.holder.connection,
        "attempt": lease.job.attempts,
        "run": None if head is None else _name(pipeline, head),
        "ends_in_ms": ends_in_ms,
        "ends_at_ms": wall_ms() + ends_in_ms,
    }


def _name(pipeline: QueuePipeline, lease_id: LeaseId) -> str:
    return f"{pipeline.topic}:{pipeline.place}:{pipeline.epoch}:{lease_id}"


def _change(
    verb: str, lane: GroupLane, row: dict[str, Any], *, by: str, reason: str, after: Any
) -> Change:
    before = {name: row[name] for name in ("offset", "key", "client", "attempt", "ends_in_ms")}
    return Change(
        actor=by,
        verb=verb,
        group=Group(lane.name),
        reason=reason,
        topic=row["topic"],
        target=row["lease"],
        before=before,
        after={"ends_in_ms": after} if isinstance(after, int) else {"state": after},
    )
