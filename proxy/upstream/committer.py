"""Commits what may be committed: regularly, and at every hand-over."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable

import structlog

from broker_core.clock import now_ns
from broker_core.errors import RemotingError
from proxy.core.queue_pipeline import QueuePipeline
from proxy.group_lane import GroupLane
from proxy.logs import NoisyLog
from proxy.upstream.context import UpstreamContext

_noisy = NoisyLog(structlog.get_logger("committer"))


class Committer:
    """One request in flight a queue: two could overtake each other and move the number back."""

    def __init__(self, context: UpstreamContext) -> None:
        self._context = context
        self._locks: dict[QueuePipeline, asyncio.Lock] = {}

    async def run(self, lanes: Iterable[GroupLane]) -> None:
        """Commit every ``commit_every_s`` until cancelled. *lanes* is iterated anew each time."""
        while True:
            await asyncio.sleep(self._context.settings.commit_every_s)
            results = await asyncio.gather(
                *(
                    self.commit(lane, pipeline)
                    for lane in lanes
                    for pipeline in list(lane.buffer)
                    if not pipeline.draining  # its hand-over commits it
                ),
                return_exceptions=True,  # a bug with one queue must not end the others' commits
            )
            for result in results:
                if isinstance(result, Exception):
                    _noisy.warning("bug", "commit failed", reason=str(result), exc_info=result)

    async def commit(self, lane: GroupLane, pipeline: QueuePipeline) -> bool:
        """Commit *pipeline* now, if there is anything new; False if the broker did not take it."""
        lock = self._locks.setdefault(pipeline, asyncio.Lock())
        try:
            async with lock:
                return await self._commit(lane, pipeline)
        finally:
            if not lock.locked():
                self._locks.pop(pipeline, None)

    async def _commit(self, lane: GroupLane, pipeline: QueuePipeline) -> bool:
        offset = pipeline.committable
        if offset == pipeline.committed:
            return True
        if pipeline.closed or pipeline.trusted_until_ns <= now_ns():
            return False  # no owner any more, or not sure to be one: not ours to say
        try:
            await self._context.client.commit_offset(
                lane.name, pipeline.queue, offset, epoch=pipeline.epoch
            )
        except RemotingError as error:
            _noisy.warning(
                f"{lane.name} {pipeline.queue}",
                "commit failed; the next one makes up for it",
                group=lane.name,
                queue=str(pipeline.queue),
                reason=str(error),
            )
            return False
        pipeline.committed = offset
        self._context.history.write(
            "commit",
            group=lane.name,
            topic=pipeline.queue.topic,
            queue=pipeline.queue.qid,
            offset=offset,
            epoch=pipeline.epoch,
        )
        return True
