"""A short ownership period of a queue without an owner, for changes to its records."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from dataclasses import replace

import structlog

from broker_core.clock import now_ns
from broker_core.errors import RemotingError, RequestTimeout
from broker_core.names import QueueName
from proxy.core.keys.ids import Epoch
from proxy.core.keys.retry_policy import MS
from proxy.core.records.record import Clean
from proxy.errors import WrongState
from proxy.lane.group_lane import GroupLane
from proxy.lane.history import keys_in_history
from proxy.upstream.context import UpstreamContext
from proxy.upstream.ownership.missed_pauses import missed_pauses
from proxy.upstream.ownership.period_start import Begun, PeriodStart

_log = structlog.get_logger("ownership")


class FreePeriod:
    """One such period; it delivers nothing."""

    def __init__(
        self,
        context: UpstreamContext,
        lane: GroupLane,
        queue: QueueName,
        *,
        lock_requests: asyncio.Lock,
        changes: bool = True,
    ) -> None:
        """*lock_requests* is held over lock and unlock, as for all queues of the group at the
        broker. *changes*: False if the records keep their contents, so that older settings suffice.
        """
        self._context = context
        self._lane = lane
        self._queue = queue
        self._lock_requests = lock_requests
        self._changes = changes

    @asynccontextmanager
    async def locked(self) -> AsyncIterator[int]:
        """Take the lock and yield the time until which it is trusted; ``begun`` releases it.

        Raises WrongState if another proxy has the lock, RemotingError.
        """
        lock = self._context.settings.lock
        async with self._lock_requests:
            before_ns = now_ns()
            answer = await self._context.client.lock(
                self._lane.name, {self._queue}, timeout_s=self._timeout_s
            )
            if self._queue in answer.unanswered:
                with suppress(RemotingError):  # the lock may be granted late
                    await self._unlock()
                raise RequestTimeout(
                    f"{self._queue.broker} did not answer the request for the lock of queue"
                    f" {self._queue.qid}"
                )
        if self._queue not in answer.granted:
            raise WrongState(
                f"another proxy has the lock of queue {self._queue.qid}, or had it a moment ago:"
                " try again in a moment",
                passing=True,
            )
        yield before_ns + int(lock.trust_s * 1e9)

    @asynccontextmanager
    async def begun(self, reason: str, *, trusted_until_ns: int) -> AsyncIterator[Begun]:
        """Begin the period under the lock, which is trusted until then, and end it after the
        context; *reason* is for the history.

        Raises WrongState, OlderSettings, RemotingError.
        """
        topic = self._lane.topics.get(self._queue.topic)
        if topic is None:
            raise WrongState(f"{self._queue.topic!r} is not a topic of the group any more")
        start = PeriodStart(
            *(self._context, self._lane, self._queue),
            hold_until_ns=0,
            trusted=lambda: now_ns() < trusted_until_ns,
            hands_out=self._changes,
        )
        begun = await start.begin_now(self._lane.rules_of(topic))
        owner, hold_ns = self._context.client.client_id, start.hold_until_ns
        missed = await missed_pauses(self._context, self._lane, self._queue, begun)
        begun = replace(begun, missed=missed)
        last = None if begun.last is None else begun.last.snapshot
        keys = {} if last is None else keys_in_history(last)
        if last is not None:  # leases that outlived the previous owner's hand-over
            hold_ns = max((hold_ns, *(now_ns() + ms * MS for ms in last.leases.values())))
        self.note(begun.epoch, "own+", owner=owner, hold_until_ns=hold_ns, **keys)
        try:
            yield begun
        finally:
            self.note(begun.epoch, "own-", reason=reason)
            await self._end(begun, clean=hold_ns <= now_ns())

    async def _end(self, begun: Begun, *, clean: bool) -> None:
        """End the period; *clean*: no earlier lease may be alive, otherwise the lock expires in
        time.
        """
        group = self._lane.name
        if not clean:
            return
        try:
            await self._context.log.append(group, self._queue, Clean(begun.epoch))
            async with self._lock_requests:
                await self._unlock()
        except RemotingError as error:
            _log.warning("unlock failed; the lock expires in time", reason=str(error))

    async def _unlock(self) -> None:
        await self._context.client.unlock(self._lane.name, [self._queue], timeout_s=self._timeout_s)

    def note(self, epoch: Epoch, event: str, **fields: object) -> None:
        """Write *event* of this period to the history."""
        queue = self._queue
        place = {"group": self._lane.name, "topic": queue.topic, "queue": queue.qid}
        self._context.history.write(event, **place, epoch=epoch, **fields)

    @property
    def _timeout_s(self) -> float:
        return self._context.settings.lock.request_timeout_s
