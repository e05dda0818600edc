"""Moves a group to another offset of a queue for an operator.

An empty snapshot at the new offset is stored, then the committed offset, and only then is the queue
read: a crash in between leaves either the old or the new position. A committed offset below the
base of the records without such a snapshot counts as a lost commit.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass, replace

import structlog

from broker_core.clock import now_ns
from broker_core.errors import RemotingError
from broker_core.names import Group, QueueName
from proxy.core.pipeline.queue_pipeline import QueuePipeline
from proxy.core.records.record import Own, Snapshot
from proxy.errors import Unavailable, WrongState
from proxy.lane.group_lane import GroupLane
from proxy.upstream.context import UpstreamContext
from proxy.upstream.ownership.free_period import FreePeriod
from proxy.upstream.ownership.period_start import Begun
from proxy.upstream.parking.parked_recovery import twin_of

_log = structlog.get_logger("ownership")

_LOOK_AGAIN_S = 0.2


class NoOwnerNow(WrongState):
    """The group's position in a queue is unknown, because no proxy certainly owns it."""

    def __init__(self, queue: QueueName) -> None:
        super().__init__(
            f"queue {queue.qid} is being taken over or handed over: try again in a moment",
            passing=True,
        )


class NotStored(Unavailable):
    """The broker confirmed no record of a reset in time; it may have stored one."""

    def __init__(self, queue: QueueName) -> None:
        super().__init__(
            f"the reset of queue {queue.qid} may not be stored, because its broker does not answer:"
            " look at the offsets of the group and reset again"
        )


@dataclass(frozen=True, slots=True)
class Place:
    """A group's position in a queue: ``base`` is the next offset that it needs."""

    base: int
    parked: int
    leased: int = 0
    unfinished: int = 0


class Overtaken(WrongState):
    """The records name a later owner, so ours do not count for a reset."""

    def __init__(self, queue: QueueName) -> None:
        super().__init__(
            f"the records of queue {queue.qid} name a later owner than this proxy, so the group was"
            " not moved there: try again in a moment"
        )


class LostMeanwhile(WrongState):
    """The lock was lost while a reset was stored, so another owner may not know of it."""

    def __init__(self, queue: QueueName) -> None:
        super().__init__(
            f"this proxy lost queue {queue.qid} during the reset, which may not be stored: look at"
            " the offsets of the group and reset again"
        )


#: Receives the group's position and yields the new offset and the fields for the history, or
#: raises. Its context covers the reset.
Moving = Callable[[Place], AbstractAsyncContextManager[tuple[int, dict[str, object]]]]


def moved_to(pipeline: QueuePipeline, offset: int) -> Snapshot:
    """Return the snapshot of a queue whose group continues at *offset*."""
    return pipeline.snapshot(now_ns=now_ns()).moved_to(offset)


async def store_reset(
    context: UpstreamContext, group: Group, queue: QueueName, moved: Snapshot, own: Own
) -> bool:
    """Store that *group* continues with *moved*, as the last record of the period begun by *own*.

    Return False after a pause if that failed. Raises Overtaken.
    """
    try:
        stored = await context.log.append_snapshot(group, queue, moved, own)
        last, _ = await context.log.last(group, queue, before=stored[-1] + 1)
        if last is None or last.epoch != moved.epoch:
            raise Overtaken(queue)
        if last.snapshot_at is None or last.snapshot_at < stored[0]:
            # a part of an earlier attempt came in between, which invalidates the snapshot
            return False
        await context.client.commit_offset(
            *(group, queue, moved.base),
            epoch=moved.epoch,
            epoch_life=context.log.life(group, queue),
            life=own.life,
        )
    except RemotingError as error:
        _log.error("reset not stored; retrying", group=group, queue=str(queue), reason=str(error))
        await asyncio.sleep(_LOOK_AGAIN_S)
        return False
    return True


def place_of(begun: Begun, *, copies: int) -> Place:
    """Return the group's position by the records of a queue without an owner, whose parked twin
    has had that number of *copies*.

    Raises WrongState if they do not contain the parked keys.
    """
    if not (begun.knows_parked or (begun.is_first and not copies)):
        raise WrongState(
            "the ownership records are damaged: let a client pull first, which repairs them"
        )
    last = None if begun.last is None else begun.last.snapshot
    if last is None:
        return Place(begun.start_offset, parked=0)
    return Place(max(last.base, begun.start_offset), len(last.parked), 0, len(last.unfinished))


class FreeReset:
    """A short ownership period for the reset of a queue that no proxy owns."""

    def __init__(
        self,
        context: UpstreamContext,
        lane: GroupLane,
        queue: QueueName,
        *,
        lock_requests: asyncio.Lock,
    ) -> None:
        """*lock_requests*: see ``FreePeriod``."""
        self._context = context
        self._lane = lane
        self._queue = queue
        self._period = FreePeriod(context, lane, queue, lock_requests=lock_requests)

    async def run(self, move: Moving, *, life: int | None = None) -> None:
        """Reset the queue; *life*: of the topic that the new offset belongs to, None if unknown.

        Raises WrongState if another proxy has the lock, the records name a later owner or the topic
        is in another life, Unavailable, RemotingError.
        """
        async with (
            self._locked() as trusted_until_ns,
            self._period.begun("reset", trusted_until_ns=trusted_until_ns) as begun,
        ):
            if life not in (None, begun.life.number):
                raise WrongState(
                    f"topic {self._queue.topic!r} was deleted and created again meanwhile, or an"
                    " older copy of its log restored: look at its offsets and reset again"
                )
            copies = 0
            if begun.is_first:
                _, copies = await twin_of(self._context.client, self._lane.name, self._queue)
            place = place_of(begun, copies=copies)
            async with move(place) as (offset, why):
                await self._store(begun, offset, until_ns=trusted_until_ns)
                why = {"from": place.base, "to": offset, **why}
                self._period.note(begun.epoch, "reset", **why)

    async def _store(self, begun: Begun, offset: int, *, until_ns: int) -> None:
        last = None if begun.last is None else begun.last.snapshot
        start = begun.start_offset
        left = last or Snapshot(begun.epoch, start, start)
        left = replace(left, read=max(left.read, start))  # an administrator may have moved it on
        moved = begun.with_pauses(left).moved_to(offset, epoch=begun.epoch)
        group = self._lane.name
        while now_ns() < until_ns:
            if await store_reset(self._context, group, self._queue, moved, begun.own):
                return
        raise NotStored(self._queue)

    def _locked(self) -> AbstractAsyncContextManager[int]:
        return self._period.locked()
