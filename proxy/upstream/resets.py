"""A person has a group go on at another offset of a queue: how that is written down.

An empty snapshot at the new place, then the committed offset, and only then does anybody read: so a
crash in between leaves either the old place or the new one. Who finds an offset below the base of
the records without such a snapshot takes it for a lost commit.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import dataclass

import structlog

from broker_core.clock import now_ns
from broker_core.errors import RemotingError
from broker_core.names import Group, QueueName
from proxy.core.ids import Epoch
from proxy.core.ownership_record import LAST_SERIAL, Clean, Own, Snapshot, parts
from proxy.core.queue_pipeline import QueuePipeline
from proxy.core.retry_policy import MS
from proxy.errors import Unavailable, WrongState
from proxy.group_lane import GroupLane
from proxy.lane_history import keys_in_history
from proxy.topic_rules import rules_of
from proxy.upstream.context import UpstreamContext
from proxy.upstream.period_start import Begun, PeriodStart

_log = structlog.get_logger("ownership")

_LOOK_AGAIN_S = 0.2


class NoOwnerNow(WrongState):
    """Nobody can say where the group stands in a queue."""

    def __init__(self, queue: QueueName) -> None:
        super().__init__(
            f"queue {queue.qid} is being taken over or handed over: ask again in a moment"
        )


class NotStored(Unavailable):
    """The broker of a queue took no record of a reset while it might be written."""

    def __init__(self, queue: QueueName) -> None:
        super().__init__(
            f"the reset of queue {queue.qid} is not stored, for its broker does not answer"
        )


@dataclass(frozen=True, slots=True)
class Place:
    """Where a group stands in a queue: ``base`` is the next offset that it needs."""

    base: int
    parked: int
    leased: int = 0
    unfinished: int = 0


class Overtaken(WrongState):
    """The records name a later owner, so what ours say of a reset counts for nobody."""

    def __init__(self, queue: QueueName) -> None:
        super().__init__(
            f"the records of queue {queue.qid} name a later owner than this proxy, so the group was"
            " not moved there: ask again in a moment"
        )


#: Given where the group stands, says where it is to go on, or raises; what it is to do lasts as
#: long as its context, and its value is what histories say of it.
Moving = Callable[[Place], AbstractAsyncContextManager[tuple[int, dict[str, object]]]]


def moved_to(pipeline: QueuePipeline, offset: int) -> Snapshot:
    """What is to be written of a queue that goes on at *offset*."""
    return pipeline.snapshot(now_ns=now_ns()).moved_to(offset)


async def store_reset(
    context: UpstreamContext, group: Group, queue: QueueName, moved: Snapshot, own: Own
) -> bool:
    """Write down that *group* goes on by *moved*, as the last word of the period that *own* began;
    False after a while if not. Raises Overtaken.
    """
    try:
        records = parts(moved, own, serial=LAST_SERIAL)
        stored = await context.log.append_each(group, queue, records)
        last, _ = await context.log.last(group, queue, before=stored[-1] + 1)
        if last is None or last.epoch != moved.epoch:
            raise Overtaken(queue)
        if last.snapshot_at is None or last.snapshot_at < stored[0]:
            return False  # what an earlier try had sent came in between, and none of it counts
        await context.client.commit_offset(
            *(group, queue, moved.base),
            epoch=moved.epoch,
            epoch_life=context.log.life(group, queue),
            life=own.life,
        )
    except RemotingError as error:
        _log.error("reset not written down", group=group, queue=str(queue), reason=str(error))
        await asyncio.sleep(_LOOK_AGAIN_S)
        return False
    return True


def place_of(begun: Begun) -> Place:
    """Where the group stands by the records of a queue that nobody owned. Raises WrongState if they
    do not say which keys are parked.
    """
    if not begun.knows_parked:
        raise WrongState("its ownership records are damaged: let a client pull first, to mend them")
    last = None if begun.last is None else begun.last.snapshot
    if last is None:
        return Place(begun.start_offset, parked=0)
    return Place(max(last.base, begun.start_offset), len(last.parked), 0, len(last.unfinished))


class FreeReset:
    """A queue that no proxy owns is owned for as long as a reset takes."""

    def __init__(
        self,
        context: UpstreamContext,
        lane: GroupLane,
        queue: QueueName,
        *,
        lock_requests: asyncio.Lock,
    ) -> None:
        """*lock_requests* is held over lock and unlock, as for all queues of the group there."""
        self._context = context
        self._lane = lane
        self._queue = queue
        self._lock_requests = lock_requests

    async def run(self, move: Moving) -> None:
        """Do it. Raises WrongState if another has the lock or the records name a later owner,
        Unavailable, RemotingError.
        """
        topic = self._lane.settings.topic(self._queue.topic)
        if topic is None:
            raise WrongState(f"{self._queue.topic!r} is no topic of the group any more")
        async with self._locked() as trusted_until_ns:
            start = PeriodStart(self._context, self._lane, self._queue, hold_until_ns=0)
            begun = await start.begin_now(rules_of(topic))
            owner, hold_ns = self._context.client.client_id, start.hold_until_ns
            last = None if begun.last is None else begun.last.snapshot
            keys = {} if last is None else keys_in_history(last)
            if last is not None:  # leases that outlived the hand-over of the owner before
                hold_ns = max((hold_ns, *(now_ns() + ms * MS for ms in last.leases.values())))
            self._note(begun.epoch, "own+", owner=owner, hold_until_ns=hold_ns, **keys)
            try:
                place = place_of(begun)
                async with move(place) as (offset, why):
                    await self._store(begun, offset, until_ns=trusted_until_ns)
                    why = {"from": place.base, "to": offset, **why}
                    self._note(begun.epoch, "reset", **why)
            finally:
                self._note(begun.epoch, "own-", reason="reset")
                await self._end(begun, clean=hold_ns <= now_ns())

    async def _store(self, begun: Begun, offset: int, *, until_ns: int) -> None:
        last = None if begun.last is None else begun.last.snapshot
        moved = (last or Snapshot(begun.epoch, 0, 0)).moved_to(offset, epoch=begun.epoch)
        group = self._lane.name
        while now_ns() < until_ns:
            if await store_reset(self._context, group, self._queue, moved, begun.own):
                return
        raise NotStored(self._queue)

    async def _end(self, begun: Begun, *, clean: bool) -> None:
        """*clean*: no lease of an owner before may be alive; else the lock runs out by itself."""
        group = self._lane.name
        if not clean:
            return
        try:
            await self._context.log.append(group, self._queue, Clean(begun.epoch))
            async with self._lock_requests:
                await self._context.client.unlock(group, [self._queue], timeout_s=self._timeout_s)
        except RemotingError as error:
            _log.warning("not unlocked; the lock runs out by itself", reason=str(error))

    @asynccontextmanager
    async def _locked(self) -> AsyncIterator[int]:
        lock = self._context.settings.lock
        async with self._lock_requests:
            before_ns = now_ns()
            answer = await self._context.client.lock(
                self._lane.name, {self._queue}, timeout_s=self._timeout_s
            )
        if self._queue not in answer.granted:
            raise WrongState(
                f"another proxy has the lock of queue {self._queue.qid}, or had it until a moment"
                " ago: ask again in a moment"
            )
        yield before_ns + int(lock.trust_s * 1e9)

    @property
    def _timeout_s(self) -> float:
        return self._context.settings.lock.request_timeout_s

    def _note(self, epoch: Epoch, event: str, **fields: object) -> None:
        queue = self._queue
        place = {"group": self._lane.name, "topic": queue.topic, "queue": queue.qid}
        self._context.history.write(event, **place, epoch=epoch, **fields)
