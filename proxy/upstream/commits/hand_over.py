"""The end of an ownership period: wait for leased messages, record finished ones."""

from __future__ import annotations

from collections.abc import Callable

import structlog

from broker_core.clock import now_ns
from broker_core.errors import RemotingError
from proxy.core.parking.parking_pipeline import ParkingPipeline
from proxy.core.pipeline.queue_pipeline import QueuePipeline
from proxy.lane.group_lane import GroupLane
from proxy.upstream.context import UpstreamContext

_log = structlog.get_logger("ownership")

_LOOK_AGAIN_S = 0.2


async def drained(
    context: UpstreamContext, pipeline: ParkingPipeline, *, until_ns: Callable[[], int]
) -> None:
    """Wait until no message is leased, but at most while the lock is trusted, *until_ns*.

    After ``drain_s`` leases are no longer extended, and the remaining ones are recorded for the
    next owner.
    """
    deadline_ns = now_ns() + int(context.settings.ownership.drain_s * 1e9)
    while (now := now_ns()) < until_ns() and not pipeline.drained(now):
        if now >= deadline_ns:
            pipeline.refuse_extensions()
            return  # a dead letter that no broker stores is left to the next owner
        await context.settled.wait(_LOOK_AGAIN_S)


async def write_end(
    context: UpstreamContext, lane: GroupLane, pipeline: ParkingPipeline, *, to: str
) -> bool:
    """Write the last record of the period and, if it ended cleanly, a ``Clean``; return whether it
    did.

    *to*: the member that the queue is given to by name, or empty. Later verdicts are refused, as no
    record would contain them.
    """
    pipeline.ended()
    try:
        await last_record(context, lane, pipeline)
        if pipeline.may_unlock(now_ns()):
            await context.recorder.end(lane, pipeline, to=to)
            return True
    except RemotingError as error:
        _log.warning(
            "the end of the ownership period is not recorded; messages may be delivered again",
            group=lane.name,
            queue=str(pipeline.queue),
            reason=str(error),
        )
    return False


async def last_record(context: UpstreamContext, lane: GroupLane, pipeline: QueuePipeline) -> None:
    """Record the state that the next owner of *pipeline*'s queue needs. Raises RemotingError.

    Writes a whole snapshot if retention is near the previous one, or may be, and if clients may
    hold messages: only a snapshot has the time that is left.
    """
    whole = bool(pipeline.lease_times(now_ns()))
    try:
        await context.recorder.keep(lane, pipeline)
    except RemotingError:
        whole = True
    await context.recorder.record(lane, pipeline, whole=whole)
