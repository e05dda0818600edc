"""Records in a parked twin that its queue's broker has lost the last messages.

Repeated copies are recognized by the offsets of their messages, and new messages reuse the lost
offsets.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable

import structlog

from broker_core.clock import now_ns
from broker_core.errors import RemotingError
from proxy.core.parking.parking_pipeline import ParkingPipeline
from proxy.lane.group_lane import GroupLane
from proxy.upstream.context import UpstreamContext

_log = structlog.get_logger("parking")

#: A twin is opened and read within moments of a take-over; a queue starts over even if its twin was
#: not.
_COPIES_READ_NS = 5_000_000_000
_LOOK_AGAIN_S = 0.05


async def wait_for_copies(context: UpstreamContext, pipeline: ParkingPipeline) -> None:
    """Wait until all existing copies are read: they are of messages before the loss."""
    until_ns = now_ns() + _COPIES_READ_NS
    while not pipeline.copies_known and now_ns() < until_ns:
        await context.settled.wait(_LOOK_AGAIN_S)


async def record_lost_tail(
    context: UpstreamContext,
    lane: GroupLane,
    pipeline: ParkingPipeline,
    *,
    end: int,
    until_ns: Callable[[], int],
) -> None:
    """Record in the twin, if any, that the messages of *pipeline* from offset *end* on are lost.

    Retries while the lock is trusted, *until_ns*.
    """
    if (twin := pipeline.twin) is None:
        return
    twin.redrives.origin_lost(end)
    while now_ns() < until_ns():
        try:
            await context.recorder.record(lane, twin)
            return
        except RemotingError as error:
            _log.error("lost tail not recorded; retrying", queue=str(twin.queue), reason=str(error))
            await asyncio.sleep(_LOOK_AGAIN_S)
