"""The parked keys of one owned queue: their records, the copies in the parked twin, redrives.

One task per queue, from its first parked key on. Each step is stored before the next begins, so the
next owner can continue after a crash at any point:

1. an ownership record lists the key; from then on its messages are not delivered;
2. copies of its messages are appended to the twin, in order, and each message then finishes;
3. a redrive is recorded in the records of the twin, and the copies are delivered;
4. once the twin has no copies of the key left, an ownership record no longer lists it, a record of
   the twin forgets it, and its newer messages are delivered again.
"""

from __future__ import annotations

import asyncio
from collections.abc import Collection, Sequence
from typing import Any

import structlog

from broker_core.client.sending import size_of
from broker_core.clock import now_ns
from broker_core.errors import BrokerError, RemotingError
from broker_core.remoting.codes import ResponseCode
from broker_core.remoting.message import OutgoingMessage
from broker_core.tasks import cancel_and_wait, spawn
from proxy.core.dead_letters.copies import Form
from proxy.core.jobs.chains import Job
from proxy.core.keys.ids import Epoch
from proxy.core.keys.order_key import key_text
from proxy.core.parking.parking_pipeline import ParkingPipeline
from proxy.core.parking.twin_pipeline import TwinPipeline
from proxy.core.pipeline.effects import Effects
from proxy.core.records.parked_key import FAILURE_POLICY, parked_topic
from proxy.core.records.record import Own
from proxy.core.records.replay import LastOwner
from proxy.lane.group_lane import GroupLane
from proxy.lane.history import LaneHistory, rules_in_history
from proxy.upstream.commits.committer import Committer
from proxy.upstream.commits.hand_over import last_record
from proxy.upstream.context import UpstreamContext
from proxy.upstream.dead_letters.copier import copy_of
from proxy.upstream.parking.copy_batches import AT_ONCE, AT_ONCE_BYTES, copy_each
from proxy.upstream.reading.queue_reader import read_queue
from proxy.upstream.records.anchors import in_life
from proxy.upstream.records.durable import check_on_disk
from proxy.upstream.records.twin_topics import create_twins

_FIRST_BACK_OFF_S, _LONGEST_BACK_OFF_S = 0.1, 5.0
#: Maximum keys named in a log line.
_KEYS_IN_LOG = 5


