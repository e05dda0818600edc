"""Writes the ownership records of owned queues: what changed, every ``record_every_s``.

A record counts once it is certain that no later owner stands ahead of it, and nobody relies on it
before (``proxy.core.records.gaps``). What is recorded has to outlive retention: ``kept_records``
sees to it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple, NoReturn
from weakref import WeakKeyDictionary, WeakMethod

import structlog

from broker_core.clock import now_ns
from broker_core.errors import RemotingError
from broker_core.tasks import spawn
from proxy.core.ownership.recording import Recording
from proxy.core.pipeline.queue_pipeline import QueuePipeline
from proxy.core.records.gaps import gaps, has_late_snapshot, later_owner
from proxy.core.records.record import Clean, Own, Record, SnapshotPart
from proxy.core.records.replay import LastOwner
from proxy.core.records.retention import LogRange, is_to_be_renewed
from proxy.lane.group_lane import GroupLane
from proxy.observe.logs import NoisyLog
from proxy.upstream.broker_rounds import Work, queue_rounds
from proxy.upstream.records.ownership_log import OwnershipLog, TooLong

_log = structlog.get_logger("recorder")
_noisy = NoisyLog(_log)

#: Drops a queue for the reason given.
Lose = Callable[[str], Coroutine[Any, Any, None]]


class RecordedAsAnothers(RemotingError):
    """The records name a later owner, so ours count for nobody; the queue is being dropped."""


@dataclass(slots=True)
class _Written:
    """What one pipeline has written; one record after the other."""

    recording: Recording
    lose: WeakMethod[Lose]  # who is dropped needs it no more, and would keep its own record here
    end: int  # where the next one stands if nobody else writes
    lost: RecordedAsAnothers | None = None
    turn: asyncio.Lock = field(default_factory=asyncio.Lock)
    base: _Base | None = None


class _Base(NamedTuple):
    """The snapshot at offset *at*, that later records build on, and where it stands in the log of
    its broker; None if it is gone.
    """

    at: int
    place: int | None


class Recorder:
    """The records of all pipelines of this proxy."""

    def __init__(self, log: OwnershipLog) -> None:
        self._log = log
        self._written: WeakKeyDictionary[QueuePipeline, _Written] = WeakKeyDictionary()

    def begin(
        self,
        pipeline: QueuePipeline,
        last: LastOwner | None,
        own: Own,
        *,
        lose: Lose | None = None,
    ) -> None:
        """A period begins, with *own*: *pipeline* resumed what *last* says. *lose* is awaited, with
        the reason, once the records name a later owner; of a twin it is that of its queue.
        """
        losing = WeakMethod(lose) if lose else self._written[pipeline.origin].lose
        recording = Recording(pipeline, last, own)
        self._written[pipeline] = _Written(recording, losing, end=pipeline.epoch + 1)

    async def run(self, lanes: Iterable[GroupLane], *, every_s: float) -> None:
        """Record until cancelled. *lanes* is iterated anew each time."""
        work = Work("record", self._record_regularly, self._has_news, _noisy)
        await queue_rounds(lanes, lambda _: work, every_s=every_s)

    def _has_news(self, pipeline: QueuePipeline) -> bool:
        return self._written[pipeline].recording.has_news(now_ns())

    async def _record_regularly(self, lane: GroupLane, pipeline: QueuePipeline) -> None:
        if pipeline.closed or pipeline.origin.doubtful or pipeline.trusted_until_ns <= now_ns():
            return
        try:
            await self.record(lane, pipeline)
        except RecordedAsAnothers:
            return  # it is said where the queue is dropped
        except RemotingError as error:
            _noisy.warning(
                f"{lane.name} {pipeline.queue.broker}",  # its other queues have the same to say
                "ownership record not written; the next one makes up for it",
                group=lane.name,
                queue=str(pipeline.queue),
                reason=str(error),
            )

    def watch(self, pipeline: QueuePipeline, log: LogRange) -> bool:
        """Have a snapshot come next if retention is near the one that the records build on, *log*
        being what its broker keeps; False if nobody has seen yet where that one stands.
        """
        written = self._written[pipeline]
        at, base = written.recording.snapshot_at, written.base
        if at is None:
            return True
        if base is None or base.at != at:
            return False
        if base.place is None or is_to_be_renewed(base.place, log):
            written.recording.renew()
        return True

    async def keep(self, lane: GroupLane, pipeline: QueuePipeline) -> None:
        """The same, by a look at what there is. Raises RemotingError."""
        log = await self._log.ranges.of(pipeline.queue.broker)
        written = self._written[pipeline]
        if not self.watch(pipeline, log) and (at := written.recording.snapshot_at) is not None:
            written.base = _Base(at, await self._log.place(lane.name, pipeline.queue, at))
            self.watch(pipeline, log)

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
            while records := self._due(written, pipeline, made_ns := now_ns(), whole=whole):
                try:
                    stored, counts = await self._append(lane, pipeline, written, records)
                except TooLong:  # in shorter ones, then
                    written.recording.failed()
                    continue
                except BaseException as error:
                    written.recording.failed()
                    if isinstance(error, RemotingError) and error.illegal:
                        pipeline.record_fails(f"its ownership record cannot be stored: {error}")
                    raise
                pipeline.record_fails("")
                if not counts:
                    written.recording.failed()
                    continue
                lease_ns = pipeline.visibility_ns
                written.recording.written(records, at=stored[0])
                lane.recorded(pipeline, at=stored[-1], made_ns=made_ns)
                if pipeline.visibility_ns != lease_ns:  # leases may be longer from now on
                    for each in (pipeline, pipeline.twin):
                        if each is not None:
                            lane.rules_hold(each)
                return stored[0]
            return None

    def _due(
        self, written: _Written, pipeline: QueuePipeline, made_ns: int, *, whole: bool
    ) -> list[Record]:
        most = self._log.limits.of(pipeline.queue.broker)
        return written.recording.due(made_ns, whole=whole, most=most)

    async def end(self, lane: GroupLane, pipeline: QueuePipeline, *, to: str = "") -> None:
        """Write that the period ended cleanly, *to* as in ``Clean``. Raises RemotingError."""
        written = self._written[pipeline]
        async with written.turn:
            clean = Clean(pipeline.epoch, to)
            _, counts = await self._append(lane, pipeline, written, [clean])
        if not counts:
            await self.record(lane, pipeline, whole=True)

    async def _append(
        self,
        lane: GroupLane,
        pipeline: QueuePipeline,
        written: _Written,
        records: Sequence[Record],
    ) -> tuple[list[int], bool]:
        """Where they are stored; and False if they have to be said again, in a snapshot, for a late
        one of ours came between. Raises RemotingError.
        """
        if written.lost is not None:
            raise written.lost.with_traceback(None)
        group, queue = lane.name, pipeline.queue
        stored = await self._log.append_each(group, queue, records)
        if stored[0] < written.end:
            self._tail_is_gone(pipeline, written, stored[0])
            counts = isinstance(records[0], SnapshotPart)
        else:
            counts = True
        for gap in gaps(written.end, stored):
            found = await self._log.between(group, queue, gap)
            is_twin = pipeline.origin is not pipeline
            twin_of = pipeline.origin.epoch if is_twin else None
            if (later := later_owner(found, twin_of=twin_of)) is not None:
                reason = f"the records name {later.owner} as a later owner"
                self._lose(pipeline, written, reason)
            # A snapshot of ours makes up for what stands ahead of all of it.
            if gap.stop > stored[0] or not isinstance(records[0], SnapshotPart):
                counts = counts and not has_late_snapshot(found, epoch=pipeline.epoch)
        written.end = stored[-1] + 1
        return stored, counts

    def _lose(self, pipeline: QueuePipeline, written: _Written, reason: str) -> NoReturn:
        written.lost = RecordedAsAnothers(reason)
        if (lose := written.lose()) is not None:
            spawn(lose(reason), name=f"lose {pipeline.queue}")
        raise written.lost

    def _tail_is_gone(self, pipeline: QueuePipeline, written: _Written, at: int) -> None:
        """The broker lost records, or their topic was created again: the next one stands *at* an
        offset that was written before. Raises RecordedAsAnothers if the first record of the period
        is among them: its epoch is an offset that others may get.
        """
        reason = f"its ownership records end at {at} now, and ended at {written.end}"
        _log.error("ownership records are gone", queue=str(pipeline.queue), reason=reason)
        if at <= pipeline.epoch:
            self._lose(pipeline, written, reason)
