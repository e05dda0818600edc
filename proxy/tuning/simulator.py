"""Replays a sample through the ordering core in virtual time, to predict the effect of an order
key. Pure.

Pipelines, chains, windows, spilling and queue scheduling are the proxy's own (``proxy.core``);
events advance the time, nothing sleeps. All messages exist from the start: a backlog processed by
one client. Proxy and client around the core are simplified:

- A client holds as many waiting messages as it has handlers, the thin clients' default. It handles
  one message of a key at a time, even if the key is in several queues.
- Verdicts and new messages take one *round trip*; verdicts that arise meanwhile go with the next
  one. So a key's next message begins one round trip after the previous one has ended, and its
  handler works on other keys meanwhile.
- While more than half of the allowed waiting messages are at the client, verdicts are delayed by up
  to 20 ms and sent together: the rules S1, S2 and S7 of ``thin_client/session.py``.
- Reading takes no time. Reads past a full window follow the rules of the queue's reader.
"""

from __future__ import annotations

from array import array
from collections import deque
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cache
from heapq import heappop, heappush
from typing import cast

from broker_core.names import QueueName, Topic
from broker_core.remoting.message import StoredMessage
from proxy.core.group.group_buffer import GroupBuffer, PullWish
from proxy.core.jobs.hand_out import HandOut
from proxy.core.jobs.refills import Refill
from proxy.core.jobs.starvation import PATIENCE_NS, READ_AHEAD
from proxy.core.jobs.window import Budget
from proxy.core.keys.ids import Epoch, LeaseId
from proxy.core.keys.kinds.registry import compile_order_key
from proxy.core.keys.order_key import QUEUE_CHAIN, MissingKey
from proxy.core.keys.topic_rules import TopicRules
from proxy.core.leases.lease_book import Holder, Lease
from proxy.core.pipeline.queue_pipeline import QueuePipeline
from proxy.tuning.sample import Sample
from proxy.tuning.service_times import ServiceTimes
from proxy.tuning.simulated_client import SimulatedClient
from proxy.tuning.simulated_queue import SimulatedMessage, SimulatedQueue, measure_nothing

_FOR_EVER = 1 << 62
_NEVER = 1 << 62
_READ_AT_ONCE = 1024
#: Longest delay of verdicts in thin clients, by default.
_LINGER_NS = 20_000_000


@dataclass(frozen=True, slots=True)
class Plan:
    """The simulated client. *prefetch*: waiting messages at the client; None: one per handler.
    *round_trip_ns*: from the end of a message to the start of the next of its key. *hand_out*: the
    delivery policy of its group.
    """

    workers: int
    service: ServiceTimes
    round_trip_ns: int = 1_000_000
    prefetch: int | None = None
    hand_out: HandOut = HandOut.OLDEST

    @property
    def capacity(self) -> int:
        """Maximum number of messages at the client."""
        return self.workers + self.waiting

    @property
    def waiting(self) -> int:
        """Number of these that may wait for a handler."""
        return self.workers if self.prefetch is None else self.prefetch


@dataclass(slots=True)
class Played:
    """Result of one candidate; times in ns. There is one waiting time per message, unordered."""

    candidate: str
    messages: int
    total_ns: int = 0
    work_ns: int = 0
    """Total time of all handlers."""
    longest_chain: int = 0
    """Maximum number of messages of one key in one queue that were read and unfinished at once."""
    dead_lettered: int = 0
    key_waits_ns: array[int] = None  # type: ignore[assignment]
    """Time from reading a message until all earlier messages of its key were finished."""
    starts: list[tuple[int, int, int]] | None = None
    """Queue, offset in the sample and time of each start, if requested."""

    def __post_init__(self) -> None:
        self.key_waits_ns = array("q")


def service_ns(sample: Sample, service: ServiceTimes) -> list[array[int]]:
    """Return the handling time of each message, by queue: the same for all candidates."""
    return [
        service.all_ns(place, each.offsets) for place, each in enumerate(sample.queues.values())
    ]


def play(
    sample: Sample,
    candidate: str,
    rules: TopicRules,
    plan: Plan,
    *,
    lasts_ns: Sequence[array[int]] | None = None,
    starts: bool = False,
) -> Played:
    """Process *sample* with *candidate* as its order key and otherwise *rules*.

    *lasts_ns* are the times of ``service_ns`` for the plan; None: they are computed. O(messages x
    log workers). Raises ValueError if *candidate* is not one of the sample's.
    """
    if candidate not in sample.candidates:
        raise ValueError(f"{candidate!r} is not a candidate of this sample")
    if lasts_ns is None:
        lasts_ns = service_ns(sample, plan.service)
    run = _Run(sample, candidate, rules, plan, lasts_ns)
    if starts:
        run.played.starts = []
    run.go()
    return run.played


