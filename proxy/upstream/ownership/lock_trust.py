"""Trust in the orderly lock of a queue, and the check after it lapsed.

After a lapse or a lost connection another proxy may have owned the queue. Nothing is delivered
until the ownership records show that none has.
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
    """Trust of one ownership period. The pipeline's own trust follows it, once there is one."""

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
        """Set the callbacks.

        Args:
            context: Brokers and settings.
            lane: The group.
            queue: The queue.
            until_ns: End of the first trust.
            lose: Awaited with the reason if another proxy has owned the queue.
            ended: Called with the task of each check when it ends.
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
        """Time until which the lock is trusted."""
        return self._trust.until_ns

    @property
    def doubtful(self) -> bool:
        """Whether another proxy may have had the lock since it was granted, and no renewal
        followed.
        """
        return self._trust.doubtful

    @property
    def cut(self) -> bool:
        """Whether the connection to the broker was lost since the lock was last granted."""
        return self._trust.cut

    @property
    def is_sure(self) -> bool:
        """Whether ownership is certain."""
        return not self.doubtful and self._checking is None

    def renewed(self, until_ns: int, pipeline: ParkingPipeline | None) -> None:
        """Extend the trust after the broker granted the lock again; check the records
        if in doubt.
        """
        now, trust = now_ns(), self._trust
        if pipeline is not None and self._checking is None and pipeline.twin is None:
            quiet = not (trust.doubtful or pipeline.doubtful)
            if quiet and now < trust.until_ns and now < pipeline.trusted_until_ns:
                # As below, for thousands of queues every two seconds.
                trust.extend(until_ns)
                pipeline.trust_until(trust.until_ns)
                return
        trust.granted(until_ns, now_ns=now)
        if pipeline is None:
            return
        if self._trust.doubtful:
            self._trust.cleared()
            if self._checking is not None:
                self._checking.cancel()  # it may have read the state before this lapse
            self._checking = spawn(self._check(pipeline), name=f"check {self._queue}")
            self._checking.add_done_callback(self._ended)
        elif self._checking is None:
            self._lane.renewed(pipeline, self.until_ns)

    def connection_lost(self, pipeline: ParkingPipeline | None) -> None:
        """Deliver nothing until the next grant: the broker may have restarted without our lock."""
        self._trust.connection_lost()
        if self._checking is not None:
            self._checking.cancel()  # it may have read the state before this loss
            self._checking = None
        if pipeline is not None:
            self._lane.rates.doubt(pipeline)

    async def check_no_more(self) -> None:
        """Cancel the check: the queue is being released."""
        await cancel_and_wait(self._checking)

    async def _last_owner(self, pipeline: ParkingPipeline) -> LastOwner | None:
        log, group = self._context.log, self._lane.name
        # Written first: lower records are then certain to be seen, and the next owner can use it.
        written = await self._context.recorder.record(self._lane, pipeline, whole=True)
        last, _ = await log.last(group, self._queue, before=written)
        return last

    async def _check(self, pipeline: ParkingPipeline) -> None:
        """Trust the lock again after a lapse if no other proxy has owned the queue."""
        while True:
            try:
                # Thousands of queues lapse at once: all checks together would delay the next
                # renewals until trust lapses again, and no check would ever end.
                async with self._context.take_overs.slot(self._queue.broker):
                    last = await self._last_owner(pipeline)
                break
            except RemotingError as error:
                self._log.warning("ownership not confirmed yet; retrying", reason=str(error))
                await asyncio.sleep(_LOOK_AGAIN_S)
        self._checking = None
        us = self._context.client.client_id
        if last is None or (last.epoch, last.own.owner) != (pipeline.epoch, us):
            await self._lose("another proxy owned the queue meanwhile")
            return
        self._log.info("lock granted again after a lapse or a lost connection; continuing")
        self._lane.renewed(pipeline, self.until_ns)
