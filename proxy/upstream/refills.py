"""Reads spilled messages again, when their turn comes."""

from __future__ import annotations

import asyncio
from bisect import bisect_left
from collections.abc import Iterable

from broker_core.client import PullStatus
from broker_core.errors import RemotingError
from broker_core.remoting.message import StoredMessage
from broker_core.tasks import spawn
from proxy.core.queue_jobs import Refill
from proxy.core.queue_pipeline import QueuePipeline
from proxy.group_lane import GroupLane
from proxy.logs import queue_log
from proxy.upstream.context import UpstreamContext

#: Refills that one round of reads serves: chains that interleave are read in one pass.
_AT_ONCE = 16
#: One read takes offsets in that lie no further apart: passing over some costs less than asking.
_GAP = 8
_MAX_MESSAGES = 256
_FIRST_BACK_OFF_S, _LONGEST_BACK_OFF_S = 0.1, 1.0


class Refills:
    """The refills of all queues of this proxy; one task a queue while it has some."""

    def __init__(self, context: UpstreamContext) -> None:
        self._context = context
        self._wanted: dict[QueuePipeline, list[Refill]] = {}
        self._tasks: set[asyncio.Task[None]] = set()

    def read(self, lane: GroupLane, pipeline: QueuePipeline, refill: Refill) -> None:
        """Read *refill* in the background, then give it to the lane."""
        if (wanted := self._wanted.get(pipeline)) is not None:
            wanted.append(refill)
            return
        self._wanted[pipeline] = [refill]
        task = spawn(self._serve(lane, pipeline), name=f"refill {pipeline.queue}")
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    def tasks(self) -> set[asyncio.Task[None]]:
        """Those under way."""
        return set(self._tasks)

    async def _serve(self, lane: GroupLane, pipeline: QueuePipeline) -> None:
        wanted = self._wanted[pipeline]
        try:
            while wanted and not pipeline.closed:
                now, wanted[:_AT_ONCE] = wanted[:_AT_ONCE], []
                offsets = sorted(offset for refill in now for offset in refill.offsets)
                found = await self.fetch(lane, pipeline, offsets)
                for refill in now:
                    lane.refilled(
                        pipeline, refill, [found[o] for o in refill.offsets if o in found]
                    )
        finally:
            del self._wanted[pipeline]

    async def fetch(
        self, lane: GroupLane, pipeline: QueuePipeline, offsets: list[int]
    ) -> dict[int, StoredMessage]:
        """The messages at rising *offsets* that are still there; ends early with the pipeline."""
        log = queue_log("refill", group=lane.name, queue=pipeline.queue)
        found: dict[int, StoredMessage] = {}
        back_off_s = _FIRST_BACK_OFF_S
        at = 0
        while at < len(offsets) and not pipeline.closed:
            first = offsets[at]
            try:
                result = await self._context.client.pull(
                    pipeline.queue,
                    group=lane.name,
                    offset=first,
                    max_messages=_together(offsets[at : at + _MAX_MESSAGES]),
                    suspend_ms=0,
                )
            except Exception as error:  # whatever it is: no key may stand still in silence
                bug = None if isinstance(error, RemotingError) else error
                log.warning(
                    "spilled messages not read; trying again", reason=str(error), exc_info=bug
                )
                await asyncio.sleep(back_off_s)
                back_off_s = min(back_off_s * 2, _LONGEST_BACK_OFF_S)
                continue
            back_off_s = _FIRST_BACK_OFF_S
            found |= {message.queue_offset: message for message in result.messages}
            at = bisect_left(offsets, max(first + 1, result.next_offset), at)
            if result.status is PullStatus.OFFSET_ILLEGAL:
                log.error(
                    "spilled messages were deleted before their turn came",
                    first_offset=first,
                    next_offset=result.next_offset,
                )
        return found


def _together(offsets: Iterable[int]) -> int:
    """How many messages one read should bring: from the first offset to the last near ones."""
    first = last = -1
    for offset in offsets:
        if first < 0:
            first = last = offset
        if offset - last > _GAP or offset - first >= _MAX_MESSAGES:
            break
        last = offset
    return last - first + 1
