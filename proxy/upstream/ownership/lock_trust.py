"""Until when the orderly lock of a queue is trusted, and what is done where trust had lapsed.

If it lapsed, or the connection to the broker was lost, somebody else may have owned the queue: only
the ownership records can tell, and until they have, nothing is handed out.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

import structlog

from broker_core.clock import now_ns
from broker_core.errors import RemotingError
from broker_core.names import QueueName
from broker_core.tasks import cancel_and_wait, spawn
from proxy.core.ownership.trust import Trust
from proxy.core.parking.parking_pipeline import ParkingPipeline
from proxy.core.records.replay import LastOwner
from proxy.lane.group_lane import GroupLane
from proxy.upstream.context import UpstreamContext

_LOOK_AGAIN_S = 0.2


class LockTrust:
    """That of one ownership period. A pipeline's own trust follows it, once there is one."""

    def __init__(
        self,
        context: UpstreamContext,
        lane: GroupLane,
        queue: QueueName,
        *,
        until_ns: int,
        lose: Callable[[str], Awaitable[None]],
        ended: Callable[[asyncio.Task[None]], None],
    ) -> None:
        """*lose* is awaited, with the reason, if another proxy owned the queue meanwhile; *ended*
        is told of the end of each check.
        """
        self._trust = Trust(until_ns)
        self._context = context
        self._lane = lane
        self._queue = queue
        self._lose = lose
        self._ended = ended
        self._checking: asyncio.Task[None] | None = None
        self._log = structlog.get_logger("ownership").bind(
            group=lane.name, topic=queue.topic, queue=queue.qid
        )

    @property
    def until_ns(self) -> int:
        """The lock is trusted until then."""
        return self._trust.until_ns

    @property
    def doubtful(self) -> bool:
        """Someone else may have had the lock since it was granted; no renewal came since."""
        return self._trust.doubtful

    @property
    def is_sure(self) -> bool:
        """Nothing makes doubt of it."""
        return not self.doubtful and self._checking is None

    def renewed(self, until_ns: int, pipeline: ParkingPipeline | None) -> None:
        """The broker granted the lock again."""
        self._trust.granted(until_ns, now_ns=now_ns())
        if pipeline is None:
            return
        if self._trust.doubtful:
            self._trust.cleared()
            if self._checking is not None:
                self._checking.cancel()  # what it read may be of before this lapse
            self._checking = spawn(self._check(pipeline), name=f"check {self._queue}")
            self._checking.add_done_callback(self._ended)
        elif self._checking is None:
            self._lane.renewed(pipeline, self.until_ns)

    def connection_lost(self, pipeline: ParkingPipeline | None) -> None:
        """The broker may have restarted without our lock: hand out nothing until the next grant."""
        self._trust.connection_lost()
        if self._checking is not None:
            self._checking.cancel()  # what it reads may be of before this loss
            self._checking = None
        if pipeline is not None:
            self._lane.rates.doubt(pipeline)

    async def check_no_more(self) -> None:
        """The queue is to be given up: what a check would find concerns nobody."""
        await cancel_and_wait(self._checking)

    async def _last_owner(self, pipeline: ParkingPipeline) -> LastOwner | None:
        log, group = self._context.log, self._lane.name
        # Written first, for what is below it is surely seen; and the next owner has use for it.
        written = await self._context.recorder.record(self._lane, pipeline, whole=True)
        last, _ = await log.last(group, self._queue, before=written)
        return last

    async def _check(self, pipeline: ParkingPipeline) -> None:
        """After a lapse: trust the lock again if nobody owned the queue meanwhile."""
        while True:
            try:
                # Thousands of queues lapse at once: all their checks together would hold up the
                # next renewals until trust lapses again, and none would ever be through.
                async with self._context.take_overs.turn(self._queue.broker):
                    last = await self._last_owner(pipeline)
                break
            except RemotingError as error:
                self._log.warning("still not sure to own the queue", reason=str(error))
                await asyncio.sleep(_LOOK_AGAIN_S)
        self._checking = None
        us = self._context.client.client_id
        if last is None or (last.epoch, last.own.owner) != (pipeline.epoch, us):
            await self._lose("another proxy owned the queue meanwhile")
            return
        self._log.info("lock granted again after a lapse or a lost connection; going on")
        self._lane.renewed(pipeline, self.until_ns)
