"""Key verbs in one owned queue, recorded before they are confirmed.

A verb is confirmed once an ownership record contains it, so that the next owner keeps it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from broker_core.clock import now_ns, wall_ms
from broker_core.errors import RemotingError
from broker_core.remoting.key_hash import plain_key
from proxy.core.jobs.chains import Job
from proxy.core.keys.order_key import QUEUE_CHAIN, key_of, key_text, named
from proxy.core.leases.verdicts import Skip
from proxy.core.parking.parked_copy import origin_of
from proxy.core.parking.parking_pipeline import ParkingPipeline
from proxy.core.pipeline.key_views import KeyView, KeyViews
from proxy.core.pipeline.queue_pipeline import QueuePipeline
from proxy.core.records.parked_key import plain_text
from proxy.core.records.paused_key import PausedKey
from proxy.errors import Unavailable, WrongState
from proxy.lane.history import LaneHistory
from proxy.upstream.context import UpstreamContext
from proxy.upstream.parking.parked_keys import Parking
from proxy.upstream.records.queue_range import read_range


@dataclass(frozen=True, slots=True)
class Act:
    """The caller, the reason, and the id of the audit record."""

    by: str
    reason: str
    audit: str


class KeyVerbs:
    """Runs verbs on the keys of one queue in one ownership period."""

    def __init__(self, context: UpstreamContext, parking: Parking) -> None:
        self._context = context
        self._parking = parking
        self._lane = parking.lane
        self._notes = LaneHistory(context.history, parking.lane.name)

    @property
    def pipeline(self) -> ParkingPipeline:
        """The pipeline of the queue."""
        return self._parking.pipeline

    @property
    def parking(self) -> Parking:
        """The queue's parked keys."""
        return self._parking

    @property
    def _pipelines(self) -> Sequence[QueuePipeline]:
        twin = self.pipeline.twin
        return [self.pipeline] if twin is None else [self.pipeline, twin]

    def view(self, key: bytes) -> KeyView:
        """Return the current state of *key*."""
        return KeyViews(self.pipeline, now_ns=now_ns(), wall_ms=wall_ms()).of(key)

    def named(self, text: str) -> bytes:
        """Return the key that is displayed as *text*, without blanks around it.

        ``0x`` and hex digits may be a text, such as an address, or stand for bytes that are not
        UTF-8. The one known here is used, otherwise the text; the exception is the name of a whole
        queue's chain, which is no text.
        """
        given, other = named(plain_key(text).encode()), key_of(text)
        if given == other or self._knows(given):
            return given
        return other if other == QUEUE_CHAIN or self._knows(other) else given

    def _knows(self, key: bytes) -> bool:
        pipeline = self.pipeline
        kept = key in pipeline.parked or key in pipeline.paused or key in pipeline.jobs.by_key
        return kept or any(each.events.of(key) for each in self._pipelines)

    def check(self, key: bytes, *, done: bool) -> None:
        """Raise WrongState unless *done*."""
        if not done:
            raise WrongState(
                f"key {key_text(key)!r} is not ready for this in {self.pipeline.place}: its records"
                " or copies are being written; retry in a moment"
            )

    def check_may_act(self) -> None:
        """Raise WrongState while the queue is being handed over."""
        for each in self._pipelines:
            each.at(now_ns())
        if not self._parking.may_act:
            raise WrongState(
                f"queue {self.pipeline.place} is being handed over: retry in a moment", passing=True
            )

    def row(self, key: bytes) -> dict[str, Any]:
        """Return the current state of *key* as the API shows it."""
        parked = self._parking.view(key)
        row = self.view(key).row()
        return {**row, "not_copied": parked["not_copied"], "redriven_by": parked["redriven_by"]}

    # ---- pausing --------------------------------------------------------------------------------

    async def pause(self, key: bytes | None, act: Act) -> None:
        """Pause *key* (None: the whole queue) and return once the pause is recorded.

        Raises Unavailable if it cannot be recorded (then it is not paused), WrongState if the queue
        is being handed over or was resumed in the meantime.
        """
        pipeline = self.pipeline
        self.check_may_act()
        how = PausedKey(wall_ms(), plain_text(act.by), plain_text(act.reason))
        is_new = pipeline.pause(key, how)
        try:
            await self._context.recorder.record(self._lane, pipeline)
        except RemotingError as error:
            if is_new:
                pipeline.resume(key)
                self._resumed(key)
            state = "not paused" if is_new else "already paused, perhaps not recorded,"
            raise Unavailable(
                f"{state} in {pipeline.place}: the ownership record cannot be stored: {error}"
            ) from None
        self.check_may_act()
        if key not in pipeline.paused:
            raise WrongState(
                f"not paused in {pipeline.place}: it was resumed in the meantime, or an earlier"
                " pause could not be recorded; retry"
            )
        if is_new:
            self._notes.operator_action(
                pipeline, "pause", key, by=act.by, reason=act.reason, audit=act.audit
            )

    async def resume(self, key: bytes | None, act: Act) -> None:
        """Resume *key* (None: the whole queue).

        Raises Unavailable if it cannot be recorded for the next owner, WrongState if the queue is
        being handed over.
        """
        pipeline = self.pipeline
        self.check_may_act()
        if pipeline.resume(key) is not None:
            by, reason = act.by, act.reason
            self._notes.operator_action(
                pipeline, "resume", key, by=by, reason=reason, audit=act.audit
            )
            self._resumed(key)
        try:
            await self._context.recorder.record(self._lane, pipeline)
        except RemotingError as error:
            raise Unavailable(
                f"resumed in {pipeline.place}, but not recorded yet; the next owner would pause it"
                f" again: {error}"
            ) from None

    def _resumed(self, key: bytes | None) -> None:
        for each in self._pipelines:
            self._lane.apply_effects(each, each.resumed(key))

    # ---- noting ---------------------------------------------------------------------------------

    async def note(self, key: bytes, text: str) -> None:
        """Set the note of a paused or parked *key* and return once it is recorded.

        Raises Unavailable if it cannot be recorded (the old note is kept), WrongState if the queue
        is being handed over, or the key is neither paused nor parked.
        """
        pipeline = self.pipeline
        self.check_may_act()
        if key not in pipeline.paused and key not in pipeline.parked:
            raise WrongState(
                f"not noted in {pipeline.place}: key {key_text(key)!r} is neither paused nor parked"
                " there any more"
            )
        before = pipeline.note_of(key)
        pipeline.note(key, text)
        try:
            await self._context.recorder.record(self._lane, pipeline)
        except RemotingError as error:
            pipeline.note(key, before)
            raise Unavailable(
                f"not noted in {pipeline.place}: the ownership record cannot be stored: {error}"
            ) from None
        self.check_may_act()

    # ---- skipping -------------------------------------------------------------------------------

    async def skip(self, key: bytes, offset: int, act: Act) -> None:
        """Skip the first message of *key*, which must be at *offset*.

        For a parked key, *offset* is that of the copy. Raises WrongState if it cannot be skipped.
        """
        self.check_may_act()
        pipeline = self._holder_of(key)
        if pipeline.first_stored(key) == offset and pipeline is not self.pipeline:
            origin = await self._origin(pipeline, offset)
            self.check_may_act()
            if pipeline.first_stored(key) != offset:
                raise WrongState(f"key {key_text(key)!r} moved on: check its first message")
            effects = pipeline.skip_stored(Skip(act.audit, key, origin))
        else:
            job = pipeline.head(key)
            if job is None or job.offset != offset:
                found = "none" if job is None else job.offset
                raise WrongState(
                    f"the first unfinished message of key {key_text(key)!r} in {pipeline.place} is"
                    f" {found}, not {offset}: nothing was skipped"
                )
            origin = None
            if pipeline is not self.pipeline:
                origin = await self._origin_of(pipeline, key, job)
            effects = pipeline.skip(job, Skip(act.audit, key, origin))
        self._lane.apply_effects(pipeline, effects)
        await self._record(pipeline, f"message {offset} is skipped")

    async def _origin_of(self, twin: QueuePipeline, key: bytes, job: Job) -> int | None:
        """Return the original offset of *job*, the first one of *key*; read it if necessary."""
        if job.message is not None:
            return origin_of(job.message)[0]
        origin = await self._origin(twin, job.offset)
        self.check_may_act()
        if twin.head(key) is not job:
            raise WrongState(f"key {key_text(key)!r} has moved on: check its first message")
        return origin

    async def _origin(self, twin: QueuePipeline, offset: int) -> int | None:
        """Return the original offset of the copy at *offset*; None if retention deleted it."""
        copies = read_range(
            self._context.client, twin.queue, group=self._lane.name, start=offset, end=offset + 1
        )
        async for copy in copies:
            return origin_of(copy)[0]
        return None

    # ---- retrying -------------------------------------------------------------------------------

    async def retry(self, key: bytes, act: Act, *, anew: bool) -> None:
        """Retry the first message of *key* now; *anew* resets its count of deliveries.

        Raises WrongState if it is not waiting for a retry, as in a parked key without a redrive.
        """
        self.check_may_act()
        pipeline, twin = self._holder_of(key), self.pipeline.twin
        if twin is not None and pipeline is twin and key not in twin.redrives.keys:
            raise WrongState(
                f"key {key_text(key)!r} is parked in {self.pipeline.place}, and its messages wait"
                " for a redrive: redrive it"
            )
        job = pipeline.head(key)
        if job is None:
            raise WrongState(f"key {key_text(key)!r} has no unfinished message in {pipeline.place}")
        before = pipeline.retry(job, reset_attempts=anew)
        try:
            if anew:  # otherwise the next owner would continue the old count
                await self._context.recorder.record(self._lane, pipeline)
        except RemotingError as error:
            pipeline.count_attempts(job, before)
            raise Unavailable(f"the ownership record cannot be stored: {error}") from None
        else:
            if not pipeline.closed:
                self._notes.operator_action(
                    pipeline,
                    "retry",
                    key,
                    offset=job.offset,
                    anew=anew,
                    by=act.by,
                    reason=act.reason,
                    audit=act.audit,
                )
        finally:
            self._lane.apply_effects(pipeline, pipeline.offer_again(job))

    # ---- inside ---------------------------------------------------------------------------------

    def _holder_of(self, key: bytes) -> QueuePipeline:
        """Return the pipeline with the first message of *key*: the parked twin, if it is parked.

        Raises WrongState while the key moves between the two.
        """
        pipeline, twin = self.pipeline, self.pipeline.twin
        if key not in pipeline.parked and key not in pipeline.parking.leaving:
            return pipeline
        if twin is not None and key in twin.jobs.by_key and twin.is_read:
            return twin
        raise WrongState(
            f"messages of key {key_text(key)!r} are moving to or from the parked topic: retry in a"
            " moment"
        )

    async def record(self, what: str) -> None:
        """Return once the next owner would know that the key is *what*. Raises Unavailable.

        A hand-over that began since does not matter: its last record contains the change.
        """
        try:
            for each in self._pipelines:
                await self._context.recorder.record(self._lane, each)
        except RemotingError as error:
            raise Unavailable(
                f"{what} in {self.pipeline.place}, but not recorded yet; repeat it if another proxy"
                f" becomes the owner: {error}"
            ) from None

    async def _record(self, pipeline: QueuePipeline, what: str) -> None:
        try:
            await self._context.recorder.record(self._lane, pipeline)
        except RemotingError as error:
            raise Unavailable(
                f"{what}, but not recorded yet; if this proxy stops now it comes again: {error}"
            ) from None