class Parking:
    """Parked keys of one queue in one ownership period."""

    def __init__(
        self,
        context: UpstreamContext,
        committer: Committer,
        lane: GroupLane,
        pipeline: ParkingPipeline,
    ) -> None:
        self._context = context
        self._committer = committer
        self._lane = lane
        self._pipeline = pipeline
        topic = parked_topic(lane.name, pipeline.topic)
        self._queue = pipeline.queue._replace(topic=topic)
        self._wake = asyncio.Event()
        self._task: asyncio.Task[None] | None = None
        self._reader: asyncio.Task[None] | None = None
        self._look: asyncio.Task[None] | None = None
        self._restart: asyncio.Task[None] | None = None
        self._notes = LaneHistory(context.history, lane.name)
        self._log = structlog.get_logger("parking").bind(
            group=lane.name, topic=pipeline.topic, queue=pipeline.place
        )
        if pipeline.parked:
            self.wake()

    @property
    def lane(self) -> GroupLane:
        """The group."""
        return self._lane

    @property
    def pipeline(self) -> ParkingPipeline:
        """The pipeline whose keys are parked."""
        return self._pipeline

    def wake(self) -> None:
        """Check for work, starting the task if necessary."""
        if self._task is None and not self._pipeline.closed:
            self._task = spawn(self._run(), name=f"parking {self._pipeline.queue}")
        self._wake.set()

    def keys(self) -> dict[bytes, bool]:
        """Return the parked keys, and whether each is being redriven."""
        twin = self._pipeline.twin
        redriven = () if twin is None else twin.redrives.keys
        return {key: key in redriven for key in self._pipeline.parked}

    @property
    def place(self) -> str:
        """The queue, without its topic."""
        return self._pipeline.place

    def view(self, key: bytes) -> dict[str, Any]:
        """Return the state of *key* for operators; ``copies`` are those in the twin."""
        pipeline, twin = self._pipeline, self._pipeline.twin
        state, parked = "not parked", pipeline.parked.get(key)
        if parked is not None:
            state = "redriven" if twin is not None and key in twin.redrives.keys else "parked"
        copied = None if twin is None else twin.parked.get(key)
        return {
            "key": key_text(key),
            "topic": pipeline.topic,
            "queue": pipeline.place,
            "state": state,
            "copies": 0 if twin is None else twin.jobs.by_key.unfinished(key),
            "not_copied": pipeline.jobs.by_key.unfinished(key),
            "by": "" if parked is None else parked.by,
            "reason": "" if parked is None else parked.reason,
            "note": "" if parked is None else parked.note,
            "redriven_by": copied.by if copied is not None and state == "redriven" else "",
        }

    # ---- operators' requests --------------------------------------------------------------------

    def park(self, key: bytes, *, by: str, reason: str) -> bool:
        """Park *key*; return False if it is already parked or has no unfinished messages here."""
        if not (self.may_act and self._pipeline.parking.park(key, by=by, reason=reason)):
            return False
        self._lane.apply_effects(self._pipeline, Effects().note_parking())
        return True

    def redrive(self, key: bytes, *, by: str, audit: str, rate: float = 0.0) -> bool:
        """Deliver the parked messages of *key*; return False if it is not parked or not ready.

        *rate*: maximum messages per second; 0: no limit. A running redrive gets the new rate.
        """
        twin = self._pipeline.twin
        if not self.may_act or twin is None or key not in self._pipeline.parking.recorded:
            return False
        if key in twin.redrives.keys:
            self._lane.apply_effects(twin, twin.pace(key, rate=rate))
            return True
        if key in twin.redrives.stopping:
            return False
        self._notes.parking(self._pipeline, "redrive", key, by=by, state="started", audit=audit)
        self._log.warning("redrive started", order=key_text(key), by=by)
        self._lane.apply_effects(twin, twin.redrive(key, rate=rate, by=by))
        return True

    def may_redrive(self) -> list[bytes]:
        """Return the parked keys that can be redriven and are not."""
        twin = self._pipeline.twin
        if not self.may_act or twin is None:
            return []
        redriven, stopping = twin.redrives.keys, twin.redrives.stopping
        recorded = self._pipeline.parking.recorded
        return sorted(key for key in recorded if key not in redriven and key not in stopping)

    def redrive_all(self, *, by: str, audit: str, rate: float = 0.0) -> list[bytes]:
        """Redrive all parked keys that are ready, like ``redrive``, and return them."""
        if keys := self.may_redrive():
            twin = self._twin()
            for key in keys:
                self._notes.parking(
                    self._pipeline, "redrive", key, by=by, state="started", audit=audit
                )
            self._log.warning("redrive started", **_named(keys), by=by)
            self._lane.apply_effects(twin, twin.redrive_all(keys, rate=rate, by=by))
        return keys

    def stop(self, key: bytes, *, by: str) -> bool:
        """Stop the redrive of *key*; return False if there is none."""
        twin = self._pipeline.twin
        if not self.may_act or twin is None or key not in twin.redrives.keys:
            return False
        self._lane.apply_effects(twin, twin.stop(key))
        self._notes.parking(self._pipeline, "redrive", key, by=by, state="stopped")
        self._log.warning("redrive stopped", order=key_text(key), by=by)
        return True

    @property
    def may_act(self) -> bool:
        """Whether changes are allowed: not during the last record or without certain ownership."""
        return not self._pipeline.draining and self._pipeline.is_owned(now_ns())

    @property
    def is_settled(self) -> bool:
        """Whether all verbs can be run: parked keys have their copies, and these are read."""
        twin, keys = self._pipeline.twin, self._pipeline.parked
        if not keys or not self.may_act:
            return self.may_act
        return twin is not None and twin.is_read and self._pipeline.parking.recorded >= set(keys)

    # ---- the end of the period ------------------------------------------------------------------

    async def hand_over(self) -> bool:
        """Record the state for the twin's next owner; return False if it is not stored."""
        starts_over = self._starts_over
        await cancel_and_wait(self._task, self._reader, self._look, self._restart)
        twin = self._pipeline.twin
        if twin is None:
            return True
        if starts_over:  # its state is that of before
            return False
        self._notes.period(twin, "drain")
        if self._pipeline.extensions_refused:
            twin.refuse_extensions()
        twin.ended()  # no record would contain later verdicts
        try:
            await last_record(self._context, self._lane, twin)
            await self._committer.commit(self._lane, twin)
            await self._context.recorder.end(self._lane, twin)
        except RemotingError as error:
            self._log.warning("end of the twin's period not recorded", reason=str(error))
            return False
        return True

    async def end(self, reason: str) -> None:
        """Stop serving the queue."""
        await cancel_and_wait(self._task, self._reader, self._look, self._restart)
        if (twin := self._pipeline.twin) is not None and not twin.closed:
            self._notes.period(twin, "own-", reason=reason)

    # ---- the task -------------------------------------------------------------------------------

    async def _run(self) -> None:
        back_off_s = _FIRST_BACK_OFF_S
        while not self._pipeline.closed:
            await self._wake.wait()
            self._wake.clear()
            if self._pipeline.draining:
                return
            if not self._pipeline.is_owned(now_ns()):  # another proxy may be processing its keys
                await asyncio.sleep(_FIRST_BACK_OFF_S)
                self._wake.set()
                continue
            try:
                await self._look_after()
                back_off_s = _FIRST_BACK_OFF_S
                self._pipeline.parking.copying_fails("")
            except Exception as error:  # including bugs: no key may stop silently
                self._pipeline.parking.copying_fails(f"{self._queue.topic}: {error}")
                self._log.error(
                    "copies of parked messages not stored, so their keys wait; retrying",
                    parked_topic=self._queue.topic,
                    messages=self._pipeline.statistics().uncopied,
                    reason=str(error),
                    exc_info=None if isinstance(error, RemotingError) else error,
                )
                await asyncio.sleep(back_off_s)
                back_off_s = min(back_off_s * 2, _LONGEST_BACK_OFF_S)
                self._wake.set()

    async def _look_after(self) -> None:
        pipeline = self._pipeline
        if pipeline.parking.unrecorded:
            await self._record_new()
        if pipeline.twin is None and pipeline.parked:
            await self._open()
        failed = await self._copy_all(pipeline.parking.keys_to_copy())
        pipeline.leave(but=failed)
        if pipeline.parking.leaving:
            await self._leave(set(pipeline.parking.leaving))
        if failed:
            raise failed.popitem()[1]  # kept in no variable: it will refer to this frame

    async def _copy_all(self, keys: Collection[bytes]) -> dict[bytes, RemotingError]:
        """Store the next copies of *keys*; return the errors by key."""
        pipeline = self._pipeline
        runs = (pipeline.to_copy(key, jobs=AT_ONCE, body_bytes=AT_ONCE_BYTES) for key in keys)
        try:
            failed = await copy_each(runs, self._copy)
        except BaseException:
            pipeline.parking.look_again(keys)
            raise
        pipeline.parking.look_again(failed)
        if keys:
            self._wake.set()  # there may be more
        return failed

    async def _record_new(self) -> None:
        pipeline = self._pipeline
        new = list(pipeline.parking.unrecorded)
        await self._context.recorder.record(self._lane, pipeline)
        if not pipeline.is_owned(now_ns()):
            return
        for key in new:
            who = pipeline.parked[key]
            self._notes.parking(pipeline, "park", key, by=who.by, reason=who.reason)
        about = pipeline.parked[new[0]]
        self._log.warning("parked", **_named(new), by=about.by, reason=about.reason)
        pipeline.parking.is_recorded(new)

    async def _copy(self, jobs: Sequence[Job]) -> None:
        pipeline, client = self._pipeline, self._context.client
        copies = [self._copy_of(job) for job in jobs]
        plain = not any(copy.sys_flag for copy in copies)

        async def send(begin: int, end: int) -> None:
            if any(map(pipeline.parking.is_given_up, jobs[:begin])):
                return  # they wait for its dead letter
            if end - begin > 1 and plain:
                receipts = await client.send_batch(
                    self._queue, copies[begin:end], life=self._twin().life
                )
                check_on_disk(receipts)
                self._copied(jobs[begin:end], at=[each.offset for each in receipts])
                return
            for job, copy in zip(jobs[begin:end], copies[begin:end], strict=True):
                await self._copy_one(job, copy)

        sizes = [size_of(copy) for copy in copies]
        await self._context.batch_limits.in_pieces(self._queue.broker, sizes, send)

    def _copy_of(self, job: Job, *, form: Form = Form.WHOLE) -> OutgoingMessage:
        pipeline = self._pipeline
        return copy_of(job, pipeline, to=self._queue.topic, form=form, life=pipeline.life)

    async def _copy_one(self, job: Job, copy: OutgoingMessage) -> None:
        client, pipeline = self._context.client, self._pipeline
        try:
            sent = await client.send(self._queue, copy, life=self._twin().life)
        except RemotingError as error:
            if not error.illegal:
                raise
            copy = self._copy_of(job, form=Form.SHORT)
            try:
                sent = await client.send(self._queue, copy, life=self._twin().life)
            except RemotingError as second:
                if not second.illegal:
                    raise
                self._log.error(
                    "message dead-lettered: the broker refuses its parked copy",
                    offset=job.offset,
                    reason=str(second),
                )
                if pipeline.is_owned(now_ns()):
                    self._lane.apply_effects(pipeline, pipeline.not_copyable(job))
                return
        check_on_disk([sent])
        self._copied([job], at=[sent.offset])

    def _copied(self, jobs: Sequence[Job], *, at: Sequence[int]) -> None:
        twin = self._twin()
        twin.copies_end_at(at[-1] + 1)
        if not self._pipeline.is_owned(now_ns()):
            # The next owner decides about these copies; if it is this proxy, they are stored again.
            self._pipeline.parking.look_again(job.key for job in jobs if job.key is not None)
            return
        self._lane.apply_effects(self._pipeline, self._pipeline.copied(jobs, at=at))

    async def _leave(self, keys: Collection[bytes]) -> None:
        pipeline, twin = self._pipeline, self._twin()
        await self._context.recorder.record(self._lane, pipeline)
        twin.redrives.forget(keys)
        await self._context.recorder.record(self._lane, twin)
        if not pipeline.is_owned(now_ns()):
            return
        for key in keys:
            self._notes.parking(pipeline, "redrive", key, by=FAILURE_POLICY, state="done")
            self._notes.parking(pipeline, "unpark", key, by=FAILURE_POLICY)
        self._log.warning("parked no more", **_named(sorted(keys)))
        self._lane.apply_effects(pipeline, pipeline.left(keys))

    # ---- the twin -------------------------------------------------------------------------------

    async def _open(self) -> None:
        """Own the twin along with its queue. Its records have a log of their own."""
        twin, last, own = await self._take_over()
        if last is not None and last.damage is not None:
            self._lane.records_damaged(twin)
        self._context.recorder.begin(twin, last, own)
        self._pipeline.open_twin(twin)
        self._notes.period(
            twin,
            "own+",
            owner=self._context.client.client_id,
            period=self._pipeline.epoch,
            begin=twin.position,
            hold_until_ns=twin.hold_until_ns,
            max_leased=self._lane.leases_of_group.limit,
            **rules_in_history(twin),
        )
        self._lane.add(twin)
        self._lane.apply_to(twin)  # the settings may have changed
        self._reader = spawn(self._read(twin), name=f"read {self._queue}")

    async def _read(self, twin: TwinPipeline) -> None:
        while not twin.closed:
            try:
                await read_queue(
                    *(self._context, self._lane, twin),
                    on_reset=self.lost_tail,
                    on_new_life=self._end_life,
                    on_gone=self._look_for_topic,
                )
                return
            except Exception as bug:  # no parked key may stop silently
                self._log.error("copies not read; retrying", reason=str(bug), exc_info=bug)
                await asyncio.sleep(_LONGEST_BACK_OFF_S)

    async def _take_over(self) -> tuple[TwinPipeline, LastOwner | None, Own]:
        context, pipeline, group = self._context, self._pipeline, self._lane.name
        await self._create()
        life = await context.client.topic_life(self._queue)
        committed = await context.client.committed_offset(group, self._queue)
        own = Own(
            owner=context.client.client_id,
            trust_ms=int(context.settings.lock.trust_s * 1000),
            longest_lease_ms=pipeline.rules.visibility_ns // 1_000_000,
            broker_start_ms=0,  # the queue's own period waits for leases
            period=pipeline.epoch,
            life=life.number,
            origin_life=pipeline.life,
            period_life=context.log.life(group, pipeline.queue),
        )
        epoch = Epoch(await context.log.begin(group, self._queue, own))
        last, _ = await context.log.last(group, self._queue, before=epoch, by_period=True)
        last = await in_life(context.client, group, self._queue, last, life=life)
        last = None if last is None else pipeline.state_of_twin(last)
        start = await self._start(last, committed)
        # Records become visible in the order in which they and all else was stored, so this is the
        # actual end.
        must_read = await context.client.max_offset(self._queue)
        twin = TwinPipeline(
            twin_of=pipeline,
            must_read=must_read,
            queue=self._queue,
            epoch=epoch,
            period=pipeline.epoch,
            rules=pipeline.rules,
            start_offset=start,
            committed=committed or 0,
            trusted_until_ns=pipeline.trusted_until_ns,
            memory=context.memory,
            leases_of_group=self._lane.leases_of_group,
            hold_until_ns=pipeline.hold_until_ns,
            resume=None if last is None else last.snapshot,
            now_ns=now_ns(),
            life=life.number,
        )
        if last is not None and last.snapshot is not None:
            twin.anchored(last.snapshot.anchor)
        return twin, last, own

    async def _start(self, last: LastOwner | None, committed: int | None) -> int:
        """Return the offset from which copies are read."""
        if last is not None and last.begins_life:
            self._log.error("the parked topic was deleted and created again: its copies are gone")
            return await self._context.client.min_offset(self._queue)
        return committed or 0  # deleted copies are left to the reader, which reports them

    async def _is_there(self) -> bool:
        try:
            return self._queue in await self._context.client.queues(self._queue.topic, fresh=True)
        except BrokerError as error:
            if error.code != ResponseCode.TOPIC_NOT_EXIST:
                raise
            return False

    async def _create(self) -> None:
        if not await self._is_there():
            await create_twins(self._context.client, self._queue, self._pipeline.queue)

    def lost_tail(self, offset: int) -> None:
        """Start over with the remaining copies: the broker's queue ends below what was read."""
        self._restart = spawn(self._restart_at(offset), name=f"reset {self._queue}")

    def _end_life(self) -> None:
        """Start over: the parked topic was deleted and created again."""
        self.lost_tail(0)

    def _look_for_topic(self) -> None:
        """Start over if the parked topic was deleted, as no other process would create it
        again: its keys would wait forever.
        """
        if self._look is None or self._look.done():
            self._look = spawn(self._restart_if_gone(), name=f"look for {self._queue}")

    async def _restart_if_gone(self) -> None:
        reader = self._reader
        try:
            if await self._is_there():
                return
        except RemotingError:
            return  # the next read asks again
        if self._starts_over or self._reader is not reader:
            return  # it was created again meanwhile
        self._log.error("the parked topic was deleted: its copies are gone")
        await cancel_and_wait(reader)
        self.lost_tail(0)

    @property
    def _starts_over(self) -> bool:
        return self._restart is not None and not self._restart.done()

    async def _restart_at(self, offset: int) -> None:
        twin = self._twin()
        left = twin.snapshot().cut_at(offset)
        self._notes.period(twin, "own-", reason="reset")
        self._lane.remove(twin)
        await self._context.recorder.wait_until_idle(twin)
        while not self._pipeline.closed:
            try:
                await self._create()
                await self._context.log.append_snapshot(self._lane.name, self._queue, left)
                await self._context.client.commit_offset(
                    *(self._lane.name, self._queue, left.base),
                    epoch=twin.epoch,
                    epoch_life=self._context.log.life(self._lane.name, self._queue),
                    life=await self._context.client.life(self._queue),
                )
                break
            except Exception as error:  # including bugs: no parked key may stop silently
                self._log.error(
                    "reset of the twin not stored; retrying",
                    reason=str(error),
                    exc_info=None if isinstance(error, RemotingError) else error,
                )
                await asyncio.sleep(_FIRST_BACK_OFF_S)
        self._pipeline.drop_twin()
        self.wake()

    def _twin(self) -> TwinPipeline:
        if self._pipeline.twin is None:
            raise RuntimeError(f"the parked twin of {self._pipeline.queue} is not open")
        return self._pipeline.twin


def _named(keys: Sequence[bytes]) -> dict[str, Any]:
    """Return the number of *keys* and the first of them, for the log."""
    return {"keys": len(keys), "first": [key_text(key) for key in keys[:_KEYS_IN_LOG]]}
