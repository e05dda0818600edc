"""Replays a sample through the ordering core in virtual time, to predict the effect of an order
key. Pure.

Pipelines, chains, windows, spilling and queue scheduling are the proxy's own (``proxy.core``), and
clients decide by the thin client's own session (``thin_client.session``); events advance the time,
nothing sleeps. All messages exist from the start: a backlog. The shells are simplified:

- A request takes half of a *round trip* to the proxy, and its answer the other half. For pulls
  that are answered at once, round trips may be drawn from those that clients have measured;
  otherwise all are equal. Measured ones vary mostly because a busy machine stops proxy and client
  for a moment. Then no handler ends either, so that no verdicts queue up as they would behind a
  settle that is late by itself, but waiting messages run out behind a late pull.
- A pull waits at the proxy until a message is ready, without a limit.
- Reading takes no time. Reads past a full window follow the rules of the queue's reader.
- Leases never expire.
"""

from __future__ import annotations

from array import array
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from heapq import heappop, heappush
from typing import Any, cast

from broker_core.names import QueueName, Topic
from broker_core.remoting.message import StoredMessage
from proxy.core.group.group_buffer import Batch, GroupBuffer, PullWish
from proxy.core.jobs.hand_out import HandOut
from proxy.core.jobs.refills import Refill
from proxy.core.jobs.starvation import PATIENCE_NS, READ_AHEAD
from proxy.core.jobs.window import Budget
from proxy.core.keys.ids import Epoch, LeaseId
from proxy.core.keys.kinds.registry import compile_order_key
from proxy.core.keys.order_key import QUEUE_CHAIN, MissingKey
from proxy.core.keys.topic_rules import TopicRules
from proxy.core.pipeline.queue_pipeline import QueuePipeline
from proxy.tuning.observed_times import ObservedTimes
from proxy.tuning.sample import Sample
from proxy.tuning.service_times import ServiceTimes
from proxy.tuning.simulated_client import Acked, SimulatedClient
from proxy.tuning.simulated_queue import SimulatedMessage, SimulatedQueue, measure_nothing
from thin_client.lease import Home, Lease
from thrift_idl import consumer

_FOR_EVER = 1 << 62
_READ_AT_ONCE = 1024
_MAX_BYTES = 1 << 62
#: Length of leases, ms: three years.
_LEASE_MS = 10**11
_TOPIC = Topic("sample")
_NOTHING = consumer.PullResponse(context=consumer.Context(), messages=[])


HandlingTimes = ServiceTimes | ObservedTimes


