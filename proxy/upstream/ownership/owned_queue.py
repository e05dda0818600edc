"""The ownership period of one queue at this proxy: lock, take over, read, hand over or lose."""

from __future__ import annotations

import asyncio
from enum import Enum
from typing import Any

import structlog

from broker_core.clock import now_ns
from broker_core.errors import RemotingError
from broker_core.names import Group, QueueName
from broker_core.remoting.lock_renewal import LockName
from broker_core.tasks import cancel_and_wait, spawn
from proxy.core.keys.topic_rules import TopicRules
from proxy.core.ownership.named_owners import Handoffs
from proxy.core.parking.parking_pipeline import ParkingPipeline
from proxy.core.records.record import Own, Snapshot
from proxy.errors import OrderlaneError
from proxy.lane.group_lane import GroupLane
from proxy.lane.history import (
    LaneHistory,
    key_change_in_history,
    keys_in_history,
    rules_in_history,
)
from proxy.upstream.commits.committer import Committer
from proxy.upstream.commits.hand_over import drained, write_end
from proxy.upstream.commits.lost_tails import record_lost_tail, wait_for_copies
from proxy.upstream.context import UpstreamContext
from proxy.upstream.ownership.lock_trust import LockTrust
from proxy.upstream.ownership.missed_pauses import missed_pauses
from proxy.upstream.ownership.period_start import Begun, GivenToAnother, OlderSettings, PeriodStart
from proxy.upstream.ownership.resets import (
    LostMeanwhile,
    NoOwnerNow,
    NotStored,
    Overtaken,
    moved_to,
    store_reset,
)
from proxy.upstream.parking.parked_keys import Parking
from proxy.upstream.parking.parked_recovery import parked_in_twin
from proxy.upstream.reading.queue_reader import read_queue

#: ACQUIRING: locked, its pipeline being built. UNLOCKING: not served any more, its lock not to be
#: renewed. GONE: neither.
QueueState = Enum("QueueState", "ACQUIRING OWNED HANDING_OVER UNLOCKING GONE")

#: Delay before a queue refused because of older settings is tried again.
_REFUSED_NS = 5_000_000_000


class TopicRemoved(OrderlaneError):
    """The topic was removed from the group while the queue was taken over."""


