"""Writes the last records of a queue without an owner again, before retention deletes them.

The records keep their contents, in a period of their own. Nothing is read or delivered in it, and a
client that comes meanwhile waits for a few requests at most.
"""

from __future__ import annotations

import asyncio
from dataclasses import replace

import structlog

from broker_core.names import QueueName
from proxy.core.keys.ids import Epoch
from proxy.core.records.parked_key import parked_topic
from proxy.core.records.record import Clean, Snapshot
from proxy.core.records.replay import LastOwner
from proxy.lane.group_lane import GroupLane
from proxy.upstream.context import UpstreamContext
from proxy.upstream.ownership.free_period import FreePeriod
from proxy.upstream.ownership.period_start import Begun
from proxy.upstream.ownership.resets import Overtaken

_log = structlog.get_logger("ownership")


async def renew_records(
    context: UpstreamContext, lane: GroupLane, queue: QueueName, *, lock_requests: asyncio.Lock
) -> None:
    """Renew the records of *queue*; damaged ones are left for an owner to repair.

    *lock_requests*: see ``FreePeriod``. Raises WrongState if another proxy has the lock or the
    records name a later owner, RemotingError.
    """
    period = FreePeriod(context, lane, queue, lock_requests=lock_requests, changes=False)
    async with (
        period.locked() as trusted_until_ns,
        period.begun("records renewed", trusted_until_ns=trusted_until_ns) as begun,
    ):
        if (last := _sound(begun.last)) is None:
            return
        if last.parked:  # first, as the queue's records refer to them
            await _renew_twin(context, lane, queue, begun)
        kept = replace(begun.with_pauses(last), epoch=begun.epoch)
        stored = await context.log.append_snapshot(lane.name, queue, kept, begun.own)
        found, _ = await context.log.last(lane.name, queue, before=stored[-1] + 1)
        if found is None or found.epoch != begun.epoch:
            raise Overtaken(queue)
        _log.info("ownership records renewed", group=lane.name, queue=str(queue))


async def _renew_twin(
    context: UpstreamContext, lane: GroupLane, queue: QueueName, begun: Begun
) -> None:
    log, group = context.log, lane.name
    twin = queue._replace(topic=parked_topic(group, queue.topic))
    before = await log.owner(group, twin)
    if before is None or _sound(before) is None:
        return
    # Twin and queue have lives of their own: the next owner checks whether these are the current
    # ones.
    own = replace(
        begun.own,
        broker_start_ms=0,
        period=begun.epoch,
        hold_ms=0,
        life=before.life,
        start=None,
        origin_life=before.origin_life,
        period_life=log.life(group, queue),
    )
    epoch = Epoch(await log.begin(group, twin, own))
    found, _ = await log.last(group, twin, before=epoch, by_period=True)
    if found is None or (last := _sound(found)) is None:
        return
    kept, own = (
        replace(last, epoch=epoch),
        replace(own, life=found.life, origin_life=found.origin_life),
    )
    await log.append_snapshot(group, twin, kept, own)
    await log.append(group, twin, Clean(epoch))


def _sound(last: LastOwner | None) -> Snapshot | None:
    return None if last is None or last.damage is not None else last.snapshot