class _Run:
    def __init__(
        self,
        sample: Sample,
        candidate: str,
        rules: TopicRules,
        plan: Plan,
        lasts_ns: Sequence[array[int]],
    ) -> None:
        column = sample.candidates.index(candidate)
        self.plan = plan
        self.played = Played(candidate, len(sample))
        self._buffer = GroupBuffer(Budget(_FOR_EVER))
        self._buffer.hand_out_by(plan.hand_out)
        rules = _simulated(rules, candidate)
        self._queues = [
            self._queue(place, each.keys[column], lasts, rules)
            for place, (each, lasts) in enumerate(
                zip(sample.queues.values(), lasts_ns, strict=True)
            )
        ]
        self._unread = self._queues
        self._client: SimulatedClient[SimulatedQueue] = SimulatedClient(
            workers=plan.workers, capacity=plan.capacity
        )
        self._low_water = max(1, (plan.waiting + 1) // 2)
        self._of = {queue.pipeline: queue for queue in self._queues}
        self._ends: list[tuple[int, int, SimulatedQueue, Lease]] = []  # of messages with handlers
        self._judged: list[SimulatedQueue] = []  # with verdicts to be sent
        self._travelling: list[tuple[SimulatedQueue, list[LeaseId], list[bytes | None]]] = []
        self._begun = 0
        self._exchange_ns = _NEVER  # when the current round trip reaches the proxy
        self._send_ns = _NEVER  # when delayed verdicts are sent
        self._look_ns = _NEVER  # when queues are checked again
        self._now_ns = 0

    def _queue(
        self, place: int, keys: list[bytes | None], lasts_ns: array[int], rules: TopicRules
    ) -> SimulatedQueue:
        pipeline = QueuePipeline(
            queue=QueueName(Topic("sample"), "simulated", place),
            epoch=Epoch(1),
            period=1,
            rules=rules,
            start_offset=0,
            committed=0,
            trusted_until_ns=_FOR_EVER,
            memory=Budget(_FOR_EVER),
            leases_of_group=self._buffer.leases,
        )
        measure_nothing(pipeline)
        self._buffer.add(pipeline)
        chained = rules.missing_key is MissingKey.BY_QUEUE
        self.played.work_ns += sum(lasts_ns)
        return SimulatedQueue(place, pipeline, keys, lasts_ns, chained=chained)

    def go(self) -> None:
        """Run until the last message has ended."""
        for queue in self._queues:
            self._read(queue)
        self._take()
        ends, client = self._ends, self._client
        while True:
            end_ns = ends[0][0] if ends else _NEVER
            due_ns = self._exchange_ns
            if self._send_ns < due_ns:
                due_ns = self._send_ns
            if self._look_ns < due_ns:
                due_ns = self._look_ns
            if end_ns <= due_ns:
                if end_ns == _NEVER:
                    break
                self._now_ns, _, queue, lease = heappop(ends)
                if not queue.acked:
                    self._judged.append(queue)
                key = lease.job.key
                queue.acked.append(lease.lease_id)
                queue.ended.append(key)
                if (following := client.handled(key)) is not None:
                    following.done_ns[key] = end_ns
                if client.ready:
                    self._hand_over()
                if self._exchange_ns == _NEVER:  # otherwise the current round trip comes first
                    self._send_in_time()
            elif due_ns == self._exchange_ns:
                self._now_ns, self._exchange_ns = self._exchange_ns, _NEVER
                self._exchange()
                if self._judged:
                    self._send_in_time()
            elif due_ns == self._send_ns:
                self._now_ns = due_ns
                self._send()
            else:
                self._now_ns, self._look_ns = self._look_ns, _NEVER
                self._take()
        self.played.total_ns = self._now_ns
        if any(queue.unread or queue.pipeline.jobs.unfinished for queue in self._queues):
            raise RuntimeError(f"the simulation of {self.played.candidate} made no progress")

    def _send_in_time(self) -> None:
        """Send verdicts at once if few messages wait here, else delay them."""
        if len(self._client.ready) < self._low_water:
            self._send()
        elif self._send_ns == _NEVER:
            self._send_ns = self._now_ns + _LINGER_NS

    def _send(self) -> None:
        """Send all pending verdicts."""
        self._send_ns, self._exchange_ns = _NEVER, self._now_ns + self.plan.round_trip_ns
        self._travelling = travelling = []
        for queue in self._judged:
            travelling.append((queue, *queue.take_verdicts()))
        self._judged = []

    def _exchange(self) -> None:
        """Apply verdicts, then send as many messages as the client has room for."""
        now_ns = self._now_ns
        for queue, acked, ended in self._travelling:
            effects = queue.pipeline.settle(acked=acked, now_ns=now_ns)
            open_, done_ns = queue.open, queue.done_ns
            for key in ended:
                if key is not None:
                    if (left := open_[key] - 1) > 0:
                        open_[key] = left
                        done_ns[key] = now_ns
                    else:  # no message of the key is left to wait for
                        del open_[key]
                        done_ns.pop(key, None)
            if not effects.plain:
                self._refill(queue, effects.refills)
            if queue.finish(len(acked)):
                self._read(queue)
            else:
                self._buffer.refresh(queue.pipeline)
        self._take()

    def _take(self) -> None:
        """Lease messages up to the client's room, reading first where necessary."""
        self._lease()
        client = self._client
        if self._unread and self._look_ns == _NEVER and client.idle and not client.ready:
            self._look()

    def _lease(self) -> None:
        client, buffer = self._client, self._buffer
        while (room := client.room) > 0 and buffer.has_ready:
            for pipeline, leases in buffer.lease(_wish(room), now_ns=self._now_ns):
                client.add(self._of[pipeline], leases)
            if client.idle:
                self._hand_over()

    def _hand_over(self) -> None:
        ends, now_ns, begun = self._ends, self._now_ns, self._begun
        waited, starts = self.played.key_waits_ns.append, self.played.starts
        for queue, lease in self._client.hand_over():
            job = lease.job
            offset = job.offset
            read_ns, done_ns = queue.read_ns[offset], queue.done_ns.get(job.key, 0)
            waited(done_ns - read_ns if done_ns > read_ns else 0)
            if starts is not None:
                starts.append((queue.place, offset, now_ns))
            begun += 1
            heappush(ends, (now_ns + queue.service_ns[offset], begun, queue, lease))
        self._begun = begun

    # ---- reading ---------------------------------------------------------------------------------

    def _look(self) -> None:
        """Read on for idle handlers, past blocked messages if there are many."""
        read = False
        self._unread = [queue for queue in self._unread if queue.unread]
        for queue in self._unread:
            pipeline = queue.pipeline
            starves = pipeline.ready < READ_AHEAD
            past = queue.patience.over(
                in_vain=starves and not pipeline.room(),
                oldest=pipeline.committable,
                position=pipeline.position,
                now_ns=self._now_ns,
            )
            read = self._read(queue, demand=past) or read
            self._look_ns = self._now_ns + PATIENCE_NS
        if read:
            self._lease()

    def _read(self, queue: SimulatedQueue, *, demand: bool = False) -> bool:
        """Read as far as there is room; return True if something was read."""
        before = position = queue.pipeline.position
        end = len(queue.keys)
        while position < end and (room := queue.pipeline.room(demand=demand)):
            until = min(end, position + min(room, _READ_AT_ONCE))
            self._admit(queue, position, until)
            if queue.pipeline.position == position:
                break
            position = queue.pipeline.position
        if queue.pipeline.refills_due:
            self._refill(queue, queue.pipeline.take_refills().refills)
        self._buffer.refresh(queue.pipeline)
        return position > before

    def _admit(self, queue: SimulatedQueue, first: int, until: int) -> None:
        keys = queue.keys[first:until]
        messages = [SimulatedMessage(offset, key) for offset, key in enumerate(keys, first)]
        effects = queue.pipeline.on_messages(_stored(messages), next_offset=until)
        until = queue.pipeline.position
        queue.read_ns[first:until] = array("q", [self._now_ns]) * (until - first)
        open_, longest = queue.open, self.played.longest_chain
        for key in keys[: until - first]:
            if key is None:
                if not queue.chained:
                    continue
                key = QUEUE_CHAIN
            count = open_[key] = open_.get(key, 0) + 1
            if count > longest:
                longest = count
        self.played.longest_chain = longest
        if not effects.plain:
            self._refill(queue, effects.refills)
            for job in effects.dead_letters:
                self.played.dead_lettered += 1
                queue.pipeline.dead_lettered(job)

    def _refill(self, queue: SimulatedQueue, refills: Iterable[Refill]) -> None:
        """Read spilled messages again, immediately."""
        wanted = deque(refills)
        while wanted:
            refill = wanted.popleft()
            messages = [SimulatedMessage(offset, refill.key) for offset in refill.offsets]
            wanted += queue.pipeline.refilled(refill, _stored(messages)).refills


_CLIENT = Holder(1, "simulated")


@cache  # called for every pull
def _wish(room: int) -> PullWish:
    """Return the request of a client with that room."""
    return PullWish(_CLIENT, None, room, _FOR_EVER, many_queues=True)


def _simulated(rules: TopicRules, candidate: str) -> TopicRules:
    """Return *rules* for messages whose key is that of the sample; leases never end and there are
    no actions.
    """
    rule = compile_order_key(candidate)
    return TopicRules(
        rule if rule.is_fixed else compile_order_key("KEY"),
        missing_key=rules.missing_key,
        visibility_ns=_FOR_EVER // 2,
        max_pull_batch=rules.max_pull_batch,
        max_jobs=rules.max_jobs,
        max_jobs_per_key=rules.max_jobs_per_key,
    )


def _stored(messages: Sequence[SimulatedMessage]) -> Sequence[StoredMessage]:
    """Return *messages* as stored messages: a pipeline uses no other attributes."""
    return cast("Sequence[StoredMessage]", messages)
