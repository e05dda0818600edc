"""A queue whose broker lost its last messages: what its parked twin has to know of that.

Repeats among the copies are told by the offsets of their messages, and new messages get those of
the lost ones.
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

#: The twin is opened and read within moments of a take-over; a queue whose is not begins anew
#: nevertheless.
_COPIES_READ_NS = 5_000_000_000
_LOOK_AGAIN_S = 0.05


async def copies_read(context: UpstreamContext, pipeline: ParkingPipeline) -> None:
    """Wait until all copies that are there were read: they are of messages before the loss."""
    until_ns = now_ns() + _COPIES_READ_NS
    while not pipeline.copies_known and now_ns() < until_ns:
        await context.settled.wait(_LOOK_AGAIN_S)


async def tell_twin(
    context: UpstreamContext,
    lane: GroupLane,
    pipeline: ParkingPipeline,
    *,
    end: int,
    until_ns: Callable[[], int],
) -> None:
    """Have it written down, if there is a twin, that the messages of *pipeline* from offset *end*
    on are gone; tried again while the lock is trusted, *until_ns*.
    """
    if (twin := pipeline.twin) is None:
        return
    twin.redrives.origin_lost(end)
    while now_ns() < until_ns():
        try:
            await context.recorder.record(lane, twin)
            return
        except RemotingError as error:
            _log.error("a lost tail is not written down", queue=str(twin.queue), reason=str(error))
            await asyncio.sleep(_LOOK_AGAIN_S)
