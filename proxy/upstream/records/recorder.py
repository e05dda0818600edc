"""Writes the ownership records of owned queues: the changes, every ``record_every_s``.

A record counts once no later owner can be ahead of it; nothing relies on it before
(``proxy.core.records.gaps``). ``kept_records`` keeps the recorded state beyond retention.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple, NoReturn
from weakref import WeakKeyDictionary, WeakMethod

import structlog

from broker_core.client.queue_moves import is_in_doubt
from broker_core.clock import now_ns
from broker_core.errors import BrokerError, RemotingError
from broker_core.remoting.codes import ResponseCode
from broker_core.tasks import spawn
from proxy.core.ownership.recording import Recording
from proxy.core.pipeline.queue_pipeline import QueuePipeline
from proxy.core.records.gaps import gaps, has_late_snapshot, later_owner
from proxy.core.records.record import Clean, Own, Record, SnapshotPart
from proxy.core.records.replay import LastOwner
from proxy.core.records.retention import LogRange, is_to_be_renewed
from proxy.lane.group_lane import GroupLane
from proxy.observe.logs import NoisyLog
from proxy.upstream.broker_tasks import Work, run_periodically
from proxy.upstream.records.ownership_log import OwnershipLog, TooLong

_log = structlog.get_logger("recorder")
_noisy = NoisyLog(_log)

#: Answers of a broker that may take the record soon.
_PASSING = frozenset({ResponseCode.SERVICE_NOT_AVAILABLE, ResponseCode.SYSTEM_BUSY})

#: Drops a queue for the given reason.
Lose = Callable[[str], Coroutine[Any, Any, None]]


class RecordedAsAnothers(RemotingError):
    """The records name a later owner, so ours do not count; the queue is being dropped."""


@dataclass(slots=True)
class _Written:
    """Written records of one pipeline; one is written at a time."""

    recording: Recording
    lose: WeakMethod[Lose]  # weak: a dropped queue would otherwise keep its own record alive here
    end: int  # offset of the next record, unless another proxy writes
    own: Own  # the record that began the period
    lost: RecordedAsAnothers | None = None
    lock: asyncio.Lock = field(default_factory=asyncio.Lock)
    base: _Base | None = None


class _Base(NamedTuple):
    """The snapshot at offset *at* that later records build on, and its log offset; None
    if deleted.
    """

    at: int
    place: int | None


def _is_refusal(error: BrokerError) -> bool:
    """Return whether the record is not stored, and will not be soon."""
    return error.code not in _PASSING and not is_in_doubt(error)


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
        """Begin a period with *own*; *pipeline* has resumed the state of *last*.

        *lose* is awaited with the reason if the records name a later owner; a twin uses that of its
        queue.
        """
        losing = WeakMethod(lose) if lose else self._written[pipeline.origin].lose
        recording = Recording(pipeline, last, own)
        self._written[pipeline] = _Written(recording, losing, pipeline.epoch + 1, own)

    async def run(self, lanes: Iterable[GroupLane], *, every_s: float) -> None:
        """Record until cancelled. *lanes* is iterated again each time."""
        work = Work("record", self._record_regularly, self._has_news, _noisy)
        await run_periodically(lanes, lambda _: work, every_s=every_s)

    def _has_news(self, pipeline: QueuePipeline) -> bool:
        return self._written[pipeline].recording.has_news(now_ns())

    async def _record_regularly(self, lane: GroupLane, pipeline: QueuePipeline) -> None:
        if pipeline.has_ended or pipeline.closed or pipeline.origin.doubtful:
            return
        if pipeline.trusted_until_ns <= now_ns():
            return
        try:
            await self.record(lane, pipeline)
        except RecordedAsAnothers:
            return  # reported where the queue is dropped
        except RemotingError as error:
            _noisy.warning(
                f"{lane.name} {pipeline.queue.broker}",  # one warning per broker and group
                "ownership record not written; the next one will include it",
                group=lane.name,
                queue=str(pipeline.queue),
                reason=str(error),
            )

    def watch(self, pipeline: QueuePipeline, log: LogRange) -> bool:
        """Schedule a snapshot if retention is near the one that the records build on.

        *log*: the range kept by the broker. Return False if the place of that snapshot is not known
        yet.
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
        """Do the same after reading the current range and place. Raises RemotingError."""
        log = await self._log.ranges.of(pipeline.queue.broker)
        written = self._written[pipeline]
        if not self.watch(pipeline, log) and (at := written.recording.snapshot_at) is not None:
            written.base = _Base(at, await self._log.place(lane.name, pipeline.queue, at))
            self.watch(pipeline, log)

    async def wait_until_idle(self, pipeline: QueuePipeline) -> None:
        """Return once no record of *pipeline*, which is closed, is in flight."""
        async with self._written[pipeline].lock:
            return

    async def record(
        self, lane: GroupLane, pipeline: QueuePipeline, *, whole: bool = False
    ) -> int | None:
        """Write the changes, or (*whole*) a snapshot. Raises RemotingError.

        Return the offset of the first record; None if there are no changes.
        """
        written = self._written[pipeline]
        async with written.lock:
            while records := self._due(written, pipeline, made_ns := now_ns(), whole=whole):
                try:
                    stored, counts = await self._append(lane, pipeline, written, records)
                except TooLong:  # write shorter ones
                    written.recording.failed()
                    continue
                except BaseException as error:
                    written.recording.failed()
                    if isinstance(error, BrokerError) and _is_refusal(error):
                        pipeline.records_refused()
                        if await self._log.are_deleted(lane.name, pipeline.queue):
                            self._lose(pipeline, written, "its ownership records were deleted")
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
                            lane.record_rules(each)
                return stored[0]
            return None

    def _due(
        self, written: _Written, pipeline: QueuePipeline, made_ns: int, *, whole: bool
    ) -> list[Record]:
        most = self._log.limits.of(pipeline.queue.broker)
        return written.recording.due(made_ns, whole=whole, most=most)

    async def end(self, lane: GroupLane, pipeline: QueuePipeline, *, to: str = "") -> None:
        """Write that the period ended cleanly; *to*: see ``Clean``. Raises RemotingError."""
        written = self._written[pipeline]
        async with written.lock:
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
        """Return the offsets of the stored records, and whether they count.

        If a late record of ours came in between, they must be repeated in a snapshot. Raises
        RemotingError.
        """
        if written.lost is not None:
            raise written.lost.with_traceback(None)
        group, queue = lane.name, pipeline.queue
        stored = await self._log.append_each(group, queue, records)
        if stored[0] < written.end:
            self._tail_is_gone(pipeline, written, stored[0])
            counts = isinstance(records[0], SnapshotPart)
            written.end = pipeline.epoch + 1  # others may have written in place of our records
        else:
            counts = True
        for gap in gaps(written.end, stored):
            found = await self._log.between(group, queue, gap)
            of_twin = written.own if pipeline.is_twin else None
            if (later := later_owner(found, of_twin=of_twin)) is not None:
                reason = f"the records name {later.owner} as a later owner"
                self._lose(pipeline, written, reason)
            # Our snapshot replaces everything ahead of it.
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
        """Handle lost records, or a topic created again: the next record is *at* an earlier offset.

        Raises RecordedAsAnothers if the first record of the period is lost: another proxy may get
        its epoch.
        """
        reason = f"its ownership records end at {at}, and ended at {written.end} before"
        _log.error("ownership records are lost", queue=str(pipeline.queue), reason=reason)
        if at <= pipeline.epoch:
            self._lose(pipeline, written, reason)
