"""What is done again and again for each queue that this proxy owns."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable

from proxy.core.queue_pipeline import QueuePipeline
from proxy.group_lane import GroupLane
from proxy.logs import NoisyLog


async def one_round(
    lanes: Iterable[GroupLane],
    do: Callable[[GroupLane, QueuePipeline], Awaitable[object]],
    *,
    noisy: NoisyLog,
    what: str,
) -> None:
    """*do* it for all queues at once, but those that are handed over: that does it itself.

    A bug with one queue is logged as *what* failed, and ends nothing for the others.
    """
    results = await asyncio.gather(
        *(
            do(lane, pipeline)
            for lane in lanes
            for pipeline in list(lane.buffer)
            if not pipeline.draining
        ),
        return_exceptions=True,
    )
    for result in results:
        if isinstance(result, Exception):
            noisy.warning("bug", f"{what} failed", reason=str(result), exc_info=result)
