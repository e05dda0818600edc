"""A sample replayed through the ordering core in virtual time: what an order key would bring. Pure.

Pipelines, chains, windows, spilling and the turns of queues are those that a proxy runs
(``proxy.core``); time is a number that events move on, and nothing sleeps. All messages are there
from the beginning: a backlog that one client with so many handlers works off. Around the core
stands what a proxy and its client add, as simply as it can be:

- A client has as many messages waiting as it has handlers, as thin clients do by default. Of a key
  it handles one message at a time, also where the key stands in several queues.
- Verdicts travel, and new messages come back, in one *round trip*; those that end meanwhile go
  together with the next one. So of one key a message begins a round trip after the one before it
  has ended, and in between its handler works on others.
- While messages wait at the client, more than half of what it lets wait, verdicts wait too, for 20
  ms at most, and go together: the rules S1, S2 and S7 of ``thin_client/session.py``.
- Reading takes no time. When a queue is read past a full window is decided as its reader does.
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
#: For how long thin clients keep verdicts back at most, by default.
_LINGER_NS = 20_000_000


@dataclass(frozen=True, slots=True)
class Plan:
    """What works off the sample. *prefetch*: messages that wait at the client; None: as many as it
    has handlers. *round_trip_ns*: from the end of a message to the start of the next of its key.
    """

    workers: int
    service: ServiceTimes
    round_trip_ns: int = 1_000_000
    prefetch: int | None = None

    @property
    def capacity(self) -> int:
        """Messages that the client holds at most."""
        return self.workers + self.waiting

    @property
    def waiting(self) -> int:
        """Of those, how many may wait for a handler."""
        return self.workers if self.prefetch is None else self.prefetch


@dataclass(slots=True)
class Played:
    """What came of one candidate; times are ns. Waits are one for each message, in no order."""

    candidate: str
    messages: int
    total_ns: int = 0
    work_ns: int = 0
    """What all handlers did together."""
    longest_chain: int = 0
    """The most messages of one key in one queue that were read and unfinished at a time."""
    dead_lettered: int = 0
    key_waits_ns: array[int] = None  # type: ignore[assignment]
    """From when a message was read until those of its key ahead of it were done with."""
    starts: list[tuple[int, int, int]] | None = None
    """Queue, offset in the sample and time of each start, if they are asked for."""

    def __post_init__(self) -> None:
        self.key_waits_ns = array("q")


def service_ns(sample: Sample, service: ServiceTimes) -> list[array[int]]:
    """How long each message takes, by queue: the same under all candidates, so made once."""
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
    """Work *sample* off with *candidate* as its order key, and all else as in *rules*. *lasts_ns*:
    what ``service_ns`` says of the plan's service; None: it is asked.

    O(messages x log workers). Raises ValueError if *candidate* is none of the sample's.
    """
    if candidate not in sample.candidates:
        raise ValueError(f"{candidate!r} is no candidate of this sample")
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
        self._judged: list[SimulatedQueue] = []  # with verdicts that wait to be sent
        self._travelling: list[tuple[SimulatedQueue, list[LeaseId], list[bytes | None]]] = []
        self._begun = 0
        self._exchange_ns = _NEVER  # when the round trip under way reaches the proxy
        self._send_ns = _NEVER  # when verdicts that are kept back are sent
        self._look_ns = _NEVER  # when queues are looked at once more
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
        """To the end of the last message."""
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
                if self._exchange_ns == _NEVER:  # else what is under way comes first
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
            raise RuntimeError(f"the simulation of {self.played.candidate} stands still")

    def _send_in_time(self) -> None:
        """At once if few messages wait here."""
        if len(self._client.ready) < self._low_water:
            self._send()
        elif self._send_ns == _NEVER:
            self._send_ns = self._now_ns + _LINGER_NS

    def _send(self) -> None:
        """The client sends what verdicts it has."""
        self._send_ns, self._exchange_ns = _NEVER, self._now_ns + self.plan.round_trip_ns
        self._travelling = travelling = []
        for queue in self._judged:
            travelling.append((queue, *queue.take_verdicts()))
        self._judged = []

    def _exchange(self) -> None:
        """Verdicts came; as many messages go back as the client has room for."""
        now_ns = self._now_ns
        for queue, acked, ended in self._travelling:
            effects = queue.pipeline.settle(acked=acked, now_ns=now_ns)
            open_, done_ns = queue.open, queue.done_ns
            for key in ended:
                if key is not None:
                    if (left := open_[key] - 1) > 0:
                        open_[key] = left
                        done_ns[key] = now_ns
                    else:  # whoever comes next waits for nobody
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
        """What the client has room for, and what has to be read first."""
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
        """Handlers have nothing to do: read on, past what nobody can have now if it is long."""
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
        """What there is room for; True if something was read."""
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
        """Spilled messages are read again, at once."""
        wanted = deque(refills)
        while wanted:
            refill = wanted.popleft()
            messages = [SimulatedMessage(offset, refill.key) for offset in refill.offsets]
            wanted += queue.pipeline.refilled(refill, _stored(messages)).refills


_CLIENT = Holder(1, "simulated")


@cache  # asked for at every pull
def _wish(room: int) -> PullWish:
    """What a client asks for that has room for so many messages."""
    return PullWish(_CLIENT, None, room, _FOR_EVER, many_queues=True)


def _simulated(rules: TopicRules, candidate: str) -> TopicRules:
    """*rules* for messages that have their key of the sample as their own; leases do not end, and
    no action is run.
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
    """A pipeline looks at no more of them than they have."""
    return cast("Sequence[StoredMessage]", messages)
