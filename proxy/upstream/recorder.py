"""Writes the ownership records of owned queues: what changed, every ``record_every_s``."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from dataclasses import dataclass, field
from weakref import WeakKeyDictionary

import structlog

from broker_core.clock import now_ns
from broker_core.errors import RemotingError
from proxy.core.ownership_record import Own
from proxy.core.ownership_replay import LastOwner
from proxy.core.queue_pipeline import QueuePipeline
from proxy.core.recording import Recording
from proxy.group_lane import GroupLane
from proxy.logs import NoisyLog
from proxy.upstream.ownership_log import OwnershipLog
from proxy.upstream.rounds import one_round

_noisy = NoisyLog(structlog.get_logger("recorder"))


@dataclass(slots=True)
class _Written:
    """What one pipeline has written; one record after the other."""

    recording: Recording
    turn: asyncio.Lock = field(default_factory=asyncio.Lock)


class Recorder:
    """The records of all pipelines of this proxy."""

    def __init__(self, log: OwnershipLog) -> None:
        self._log = log
        self._written: WeakKeyDictionary[QueuePipeline, _Written] = WeakKeyDictionary()

    def begin(self, pipeline: QueuePipeline, last: LastOwner | None, own: Own) -> None:
        """A period begins, with *own*: *pipeline* resumed what *last* says."""
        self._written[pipeline] = _Written(Recording(pipeline, last, own))

    async def run(self, lanes: Iterable[GroupLane], *, every_s: float) -> None:
        """Record until cancelled. *lanes* is iterated anew each time."""
        while True:
            await asyncio.sleep(every_s)
            await one_round(
                lanes, self._record_regularly, due=self._has_news, noisy=_noisy, what="record"
            )

    def _has_news(self, pipeline: QueuePipeline) -> bool:
        return self._written[pipeline].recording.has_news(now_ns())

    async def _record_regularly(self, lane: GroupLane, pipeline: QueuePipeline) -> None:
        if pipeline.closed or pipeline.origin.doubtful or pipeline.trusted_until_ns <= now_ns():
            return
        try:
            await self.record(lane, pipeline)
        except RemotingError as error:
            _noisy.warning(
                f"{lane.name} {pipeline.queue.broker}",  # its other queues have the same to say
                "ownership record not written; the next one makes up for it",
                group=lane.name,
                queue=str(pipeline.queue),
                reason=str(error),
            )

    async def at_rest(self, pipeline: QueuePipeline) -> None:
        """Return once no record of *pipeline*, which is closed, is under way."""
        async with self._written[pipeline].turn:
            return

    async def record(
        self, lane: GroupLane, pipeline: QueuePipeline, *, whole: bool = False
    ) -> int | None:
        """Write what changed, or (*whole*) a snapshot. Returns the offset of the first record, None
        if there is nothing to say. Raises RemotingError.
        """
        written = self._written[pipeline]
        async with written.turn:
            made_ns = now_ns()
            records = written.recording.due(made_ns, whole=whole)
            if not records:
                return None
            try:
                at = await self._log.append(lane.name, pipeline.queue, *records)
            except BaseException:
                written.recording.failed()
                raise
            lease_ns = pipeline.visibility_ns
            written.recording.written(records, at=at)
            lane.recorded(pipeline, at=at + len(records) - 1, made_ns=made_ns)
            if pipeline.visibility_ns != lease_ns:  # leases may be longer from now on
                for each in (pipeline, pipeline.twin):
                    if each is not None:
                        lane.rules_hold(each)
            return at
