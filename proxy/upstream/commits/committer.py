"""Commits recorded offsets at intervals and at every hand-over."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from functools import partial
from weakref import WeakKeyDictionary

import structlog

from broker_core.clock import now_ns
from broker_core.errors import RemotingError
from proxy.core.pipeline.queue_pipeline import QueuePipeline
from proxy.lane.group_lane import GroupLane
from proxy.observe.logs import NoisyLog
from proxy.upstream.broker_tasks import FEW_QUEUES, Work, run_periodically
from proxy.upstream.context import UpstreamContext

#: Every 12th run also sends unchanged offsets: a crashed broker may have lost the commits of the
#: last seconds. With very many queues only those are sent whose broker was lost since.
_RUNS_UNTIL_ALL = 12

_noisy = NoisyLog(structlog.get_logger("committer"))


class Committer:
    """Commits with at most one request in flight per queue: a second one could be overtaken and
    move the offset back.
    """

    def __init__(self, context: UpstreamContext) -> None:
        self._context = context
        self._locks: WeakKeyDictionary[QueuePipeline, asyncio.Lock] = WeakKeyDictionary()
        self._sent_ns: WeakKeyDictionary[QueuePipeline, int] = WeakKeyDictionary()
        self._lost_ns: dict[str, int] = {}  # time of the last lost connection, by broker

    def broker_lost(self, broker: str) -> None:
        """Note a lost connection: *broker* may have lost commits."""
        self._lost_ns[broker] = now_ns()

    async def run(self, lanes: Iterable[GroupLane]) -> None:
        """Commit every ``commit_every_s`` until cancelled. *lanes* is iterated again each time."""
        every_s = self._context.settings.commit_every_s
        await run_periodically(lanes, self._work, every_s=every_s)

    def _work(self, number: int) -> Work:
        unchanged_too = number % _RUNS_UNTIL_ALL == 0
        commit = partial(self.commit, unchanged_too=unchanged_too)
        due = self._may_be_lost if unchanged_too else _changed
        return Work("commit", commit, due, _noisy, not_due=_nothing_left)

    def _may_be_lost(self, pipeline: QueuePipeline) -> bool:
        if _changed(pipeline) or self._context.reads.number <= FEW_QUEUES:
            return True
        return self._sent_ns.get(pipeline, 0) <= self._lost_ns.get(pipeline.queue.broker, -1)

    async def commit(
        self, lane: GroupLane, pipeline: QueuePipeline, *, unchanged_too: bool = False
    ) -> bool:
        """Commit *pipeline* now if its offset has changed; return False if the broker did not store
        it.
        """
        async with self._locks.setdefault(pipeline, asyncio.Lock()):
            if pipeline.recorded == pipeline.committed and not unchanged_too:
                return True
            return await self._commit(lane, pipeline)

    async def wait_until_idle(self, pipeline: QueuePipeline) -> None:
        """Return once no commit of *pipeline*, which is closed, is in flight."""
        async with self._locks.setdefault(pipeline, asyncio.Lock()):
            return

    async def _commit(self, lane: GroupLane, pipeline: QueuePipeline) -> bool:
        offset = pipeline.recorded
        if pipeline.closed or pipeline.origin.doubtful or pipeline.trusted_until_ns <= now_ns():
            return False  # not, or perhaps not, the owner any more
        asked_ns = now_ns()
        try:
            await self._context.client.commit_offset(
                *(lane.name, pipeline.queue, offset),
                epoch=pipeline.epoch,
                epoch_life=self._context.log.life(lane.name, pipeline.queue),
                life=pipeline.life,
            )
        except RemotingError as error:
            _noisy.warning(
                f"{lane.name} {pipeline.queue.broker}",  # one warning per broker and group
                "commit failed; the next one will include it",
                group=lane.name,
                queue=str(pipeline.queue),
                reason=str(error),
            )
            return False
        pipeline.committed_at(offset, now_ns())
        self._sent_ns[pipeline] = asked_ns
        self._context.history.write(
            "commit",
            group=lane.name,
            topic=pipeline.topic,
            queue=pipeline.place,
            offset=offset,
            epoch=pipeline.epoch,
            asked_ns=asked_ns,
        )
        return True


def _changed(pipeline: QueuePipeline) -> bool:
    return pipeline.recorded != pipeline.committed


def _nothing_left(pipeline: QueuePipeline) -> None:
    pipeline.nothing_to_commit(now_ns())  # later finishes start a new lag
