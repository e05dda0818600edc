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
    due: Callable[[QueuePipeline], bool],
    noisy: NoisyLog,
    what: str,
    at_rest: Callable[[QueuePipeline], None] | None = None,
) -> None:
    """*do* it at once for all queues in which it is *due*, but those that are handed over: that
    does it itself. Most queues of a proxy with thousands are at rest, and cost no task; *at_rest*
    is told of them.

    A bug with one queue is logged as *what* failed, and ends nothing for the others.
    """
    results = await asyncio.gather(
        *(
            do(lane, pipeline)
            for lane in lanes
            for pipeline in list(lane.buffer)
            if not pipeline.draining and _is_due(pipeline, due, at_rest)
        ),
        return_exceptions=True,
    )
    for result in results:
        if isinstance(result, Exception):
            noisy.warning("bug", f"{what} failed", reason=str(result), exc_info=result)


def _is_due(
    pipeline: QueuePipeline,
    due: Callable[[QueuePipeline], bool],
    at_rest: Callable[[QueuePipeline], None] | None,
) -> bool:
    try:
        if due(pipeline):
            return True
        if at_rest is not None:
            at_rest(pipeline)
        return False
    except Exception:
        return True  # a bug: it is seen where one with a queue is logged