class OwnedQueue:
    """A queue whose orderly lock this proxy was granted. One object per ownership period."""

    def __init__(
        self,
        context: UpstreamContext,
        committer: Committer,
        lane: GroupLane,
        queue: QueueName,
        *,
        trusted_until_ns: int,
        hold_until_ns: int,
        lock_requests: asyncio.Lock,
        handoffs: Handoffs,
    ) -> None:
        """Start the take-over.

        Args:
            context: Brokers and settings.
            committer: Commits its offsets.
            lane: The group.
            queue: The queue.
            trusted_until_ns: End of the trust in the lock.
            hold_until_ns: End of earlier leases, if this process was the previous owner; otherwise
                0.
            lock_requests: Held over every lock, renewal and unlock of the group at the broker: a
                renewal that overtook an unlock would keep the lock without an owner.
            handoffs: Queues given by name.
        """
        self.queue = queue
        self.state = QueueState.ACQUIRING
        self._context = context
        self._committer = committer
        self._lane = lane
        self._notes = LaneHistory(context.history, lane.name)
        self._trust = LockTrust(
            *(context, lane, queue),
            until_ns=trusted_until_ns,
            lose=self.lose,
            ended=self._lose_after_bug,
        )
        self._asked_ns = 0  # time of the request for the epoch
        self._locked_ns = now_ns()
        #: Leases of this period, or of earlier ones, may live until then.
        self.hold_until_ns = hold_until_ns
        self._lock_requests = lock_requests
        self._handoffs = handoffs
        self._to = ""  # member that the queue is given to by name
        self._pipeline: ParkingPipeline | None = None
        self._own: Own | None = None  # the record that began the period
        self._forgotten = False  # retention had deleted the earlier records
        self.parking: Parking | None = None
        self._reader: asyncio.Task[None] | None = None
        self._read_tags: frozenset[str] | None = None
        self._log = structlog.get_logger("ownership").bind(
            group=lane.name, topic=queue.topic, queue=queue.qid
        )
        self._acquiring: asyncio.Task[None] = spawn(self._acquire(), name=f"acquire {queue}")
        self._acquiring.add_done_callback(self._lose_after_bug)
        self._handing_over: asyncio.Task[Any] | None = None

    @property
    def group(self) -> Group:
        """The group that owns it."""
        return self._lane.name

    @property
    def lock_name(self) -> LockName:
        """The name of its lock at its broker."""
        return self._lane.name, self.queue.topic, self.queue.queue_id

    @property
    def is_sure(self) -> bool:
        """Whether it is certainly owned."""
        return self.state is QueueState.OWNED and self._trust.is_sure

    # ---- renewals -------------------------------------------------------------------------------

    def renewed(self, trusted_until_ns: int) -> None:
        """Extend the trust after the broker granted the lock again, unless it was released."""
        if self.state is QueueState.UNLOCKING or self.state is QueueState.GONE:
            return
        self._trust.renewed(trusted_until_ns, self._pipeline)

    def connection_lost(self) -> None:
        """Doubt the lock: the broker may have restarted without it."""
        self._trust.connection_lost(self._pipeline)

    async def lose(self, reason: str) -> None:
        """Drop everything at once: another proxy has the lock."""
        if self.state is QueueState.GONE:
            return
        self._log.warning("queue lost", reason=reason)
        await cancel_and_wait(self._acquiring, self._handing_over)
        await self._end(reason)
        self.state = QueueState.GONE

    # ---- taking over ----------------------------------------------------------------------------

    async def _acquire(self) -> None:
        try:
            pipeline = await self._take_over()
        except OlderSettings as error:
            self._lane.refused[self.queue] = str(error), now_ns() + _REFUSED_NS
            self._log.error("queue not served: the settings are older", reason=str(error))
            await self._unlock_or_leave()
            return
        except (GivenToAnother, TopicRemoved) as error:
            self._log.info("take-over given up", reason=str(error))
            await self._unlock_or_leave()
            return
        except Exception as error:
            self._log.warning(
                "take-over failed; retrying",
                reason=str(error),
                exc_info=None if isinstance(error, RemotingError) else error,
            )
            await self._unlock_or_leave()
            return
        if self._trust.doubtful:
            pipeline.doubt()
        self._pipeline = pipeline
        self.state = QueueState.OWNED
        self._lane.refused.pop(self.queue, None)
        self._record_ownership(pipeline)
        self.parking = Parking(self._context, self._committer, self._lane, pipeline)
        self._lane.add(pipeline)
        self._lane.apply_to(pipeline)  # the settings may have changed
        hands_out_ns = max(now_ns(), pipeline.hold_until_ns)
        self._lane.take_overs.note(hands_out_ns - self._locked_ns)
        self._read()
        self._log.info(
            "queue owned", qid=pipeline.qid, epoch=pipeline.epoch, start=pipeline.position
        )

    def _record_ownership(self, pipeline: ParkingPipeline) -> None:
        self._history(
            "own+",
            owner=self._us,
            begin=pipeline.position,
            asked_ns=self._asked_ns,
            hold_until_ns=pipeline.hold_until_ns,
            trust_ms=int(self._context.settings.lock.trust_s * 1000),
            max_leased=self._lane.leases_of_group.limit,
            **rules_in_history(pipeline),
            **keys_in_history(pipeline),
            **key_change_in_history(pipeline),
            **({"forgotten": True} if self._forgotten else {}),
        )

    async def _take_over(self) -> ParkingPipeline:
        context = self._context
        settings = self._lane.topics.get(self.queue.topic)
        if settings is None:
            raise TopicRemoved(f"{self.queue.topic!r} is not a topic of the group any more")
        rules = self._lane.rules_of(settings)
        begun = await self._begin_period(rules)
        pipeline = ParkingPipeline(
            queue=self.queue,
            epoch=begun.epoch,
            period=begun.own.period,
            rules=rules,
            start_offset=begun.start_offset,
            committed=begun.committed,
            trusted_until_ns=self._trust.until_ns,
            memory=context.memory,
            leases_of_group=self._lane.leases_of_group,
            hold_until_ns=self.hold_until_ns,
            resume=None if begun.last is None else begun.last.snapshot,
            now_ns=now_ns(),
            life=begun.life.number,
            former=begun.life.former,
        )
        if begun.last is not None and begun.last.snapshot is not None:
            pipeline.anchored(begun.last.snapshot.anchor)
        if not begun.knows_parked:
            found = await parked_in_twin(context, self._lane.name, pipeline)
            pipeline.found_parked(found)
            if found or (begun.last is not None and begun.last.damage is not None):
                # the records of a queue long idle may just be deleted
                self._lane.records_damaged(pipeline)
        self._report(begun, pipeline)
        for key, how in (await missed_pauses(context, self._lane, self.queue, begun)).items():
            pipeline.pause(key, how)
        self._own, self._forgotten = begun.own, begun.forgotten
        context.recorder.begin(pipeline, begun.last, begun.own, lose=self.lose)
        return pipeline

    def _report(self, begun: Begun, pipeline: ParkingPipeline) -> None:
        """Log a new life of the topic and deleted ownership records."""
        if begun.last is not None and begun.last.begins_life:
            self._log.warning(
                "the topic was deleted and created again: beginning at its first message",
                life=begun.own.life,
                start=pipeline.position,
            )
            self._lane.topic_recreated(pipeline)
        if begun.forgotten:
            self._log.warning(
                "ownership records were deleted by retention: paused keys, order keys and messages"
                " finished above the committed offset are unknown"
            )

    async def _begin_period(self, rules: TopicRules) -> Begun:
        start = PeriodStart(
            self._context,
            self._lane,
            self.queue,
            hold_until_ns=self.hold_until_ns,
            handoffs=self._handoffs,
            trusted=lambda: now_ns() < self._trust.until_ns,
            certain=lambda: not self._trust.cut,
        )
        try:
            return await start.begin(rules)
        finally:
            self.hold_until_ns, self._asked_ns = start.hold_until_ns, start.asked_ns

    def follow_tags(self) -> None:
        """Restart the read if the wanted tags changed: the broker may hold one with the previous
        tags.
        """
        if self._reader is not None and self._owned().rules.tags != self._read_tags:
            self._reader.cancel()
            self._read()

    def _read(self) -> None:
        self._read_tags = self._owned().rules.tags
        self._reader = spawn(
            read_queue(
                *(self._context, self._lane, self._owned()),
                on_reset=self.lost_tail,
                on_new_life=self._end_life,
            ),
            name=f"read {self.queue}",
        )
        self._reader.add_done_callback(self._lose_after_bug)

    def _lose_after_bug(self, task: asyncio.Task[Any]) -> None:
        """Lose the queue after a bug in *task*: no queue may stop silently."""
        if not task.cancelled() and (error := task.exception()) is not None:
            spawn(self.lose(f"{task.get_name()} failed: {error!r}"), name=f"lose {self.queue}")

    def lost_tail(self, offset: int) -> None:
        """End the period, as the broker's queue ends at *offset*, below what was read.

        The next period reads the rest of the queue.
        """
        if self._handing_over is not None:
            return  # the next owner notices it as well
        pipeline = self._owned()
        if pipeline.copies_known:
            self._end_now(pipeline)
        self._handing_over = spawn(self._end_at(pipeline, offset), name=f"reset {self.queue}")
        self._handing_over.add_done_callback(self._lose_after_bug)

    def _end_life(self) -> None:
        """End the period without a last record: the topic was deleted and created again.

        The records of this life no longer count; the next period notices that itself.
        """
        if self._handing_over is not None:
            return
        self._log.error(
            "the topic was deleted and created again, or an older copy of its broker's log was"
            " restored: its queue starts over"
        )
        if self._owned().life is None:  # the records would not show it
            self.lost_tail(0)
            return
        self._end_now(self._owned())
        self._handing_over = spawn(
            self._give_back("the topic was created again"), name=f"restart {self.queue}"
        )
        self._handing_over.add_done_callback(self._lose_after_bug)

    def _end_now(self, pipeline: ParkingPipeline) -> None:
        pipeline.drain()  # its commit would be wrong
        pipeline.ended()  # no record would contain later verdicts

    async def _end_at(self, pipeline: ParkingPipeline, end: int) -> None:
        """End the period of a queue whose messages from offset *end* on are lost.

        The twin, if any, is updated first: once *left* is stored, no owner would notice the loss.
        """
        await wait_for_copies(self._context, pipeline)
        self._end_now(pipeline)
        left = pipeline.snapshot(now_ns=now_ns()).cut_at(end)
        await record_lost_tail(
            self._context, self._lane, pipeline, end=end, until_ns=lambda: self._trust.until_ns
        )
        if await self._end_with(pipeline, left) is not None:
            self._log.warning("the next owner must notice that the queue is shorter", end=end)

    @property
    def pipeline(self) -> ParkingPipeline | None:
        """The pipeline of the queue; None before it is known."""
        return self._pipeline

    def for_reset(self) -> ParkingPipeline:
        """Return the pipeline, if an operator may reset the queue now. Raises WrongState."""
        if self._pipeline is None or self._handing_over is not None or not self.is_sure:
            raise NoOwnerNow(self.queue)
        return self._pipeline

    async def reset_to(self, offset: int, **why: object) -> None:
        """End the period and move the group to *offset*; *why* is recorded in the history.

        Raises WrongState, and Unavailable if the reset could not be stored.
        """
        pipeline = self.for_reset()
        why = {"from": pipeline.committable, "to": offset, **why}  # taken before anything continues
        self.state = QueueState.HANDING_OVER
        pipeline.drain()
        moving = spawn(self._move(pipeline, offset, why), name=f"reset {self.queue} by a person")
        moving.add_done_callback(self._lose_after_bug)
        self._handing_over = moving
        await asyncio.wait([moving])
        if moving.cancelled():
            raise LostMeanwhile(self.queue)
        if (refusal := moving.result()) is not None:
            raise refusal

    async def _move(
        self, pipeline: ParkingPipeline, offset: int, why: dict[str, object]
    ) -> Overtaken | NotStored | None:
        return await self._end_with(pipeline, moved_to(pipeline, offset), why)

    async def _end_with(
        self, pipeline: ParkingPipeline, last: Snapshot, why: dict[str, object] | None = None
    ) -> Overtaken | NotStored | None:
        """End the period with *last* as its last record; *why* is recorded in the history.

        Return why it is not stored, if so. What these tasks raise would be logged as a bug.
        """
        assert self._own is not None, "it has a pipeline"
        await self._end("reset")  # its state is not recorded any more
        await self._committer.wait_until_idle(pipeline)
        await self._context.recorder.wait_until_idle(pipeline)
        stored = False
        try:
            while not stored and now_ns() < self._trust.until_ns:
                stored = await store_reset(
                    self._context, self._lane.name, self.queue, last, self._own
                )
            if stored and why is not None:
                self._notes.period(pipeline, "reset", **why)
        except Overtaken as error:
            return error
        finally:
            await self._give_back("reset")
        return None if stored else NotStored(self.queue)

    # ---- handing over ---------------------------------------------------------------------------

    def hand_over(self, *, to: str = "") -> asyncio.Task[None]:
        """Release the queue, perhaps to member *to*, without loss or repetition; the task ends
        then.
        """
        if self._handing_over is None:
            self._to = to
            self._handing_over = spawn(self._hand_over(), name=f"hand over {self.queue}")
            self._handing_over.add_done_callback(self._lose_after_bug)
        return self._handing_over

    async def abandon(self) -> None:
        """Stop at once, as in a crash: the lock expires, and the next owner reads the records."""
        await cancel_and_wait(self._acquiring, self._handing_over, self._reader)
        await self._trust.check_no_more()

    async def _hand_over(self) -> None:
        await asyncio.wait([self._acquiring])
        if self._pipeline is None:
            return
        self.state = QueueState.HANDING_OVER
        pipeline = self._pipeline
        pipeline.drain()
        self._history("drain")
        # A check that waits for its broker would delay the last record.
        await cancel_and_wait(self._reader)
        await self._trust.check_no_more()
        await drained(self._context, pipeline, until_ns=lambda: self._trust.until_ns)
        # Thousands of queues end at once: together their requests would exceed their time limits.
        async with self._context.take_overs.end_slot(self.queue.broker):
            twin_clean = self.parking is None or await self.parking.hand_over()
            clean = twin_clean and await write_end(self._context, self._lane, pipeline, to=self._to)
            if not await self._committer.commit(self._lane, pipeline):
                self._log.warning(
                    "the last commit failed; the ownership record contains the offset"
                )
            await self._give_back("handed over", clean=clean)

    async def _give_back(self, reason: str, *, clean: bool = False) -> None:
        """End the period and unlock; *clean*: the records contain the live leases."""
        hold_until_ns = self.hold_until_ns
        await self._end(reason)
        if clean:
            self.hold_until_ns = hold_until_ns
        await self._unlock_or_leave()

    async def _unlock_or_leave(self) -> None:
        """Unlock, or with live leases let the lock expire so that the next owner waits for them."""
        if self.hold_until_ns <= now_ns():
            await self._unlock()
        self.state = QueueState.GONE

    async def _unlock(self) -> None:
        self.state = QueueState.UNLOCKING
        timeout_s = self._context.settings.lock.request_timeout_s
        async with self._lock_requests:
            try:
                await self._context.client.unlock(
                    self._lane.name, [self.queue], timeout_s=timeout_s
                )
            except RemotingError as error:
                self._log.warning("unlock failed; the lock expires in time", reason=str(error))

    async def _end(self, reason: str) -> None:
        """Stop serving the queue."""
        await cancel_and_wait(self._reader)
        await self._trust.check_no_more()
        if self.parking is not None:
            await self.parking.end(reason)
        if (pipeline := self._pipeline) is not None and not pipeline.closed:
            self.hold_until_ns = max(self.hold_until_ns, pipeline.leases_end_ns)
            self._history("own-", reason=reason)
            self._lane.remove(pipeline)
            self._log.info("queue released", reason=reason, committed=pipeline.committed)
        # This object and its tasks refer to each other: what it keeps waits for a full collection.
        self._pipeline = self.parking = self._reader = None

    # ---- internals ------------------------------------------------------------------------------

    @property
    def _us(self) -> str:
        return self._context.client.client_id

    def _owned(self) -> ParkingPipeline:
        if self._pipeline is None:
            raise RuntimeError(f"{self.queue} is not owned yet")
        return self._pipeline

    def _history(self, event: str, **fields: object) -> None:
        self._notes.period(self._owned(), event, **fields)
