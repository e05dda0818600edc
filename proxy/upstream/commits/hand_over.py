"""The end of an ownership period: wait for what is leased, write down what is finished."""

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
    """Wait until nothing is leased; after ``drain_s`` no lease is extended any more, and what is
    left of them is written down for the next owner. The lock is trusted *until_ns*.
    """
    deadline_ns = now_ns() + int(context.settings.ownership.drain_s * 1e9)
    while (now := now_ns()) < until_ns() and not pipeline.drained(now):
        if now >= deadline_ns:
            pipeline.refuse_extensions()
            return  # a dead letter that no broker takes is the next owner's
        await context.settled.wait(_LOOK_AGAIN_S)


async def write_end(
    context: UpstreamContext, lane: GroupLane, pipeline: ParkingPipeline, *, to: str
) -> bool:
    """What is finished, and that the end was clean, if it was. *to*: the member that the queue is
    given to by name, if it is. Verdicts that come later are refused: no record would have them.
    """
    pipeline.ended()
    try:
        await last_record(context, lane, pipeline)
        if pipeline.may_unlock(now_ns()):
            await context.recorder.end(lane, pipeline, to=to)
            return True
    except RemotingError as error:
        _log.warning(
            "no clean end written; the next owner may repeat",
            group=lane.name,
            queue=str(pipeline.queue),
            reason=str(error),
        )
    return False


async def last_record(context: UpstreamContext, lane: GroupLane, pipeline: QueuePipeline) -> None:
    """Write what the next owner of *pipeline*'s queue must know, whenever it comes: all of it if
    retention is near what was written before, or may be. Raises RemotingError.
    """
    whole = False
    try:
        await context.recorder.keep(lane, pipeline)
    except RemotingError:
        whole = True
    await context.recorder.record(lane, pipeline, whole=whole)
