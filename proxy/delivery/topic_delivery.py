"""Delivers one topic of one group: a consumer of the lane like any client.

It leases messages, passes each to the topic's deliverer, extends the lease meanwhile, and settles
it. Order, retries, failure policy and hand-over are therefore the lane's, as for thin clients. No
message is leased before its attempt begins, so a hand-over waits only for attempts in progress.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass

import structlog

from broker_core.clock import now_ns
from broker_core.names import Topic
from broker_core.remoting.message import KEYS, TAGS
from broker_core.tasks import cancel_and_wait, spawn
from proxy.core.delivery.target_pause import TargetPause
from proxy.core.group.group_buffer import PullWish
from proxy.core.keys.ids import LeaseId
from proxy.core.keys.order_key import key_text
from proxy.core.keys.retry_policy import MS
from proxy.core.leases.lease_book import Holder, Lease
from proxy.core.leases.verdicts import Nack
from proxy.core.parking.parked_copy import origin_of
from proxy.core.pipeline.queue_pipeline import QueuePipeline
from proxy.delivery.deliverer import Deliverer, Delivery, TargetDown, Verdict, failed
from proxy.downstream.port.requests import MAX_TEXT, user_properties
from proxy.lane.group_lane import GroupLane
from proxy.observe.logs import NoisyLog
from proxy.settings.delivery import DeliverySettings

_log = structlog.get_logger("deliveries")

#: Margin before the end of a lease that cannot be extended, at which its attempt is cancelled; at
#: most a tenth of the lease.
_CUT_NS = 100 * MS


@dataclass(slots=True)
class DeliveryCounts:
    """Counts of attempts since the proxy started. ``unreached`` attempts do not count as
    deliveries.
    """

    delivered: int = 0
    failed: int = 0
    unreached: int = 0
    cut: int = 0


@dataclass(slots=True, eq=False)
class _Attempt:
    """One message being delivered."""

    pipeline: QueuePipeline
    lease: Lease
    began_ns: int
    delivery: Delivery
    task: asyncio.Task[None] | None = None
    timer: asyncio.TimerHandle | None = None

    @property
    def alive(self) -> bool:
        """Whether its lease is alive."""
        return self.pipeline.leases.live(self.lease.lease_id) is self.lease


class TopicDelivery:
    """The proxy's own consumer of *topic*. Used only by the event loop's thread."""

    def __init__(
        self,
        lane: GroupLane,
        topic: Topic,
        settings: DeliverySettings,
        deliverer: Deliverer,
        *,
        holder: Holder,
        max_bytes: int,
        counts: DeliveryCounts,
    ) -> None:
        """*holder* names this consumer in histories; *max_bytes* limits leased bodies."""
        self.settings = settings
        self.pause = TargetPause()
        self.counts = counts
        self._lane = lane
        self._topic = topic
        self._deliverer = deliverer
        self._holder = holder
        self._max_bytes = max_bytes
        self._under_way: dict[int, _Attempt] = {}  # by attempt number
        self._numbers = 0
        self._waits: PullWish | None = None
        self._again: asyncio.TimerHandle | None = None
        self._busy = self._stopped = False
        self._noisy = NoisyLog(_log)

    @property
    def under_way(self) -> int:
        """Number of attempts in progress."""
        return len(self._under_way)

    @property
    def slow(self) -> bool:
        """Whether the target asks for fewer messages, or none."""
        return self._deliverer.pace is not None and self._deliverer.pace.is_slow(now_ns())

    # ---- leasing --------------------------------------------------------------------------------

    def dispatch(self) -> None:
        """Lease as many ready jobs as may be in progress.

        The lane may call it recursively: a delivery can make more jobs ready.
        """
        if self._busy:
            return
        self._busy = True
        try:
            while places := self._free_attempts():
                wish = self._wish(places)
                batches = self._lane.lease(wish, now_ns=now_ns())
                self._give_back(places - sum(len(batch.leases) for batch in batches))
                if not batches:
                    self._wait(wish)
                    return
                for pipeline, lease in ((b.pipeline, each) for b in batches for each in b.leases):
                    self._begin(pipeline, lease)
            self._wait(None)
        finally:
            self._busy = False

    def _free_attempts(self) -> int:
        """Return how many attempts may begin now; if only the pace prevents them, schedule a
        check.
        """
        free = 0 if self._stopped else self.settings.concurrency - len(self._under_way)
        if free <= 0:
            return 0
        now, pace = now_ns(), self._deliverer.pace
        places = self.pause.places(free, under_way=len(self._under_way), now_ns=now)
        if places and pace is not None:
            places = pace.take(places, now)
        if not places:
            wait_ns = self.pause.again_ns - now
            if pace is not None:
                wait_ns = max(wait_ns, pace.wait_ns(now))
            self._look_again_in(wait_ns)
        return places

    def _give_back(self, unused: int) -> None:
        if unused and self._deliverer.pace is not None:
            self._deliverer.pace.give_back(unused)

    def _look_again_in(self, wait_ns: int) -> None:
        if wait_ns > 0 and self._again is None:
            loop = asyncio.get_running_loop()
            self._again = loop.call_later(wait_ns / 1e9, self._try_again)

    def _try_again(self) -> None:
        self._again = None
        self.dispatch()

    def _wish(self, places: int) -> PullWish:
        return PullWish(
            self._holder,
            frozenset([self._topic]),
            max_jobs=places,
            max_bytes=self._max_bytes,
            many_queues=True,
        )

    def _wait(self, wish: PullWish | None) -> None:
        """Wait for ready messages (*wish*), or for a free attempt (None). The lane counts the
        former as a waiting pull, which wakes ``dispatch`` and lets queues read on.
        """
        if wish is None and self._waits is not None:
            waited, self._waits = self._waits, None
            self._lane.pull_ends(waited, now_ns=now_ns())
        elif wish is not None and self._waits is None:
            self._waits = wish
            self._lane.pull_waits(wish)

    # ---- one attempt ----------------------------------------------------------------------------

    def _begin(self, pipeline: QueuePipeline, lease: Lease) -> None:
        self._numbers += 1
        number = self._numbers
        began_ns = now_ns()
        delivery = self._delivery(pipeline, lease, began_ns=began_ns)
        attempt = self._under_way[number] = _Attempt(pipeline, lease, began_ns, delivery)
        self._note("handle_start", attempt)
        name = f"deliver {self._lane.name} {self._topic} {pipeline.qid}/{lease.job.offset}"
        attempt.task = spawn(self._run(number, attempt), name=name)
        self._look_later(attempt)

    async def _run(self, number: int, attempt: _Attempt) -> None:
        found: Verdict | TargetDown | None
        try:
            found = await self._attempt(attempt)
        except asyncio.CancelledError:
            found = None  # cancelled, or the proxy ends: the next consumer repeats it
        del self._under_way[number]
        if attempt.timer is not None:
            attempt.timer.cancel()
        self._settle(attempt, found)
        self.dispatch()

    async def _attempt(self, attempt: _Attempt) -> Verdict | TargetDown:
        timeout_s = self.settings.timeout_s
        try:
            async with asyncio.timeout(timeout_s) as limit:
                return await self._deliverer.deliver(attempt.delivery)
        except TargetDown as error:
            return error
        except Exception as error:
            if isinstance(error, TimeoutError) and limit.expired():
                return failed(f"no answer within {timeout_s:g} s")
            return failed(f"{type(error).__name__}: {error}")

    def _delivery(self, pipeline: QueuePipeline, lease: Lease, *, began_ns: int) -> Delivery:
        job = lease.job
        stored = job.message
        if stored is None:
            raise RuntimeError(f"{job} is leased without its message")
        properties = stored.properties
        return Delivery(
            group=self._lane.name,
            topic=pipeline.topic,
            qid=pipeline.qid,
            queue=pipeline.origin.place,
            offset=origin_of(stored)[0] if pipeline.is_twin else job.offset,
            key=properties.get(KEYS),
            tag=properties.get(TAGS),
            body=lease.body,
            properties=user_properties(properties) or {},
            message_id=stored.message_id,
            attempt=job.attempts,
            order_key=job.key,
            deadline_ns=began_ns + int(self.settings.timeout_s * 1e9),
        )

    # ---- its lease ------------------------------------------------------------------------------

    def _look_later(self, attempt: _Attempt) -> None:
        """Schedule the next extension, after half of the remaining lease."""
        left_ns = attempt.lease.deadline_ns - self._cut_ns(attempt) - now_ns()
        delay_s = max(left_ns / 2, MS) / 1e9
        loop = asyncio.get_running_loop()
        attempt.timer = loop.call_later(delay_s, self._look, attempt)

    def _look(self, attempt: _Attempt) -> None:
        """Extend the lease; cancel the attempt if the lease has ended or is about to end."""
        pipeline, lease = attempt.pipeline, attempt.lease
        visibility_ms = pipeline.rules.visibility_ns // MS
        if attempt.alive:
            self._lane.extend(pipeline.topic, pipeline.qid, [lease.lease_id], ms=visibility_ms)
        if attempt.alive and now_ns() < lease.deadline_ns - self._cut_ns(attempt):
            self._look_later(attempt)
        elif attempt.task is not None:
            attempt.task.cancel()

    @staticmethod
    def _cut_ns(attempt: _Attempt) -> int:
        return min(_CUT_NS, attempt.pipeline.rules.visibility_ns // 10)

    # ---- its result -----------------------------------------------------------------------------

    def _settle(self, attempt: _Attempt, found: Verdict | TargetDown | None) -> None:
        """Settle the lease; unreached or cancelled attempts go back uncounted."""
        lease_id = attempt.lease.lease_id
        acked: list[LeaseId] = []
        nacked: list[Nack] = []
        released: list[LeaseId] = []
        if isinstance(found, Verdict):
            self._answered(attempt, found)
            if found.acked:
                acked = [lease_id]
            else:
                nack = Nack(lease_id, found.retry_after_ms, found.reject, found.reason[:MAX_TEXT])
                nacked = [nack]
        else:
            reason = "cut off" if found is None else str(found)
            self._note("handle_end", attempt, outcome="defer", reason=reason)
            if found is None:
                self.counts.cut += 1
            else:
                self._unreached(attempt, reason)
            released = [lease_id]
        if attempt.alive:
            queue = attempt.pipeline
            self._lane.settle(queue.topic, queue.qid, acked=acked, nacked=nacked, released=released)

    def _answered(self, attempt: _Attempt, verdict: Verdict) -> None:
        if self.pause.answered(began_ns=attempt.began_ns):
            _log.info("the target answers again", **self._names)
        self.counts.delivered += verdict.acked
        self.counts.failed += not verdict.acked
        outcome = "ok" if verdict.acked else ("reject" if verdict.reject else "retry")
        self._note("handle_end", attempt, outcome=outcome)
        if not verdict.acked:
            self._noisy.warning("failed", "delivery failed", **self._names, reason=verdict.reason)

    def _unreached(self, attempt: _Attempt, reason: str) -> None:
        self.counts.unreached += 1
        if self.pause.found_down(reason, began_ns=attempt.began_ns, now_ns=now_ns()):
            self._noisy.warning(
                "down",
                "the target is down: its messages wait until it answers",
                **self._names,
                reason=reason,
            )

    @property
    def _names(self) -> dict[str, str]:
        return {"group": self._lane.name, "topic": self._topic}

    def _note(self, event: str, attempt: _Attempt, **fields: object) -> None:
        """Log an event with the details that a thin client's handler gets."""
        history, delivery = self._lane.history, attempt.delivery
        if history.enabled:
            history.write(
                event,
                group=delivery.group,
                consumer=self._holder.client,
                topic=delivery.topic,
                queue=attempt.pipeline.place,
                offset=attempt.lease.job.offset,
                msg=delivery.message_id,
                order=key_text(delivery.order_key),
                attempt=delivery.attempt,
                lease=attempt.lease.lease_id,
                **fields,
            )

    # ---- shutdown -------------------------------------------------------------------------------

    def stop(self) -> None:
        """Take no more messages; attempts in progress continue."""
        self._stopped = True
        self._wait(None)
        if self._again is not None:
            self._again.cancel()
            self._again = None

    async def close(self, *, wait: bool) -> None:
        """Stop, then close the deliverer: at once, which cancels attempts in progress, or (with
        *wait*) after they have ended.
        """
        self.stop()
        tasks = [each.task for each in self._under_way.values() if each.task is not None]
        try:
            if tasks and wait:
                await asyncio.wait(tasks)
        finally:  # also when the wait is cancelled
            await cancel_and_wait(*tasks)
            await self._deliverer.close()