@dataclass(frozen=True, slots=True)
class Plan:
    """The simulated clients.

    Args:
        workers: concurrent handlers of all clients.
        service: handling times.
        round_trip_ns: from sending a request to its answer, on average.
        round_trips: distribution of this for pulls that are answered at once; None: always equal.
        prefetch: waiting messages at a client; None: one per handler.
        hand_out: the delivery policy of the group.
        clients: the number of clients, which share the handlers.
        max_leased: limit of leased messages of the group.
    """

    workers: int
    service: HandlingTimes
    round_trip_ns: int = 1_000_000
    prefetch: int | None = None
    hand_out: HandOut = HandOut.OLDEST
    clients: int = 1
    round_trips: ObservedTimes | None = None
    max_leased: int = _FOR_EVER

    def handlers(self) -> list[int]:
        """Return the number of handlers of each client, all of them at least 1."""
        clients = min(self.clients, self.workers)
        return [(self.workers + place) // clients for place in range(clients)]


@dataclass(slots=True)
class Played:
    """Result of one candidate; times in ns. There is one waiting time per message, unordered."""

    candidate: str
    messages: int
    total_ns: int = 0
    """From the start of the first message to the end of the last one."""
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


def service_ns(sample: Sample, service: HandlingTimes, candidate: str) -> list[array[int]]:
    """Return the handling time of each message, by queue: the same for all candidates, unless it
    was observed.
    """
    if isinstance(service, ObservedTimes):
        column = sample.candidates.index(candidate)
        return [
            service.in_chains_ns(place, each.keys[column])
            for place, each in enumerate(sample.queues.values())
        ]
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
        lasts_ns = service_ns(sample, plan.service, candidate)
    run = _Run(sample, candidate, rules, plan, lasts_ns)
    if starts:
        run.played.starts = []
    run.go()
    return run.played


@dataclass(slots=True, eq=False)
class _Pull:
    """A pull."""

    client: SimulatedClient
    wish: PullWish
    back_ns: int
    """Duration of its answer's way, if it is answered at once."""


class _Run:
    """The proxy, the events, and what is measured. It is the ``ProxyLink`` of its clients."""

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
        self.now_ns = 0
        self._buffer = GroupBuffer(Budget(plan.max_leased))
        self._buffer.hand_out_by(plan.hand_out)
        rules = _simulated(rules, candidate)
        self._queues = [
            self._queue(place, each.keys[column], lasts, rules)
            for place, (each, lasts) in enumerate(
                zip(sample.queues.values(), lasts_ns, strict=True)
            )
        ]
        self._unread = self._queues
        self._clients = [
            SimulatedClient(
                number,
                concurrency=handlers,
                prefetch=handlers if plan.prefetch is None else plan.prefetch,
                link=self,
            )
            for number, handlers in enumerate(plan.handlers())
        ]
        self._by_qid = {queue.pipeline.qid: queue for queue in self._queues}
        self._events: list[tuple[int, int, Callable[..., None], Any, Any]] = []
        self._numbers = 0
        self._out_ns = plan.round_trip_ns // 2
        self._back_ns = plan.round_trip_ns - self._out_ns
        self._trips_ns = None if plan.round_trips is None else plan.round_trips.draws_ns()
        self._waiting: deque[_Pull] = deque()
        self._looks = False  # queues will be checked again
        self._handled_before_ns: dict[bytes, int] = {}  # see _note_start
        self._began_ns: int | None = None

    def _queue(
        self, place: int, keys: list[bytes | None], lasts_ns: array[int], rules: TopicRules
    ) -> SimulatedQueue:
        pipeline = QueuePipeline(
            queue=QueueName(_TOPIC, "simulated", place),
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
        for client in self._clients:
            client.turn()
        events = self._events
        while events:
            self.now_ns, _, call, one, other = heappop(events)
            call(one, other)
        if any(queue.unread or queue.pipeline.jobs.unfinished for queue in self._queues):
            raise RuntimeError(f"the simulation of {self.played.candidate} made no progress")

    # ---- the clients' link -----------------------------------------------------------------------

    def pull(self, client: SimulatedClient, most: int, acked: Iterable[Acked]) -> None:
        """Send a pull to the proxy."""
        wish = PullWish(client.holder, None, most, _MAX_BYTES, many_queues=True)
        trip_ns = self.plan.round_trip_ns if self._trips_ns is None else next(self._trips_ns)
        out_ns = trip_ns // 2
        self._after(out_ns, self._pulled, _Pull(client, wish, trip_ns - out_ns), acked)

    def settle(self, client: SimulatedClient, home: Home, acked: Iterable[Acked]) -> None:
        """Send verdicts to the proxy."""
        self._after(self._out_ns, self._settled, (client, home), acked)

    def wake_at(self, at_ns: int, client: SimulatedClient) -> None:
        """Wake *client* at that time."""
        self._after(at_ns - self.now_ns, _turn, client, None)

    def handle(self, client: SimulatedClient, lease: Lease) -> None:
        """Let a handler take *lease*."""
        queue = self._by_qid[lease.queue]
        self._note_start(queue, lease)
        self._after(queue.service_ns[lease.offset], self._handled, client, lease)

    def _after(self, by_ns: int, call: Callable[..., None], one: Any, other: Any) -> None:
        self._numbers = number = self._numbers + 1
        heappush(self._events, (self.now_ns + by_ns, number, call, one, other))

    def _handled(self, client: SimulatedClient, lease: Lease) -> None:
        if self._began_ns is not None:
            self.played.total_ns = self.now_ns - self._began_ns
        if lease.successor is not None:
            assert lease.chain is not None  # others have no successor
            self._handled_before_ns[lease.chain] = self.now_ns
        client.handled(lease)

    def _note_start(self, queue: SimulatedQueue, lease: Lease) -> None:
        """Note a start, and how long the message waited behind others of its key: at the proxy, or
        at its client behind one of another queue.
        """
        played, offset, key = self.played, lease.offset, lease.chain
        if self._began_ns is None:
            self._began_ns = self.now_ns
        done_ns = queue.done_ns.get(key, 0)
        if self._handled_before_ns and key is not None:
            done_ns = max(done_ns, self._handled_before_ns.pop(key, 0))
        read_ns = queue.read_ns[offset]
        played.key_waits_ns.append(done_ns - read_ns if done_ns > read_ns else 0)
        if played.starts is not None:
            played.starts.append((queue.place, offset, self.now_ns - self._began_ns))

    # ---- the proxy -------------------------------------------------------------------------------

    def _pulled(self, pull: _Pull, acked: Iterable[Acked]) -> None:
        """Apply the verdicts of *pull*, then answer it or let it wait."""
        self._apply(acked)
        if not self._answer(pull, pull.back_ns):
            self._waiting.append(pull)
            self._look_if_starving()

    def _settled(self, request: tuple[SimulatedClient, Home], acked: Iterable[Acked]) -> None:
        """Apply verdicts, then answer."""
        self._apply(acked)
        client, home = request
        self._after(self._back_ns, _settled, client, home)
        self._look_if_starving()

    def _apply(self, acked: Iterable[Acked]) -> None:
        """Apply verdicts, queue by queue; each may wake a waiting pull."""
        for qid, lease_ids in acked:
            queue = self._by_qid[qid]
            effects = queue.pipeline.settle(
                acked=cast("Sequence[LeaseId]", lease_ids), now_ns=self.now_ns
            )
            self._note_finished(queue, effects.acked)
            if not effects.plain:
                self._refill(queue, effects.refills)
            if queue.finish(len(effects.acked)):
                self._read(queue)
            else:
                self._buffer.refresh(queue.pipeline)
            self._serve_waiting()

    def _note_finished(self, queue: SimulatedQueue, leases: Iterable[Any]) -> None:
        open_, done_ns, now_ns = queue.open, queue.done_ns, self.now_ns
        for lease in leases:
            key = lease.job.key
            if key is None:
                continue
            known = queue.at_client(key)
            if (left := open_[key] - 1) > 0:
                open_[key] = left
                done_ns[known] = now_ns
            else:  # no message of the key is left to wait for
                del open_[key]
                done_ns.pop(known, None)

    def _serve_waiting(self) -> None:
        waiting = self._waiting
        while waiting and self._buffer.has_ready and self._answer(waiting[0], self._back_ns):
            waiting.popleft()

    def _answer(self, pull: _Pull, back_ns: int) -> bool:
        """Answer *pull* with ready messages, *back_ns* from now; return False if there are none."""
        if not self._buffer.has_ready:
            return False
        batches = self._buffer.lease(pull.wish, now_ns=self.now_ns)
        if not batches:
            return False
        more = [self._response(batch) for batch in batches[1:]]
        first = self._response(batches[0], more or None)
        self._after(back_ns, _pulled, pull.client, first)
        return True

    def _response(
        self, batch: Batch, more: list[consumer.PullResponse] | None = None
    ) -> consumer.PullResponse:
        pipeline, leases = batch
        queue = self._by_qid[pipeline.qid]
        return consumer.PullResponse(
            context=queue.context,
            messages=[queue.to_client(lease) for lease in leases],  # type: ignore[misc]
            more=more,
            leaseMs=_LEASE_MS,
        )

    # ---- reading ---------------------------------------------------------------------------------

    def _look_if_starving(self) -> None:
        """Read on while a pull waits, and look again later."""
        if self._waiting and self._unread and not self._looks:
            self._look()

    def _look_again(self, _one: None, _other: None) -> None:
        self._looks = False
        self._look_if_starving()

    def _look(self) -> None:
        """Read on for waiting pulls, past blocked messages if there are many."""
        read = False
        self._unread = [queue for queue in self._unread if queue.unread]
        for queue in self._unread:
            pipeline = queue.pipeline
            starves = pipeline.ready < READ_AHEAD
            past = queue.patience.over(
                in_vain=starves and not pipeline.room(),
                oldest=pipeline.committable,
                position=pipeline.position,
                now_ns=self.now_ns,
            )
            read = self._read(queue, demand=past) or read
        if self._unread:
            self._looks = True
            self._after(PATIENCE_NS, self._look_again, None, None)
        if read:
            self._serve_waiting()

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
        queue.read_ns[first:until] = array("q", [self.now_ns]) * (until - first)
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


def _turn(client: SimulatedClient, _nothing: None) -> None:
    client.turn()


def _pulled(client: SimulatedClient, response: consumer.PullResponse) -> None:
    client.pulled(response)


def _settled(client: SimulatedClient, home: Home) -> None:
    client.settled(home)


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
