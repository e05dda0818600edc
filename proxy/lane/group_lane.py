"""One group on this proxy: the layer shared by upstream and downstream.

The lane executes the decisions of the pure core: it owns the group's buffer, keeps the timer that
ends leases and offers retries, writes histories, counts, and notifies its listener. It opens no
socket.
"""

from __future__ import annotations

import asyncio
from collections import Counter, defaultdict
from collections.abc import Callable, Collection, Container, Iterable, Sequence
from dataclasses import dataclass, field, replace

import structlog

from broker_core.batch_wait import BatchWait
from broker_core.clock import now_ns, wall_ms
from broker_core.names import Group, QueueName, Topic
from broker_core.remoting.message import StoredMessage
from proxy.core.group.group_buffer import Batch, GroupBuffer, PullWish
from proxy.core.group.group_figures import GroupFigures
from proxy.core.group.known_queue import KnownQueue, QueueOwner, Source, known_here
from proxy.core.jobs.chains import Job
from proxy.core.jobs.hand_out import HandOut
from proxy.core.jobs.measures import Histogram
from proxy.core.jobs.refills import Refill
from proxy.core.jobs.starvation import READ_AHEAD
from proxy.core.jobs.window import Budget
from proxy.core.keys.ids import LeaseId
from proxy.core.keys.topic_rules import TopicRules
from proxy.core.leases.verdicts import Nack, judged_ids
from proxy.core.pipeline.effects import Effects, PipelineStatistics
from proxy.core.pipeline.queue_pipeline import QueuePipeline
from proxy.history.record import History
from proxy.lane.counts import TopicCounts
from proxy.lane.due_queues import DueQueues
from proxy.lane.history import LaneHistory
from proxy.lane.listener import LaneListener
from proxy.lane.presence import Presence
from proxy.lane.rates import LaneRates
from proxy.lane.recent_changes import RecentChanges
from proxy.lane.topic_rules import rules_of
from proxy.lane.tracing import LaneTracing
from proxy.net.earliest_timer import EarliestTimer
from proxy.observe.logs import NoisyLog
from proxy.settings.groups import GroupSettings, TopicSettings

#: Messages expected during a wait for further ones that make it worth while: an answer costs about
#: as much as four messages.
_WORTH = 4
#: A timer that is later than that was late because the process stood still.
_STALLED_NS = 1_000_000_000
#: Time after which the timer of a queue with a bug is tried again.
_AGAIN_NS = 1_000_000_000

_noisy = NoisyLog(structlog.get_logger("lane"))


@dataclass(slots=True, eq=False)
class GroupLane:
    """The shell around one ``GroupBuffer``. Belongs to the event loop's thread."""

    settings: GroupSettings
    memory: Budget
    history: History
    listener: LaneListener[GroupLane]
    open_connections: Container[int]
    counts: dict[Topic, TopicCounts] = field(default_factory=lambda: defaultdict(TopicCounts))
    take_overs: Histogram = field(default_factory=Histogram)  # from locks to first deliveries
    batch_wait_ms: int = 0  # see BatchWait
    auto_created: bool = False  # created automatically: further topics may join it
    tracing: LaneTracing | None = None
    # reason and time of the next attempt; kept by upstream
    refused: dict[QueueName, tuple[str, int]] = field(default_factory=dict)
    # ms since 1970 since which topics were missing; kept by upstream
    awaited: dict[Topic, int] = field(default_factory=dict)
    # time since the lock is denied; kept by upstream
    denied: dict[QueueName, int] = field(default_factory=dict)
    #: The proxy's own deliveries go before clients next time.
    own_first: bool = False
    #: The group's name.
    name: Group = field(init=False)
    #: Whether each client gets all messages, and whether the proxy delivers topics itself: as in
    #: the settings, which take longer to ask.
    is_broadcast: bool = field(init=False)
    #: The settings of its topics, by name.
    topics: dict[str, TopicSettings] = field(default_factory=dict, init=False)
    delivers: bool = field(init=False)
    presence: Presence = field(init=False)
    leases_of_group: Budget = field(init=False)  # live leases over all topics, and their limit
    rates: LaneRates = field(init=False)
    buffer: GroupBuffer = field(init=False)
    #: What its clients report of their handlers.
    figures: GroupFigures = field(init=False)
    _notes: LaneHistory = field(init=False)
    # By topic and qid: the suffix of another period finds nothing.
    _owned: dict[tuple[str, str], QueuePipeline] = field(default_factory=dict)
    _queues_of: Counter[Topic] = field(default_factory=Counter)  # owned ones and twins
    _timer: EarliestTimer = field(init=False)
    _due: DueQueues = field(default_factory=DueQueues)
    _batch_wait: BatchWait = field(init=False)
    _batch_timer: EarliestTimer = field(init=False)
    #: Queues owned now, and the last figures of released ones until others are known.
    owned_queues: set[QueueName] = field(default_factory=set)
    released: dict[QueueName, KnownQueue] = field(default_factory=dict)
    #: Queues that changed lately; periodic work leaves out the others for a while.
    recent: RecentChanges = field(default_factory=RecentChanges)

    def __post_init__(self) -> None:
        self.name = Group(self.settings.name)
        self._notes = LaneHistory(self.history, self.name)
        self._follow(self.settings)
        self.leases_of_group = Budget(self.settings.max_leased_jobs)
        self.presence = Presence(self.leases_of_group)
        self.figures = GroupFigures(self.open_connections)
        self._timer = EarliestTimer(self._on_timer)
        self._batch_wait = BatchWait(self.batch_wait_ms, worth=_WORTH)
        self._batch_timer = EarliestTimer(self._wake)
        self.rates = LaneRates(self.name, self.history, wake=self._wake)
        self.rates.follow(self.settings)
        self.buffer = GroupBuffer(self.leases_of_group, self.rates.gate)
        self.buffer.hand_out_by(HandOut(self.settings.hand_out))

    # ---- demand ---------------------------------------------------------------------------------

    def seen(self) -> None:
        """Note a client that extended a lease."""
        if self.presence.seen(now_ns()):
            self.listener.on_wanted(self)

    def change_sides(self) -> None:
        """Let the side that was last go first next time; caller: ``Sides``."""
        self.own_first = not self.own_first

    def pulled(self, topics: Collection[Topic] | None, *, now_ns: int) -> None:
        """Note a pull for *topics* (None: any)."""
        if self.presence.pulled(topics, now_ns):
            self.listener.on_wanted(self)

    def leased_queues(self) -> set[QueueName]:
        """Return the owned queues with live leases, parked copies included. O(leases)."""
        return {each.origin.queue for each in self.buffer if each.leases}

    def starves(self, pipeline: QueuePipeline, *, stuck: bool = False) -> bool:
        """Return True if *pipeline* has too few ready messages for clients that want its topic.

        The minimum is ``READ_AHEAD`` while a pull waits, and 1 after a recent pull. Such a client
        may get messages of other queues, so a queue that is *stuck* at its oldest message needs
        ``READ_AHEAD`` as well.
        """
        starvation, topic = self.presence.starvation, pipeline.topic
        waiting = starvation.waiting(topic)
        enough = READ_AHEAD if waiting or stuck else 1
        return pipeline.ready < enough and (waiting or starvation.asked_recently(topic, now_ns()))

    # ---- ownership; caller: upstream ------------------------------------------------------------

    def add(self, pipeline: QueuePipeline) -> None:
        """Add an acquired queue."""
        self.buffer.add(pipeline)
        self._queues_of[pipeline.topic] += 1
        self._due.add(pipeline)
        self.rates.gate.add(pipeline, now_ns=now_ns())
        self._owned[pipeline.topic, pipeline.qid] = pipeline
        if not pipeline.is_twin:
            self.owned_queues.add(pipeline.queue)
            self.released.pop(pipeline.queue, None)
        self.recent.note(pipeline, now_ns())
        pipeline.measured_by(self.counts[pipeline.topic].measures)
        self._apply(pipeline, pipeline.on_time(now_ns=now_ns()))

    def remove(self, pipeline: QueuePipeline) -> None:
        """Remove a queue that was lost or handed over."""
        if not pipeline.is_twin:
            self._release(pipeline)
        if pipeline.twin is not None:
            self.remove(pipeline.twin)
        if self.tracing is not None:
            self.tracing.lost(pipeline, list(pipeline.leases))
        if self.buffer.find(pipeline.queue) is pipeline:
            self._queues_of[pipeline.topic] -= 1
        self.buffer.remove(pipeline)
        self._due.remove(pipeline)
        self.recent.forget(pipeline)
        self.rates.gate.remove(pipeline, now_ns=now_ns())
        place = (pipeline.topic, pipeline.qid)
        if self._owned.get(place) is pipeline:
            del self._owned[place]
        self._notes.forget(pipeline)
        if pipeline.topic not in self.topics:
            self._forget(pipeline.topic)
        self.listener.on_settled()
        self._wake()  # the leases that ended with it may have filled the group's limit

    def _release(self, pipeline: QueuePipeline) -> None:
        """Keep the last figures of *pipeline*: the next owner, if any, is not known yet."""
        self.owned_queues.discard(pipeline.queue)
        self.released[pipeline.queue] = replace(
            known_here(pipeline, pipeline.statistics(), wall_ms=wall_ms()),
            owned=QueueOwner.UNKNOWN,
            source=Source.RELEASED,
        )

    def looked_at(self, queue: QueueName, *, before_ms: int) -> None:
        """Forget the last figures of *queue* if it was released before *before_ms*, a wall time: a
        look that began then knows more.
        """
        known = self.released.get(queue)
        if known is not None and (known.at_ms or 0) <= before_ms:
            del self.released[queue]

    def renewed(self, pipeline: QueuePipeline, trusted_until_ns: int) -> None:
        """Record a renewal of the orderly lock that leaves no doubt about the time before."""
        now = now_ns()
        lapsed = pipeline.doubtful or pipeline.trusted_until_ns <= now
        if lapsed:
            self.rates.gate.before_change(now)
        pipeline.trust_until(trusted_until_ns)
        if lapsed:
            self.rates.gate.changed(pipeline, now)
        if pipeline.twin is not None:
            self.renewed(pipeline.twin, trusted_until_ns)
        if lapsed:
            self.recent.note(pipeline, now)
            self._after(pipeline)
            if pipeline.twin is not None:
                self._after(pipeline.twin)  # it may deliver while its origin may

    def on_messages(
        self, pipeline: QueuePipeline, messages: Collection[StoredMessage], *, next_offset: int
    ) -> None:
        """Take messages read from an owned queue.

        Under load, pulls with several free places wait a little for more. Everything else wakes
        them at once, so no successor of an acked message waits.
        """
        pipeline.at(now := now_ns())
        position = pipeline.position
        effects = pipeline.on_messages(messages, next_offset=next_offset)
        self._notes.read(pipeline, now_ns=now)
        counts = self.counts[pipeline.topic]
        if effects.missing_keys or (messages and counts.keyless_in_a_row):  # rare
            admitted = range(position, pipeline.position)
            taken = sum(each.queue_offset in admitted for each in messages)
            dropped = 0 if effects.plain else len(effects.filtered_by)
            counts.keys_read(taken - dropped, missing=effects.missing_keys)
        is_idle = position == next_offset == pipeline.position and pipeline not in self.recent
        # Messages make nothing due earlier, except where a redrive has a rate.
        self._execute(pipeline, effects, arms=pipeline.is_twin)
        self._batch_wait.came(len(messages), now)
        if self._batch_timer.is_set:
            pass  # it waits for these, too
        elif self._batch_wait.is_busy and (
            wait_ns := self._batch_wait.begin(
                now, ready=pipeline.ready, room=self.presence.free_places
            )
        ):
            self.counts[pipeline.topic].batch_waited("answer")
            self._batch_timer.set(now + wait_ns)
        else:
            self._wake()
        if is_idle:  # the answer to a pull that waited in vain
            self.recent.forget(pipeline)

    def refilled(
        self, pipeline: QueuePipeline, refill: Refill, messages: Iterable[StoredMessage]
    ) -> None:
        """Take spilled messages that were read again; do nothing if the queue was lost."""
        if not pipeline.closed:
            pipeline.at(now := now_ns())
            effects = pipeline.refilled(refill, messages)
            self._notes.read(pipeline, now_ns=now)
            self._apply(pipeline, effects)

    def passed_over(self, pipeline: QueuePipeline, messages: int) -> None:
        """Count messages left out by the broker because of their tags."""
        self.counts[pipeline.topic].left_out(messages)

    def deleted_unread(self, pipeline: QueuePipeline, offsets: range, *, lost: int) -> None:
        """Record that retention deleted unread messages at *offsets* of an owned queue.

        *lost* of them had neither finished nor been spilled.
        """
        self.counts[pipeline.topic].deleted(lost)
        self._notes.deleted(pipeline, offsets)

    def dead_lettered(self, pipeline: QueuePipeline, job: Job) -> None:
        """Finish *job*, whose dead letter is stored; do nothing if the queue was lost."""
        if not pipeline.closed:
            self.counts[pipeline.topic].dead_letter(job, pipeline.rules.retry)
            pipeline.at(now := now_ns())
            self._apply(pipeline, pipeline.dead_lettered(job), at_ns=now)

    def created_on_the_fly(self) -> None:
        """Allow further topics to join: the group was created without settings."""
        self.auto_created = True

    def add_topics(self, added: Iterable[TopicSettings]) -> None:
        """Add topics to the group."""
        topics = (*self.settings.topics, *added)
        self._follow(self.settings.model_copy(update={"topics": topics}))
        self.listener.on_wanted(self)

    def set_up(self, settings: GroupSettings) -> None:
        """Apply settings that now name the group, and let no further topics join."""
        self.auto_created = False
        self.apply(settings)

    def apply(self, settings: GroupSettings) -> None:
        """Apply other settings of the same group, without losing a lease, chain or lock.

        New topics are joined, removed ones are handed over; another order key follows soon.
        """
        before = self.topics
        self._follow(settings)
        for topic, counts in self.counts.items():
            if topic in before and topic in self.topics:
                counts.follow(before[topic], self.topics[topic])
        self.rates.follow(settings)
        self.buffer.hand_out_by(HandOut(settings.hand_out))
        other_limit = self.leases_of_group.limit != settings.max_leased_jobs
        self.leases_of_group.resize(settings.max_leased_jobs)
        for pipeline in list(self.buffer):
            if not self.apply_to(pipeline) and other_limit:
                self.record_rules(pipeline)
        self.listener.on_wanted(self)
        self.listener.on_settled()
        self._wake()

    def apply_to(self, pipeline: QueuePipeline) -> bool:
        """Apply the current settings to *pipeline*; return False if it has them or its topic was
        removed.
        """
        topic = self.topics.get(pipeline.topic)
        if topic is None or pipeline.closed or pipeline.has_rules(rules := self.rules_of(topic)):
            return False
        effects = pipeline.change_rules(rules)
        self.record_rules(pipeline)
        self._apply(pipeline, effects)
        return True

    def rules_of(self, topic: TopicSettings) -> TopicRules:
        """Return the compiled settings of *topic*, one of the group's. A group created
        automatically keeps the order keys of a group of that name which had settings.
        """
        return rules_of(topic, has_default_key=self.auto_created)

    def record_rules(self, pipeline: QueuePipeline) -> None:
        """Record the changed rules of *pipeline* in the history."""
        self.recent.note(pipeline, now_ns())
        self._notes.rules(pipeline, max_leased=self.leases_of_group.limit)

    def recorded(self, pipeline: QueuePipeline, *, at: int, made_ns: int) -> None:
        """Record that an ownership record made at *made_ns* is stored at offset *at*."""
        self._notes.recorded(pipeline, at=at, made_ns=made_ns)

    def topic_recreated(self, pipeline: QueuePipeline) -> None:
        """Note that *pipeline* is the first of its queue after the topic was created again."""
        pipeline.began_recreated()
        self.counts[pipeline.topic].taken_over(recreated=True)

    def records_damaged(self, pipeline: QueuePipeline) -> None:
        """Note that damaged ownership records lack state that the owner of *pipeline* needs."""
        pipeline.began_with_damage()
        self.counts[pipeline.topic].taken_over(damaged=True)

    def near_retention(self, pipeline: QueuePipeline) -> None:
        """Count a failing or parked key of *pipeline* that is near the end of retention."""
        self.counts[pipeline.topic].neared_retention()

    def apply_effects(self, pipeline: QueuePipeline, effects: Effects) -> None:
        """Apply the *effects* of an action of upstream on *pipeline*."""
        if not pipeline.closed:
            self._apply(pipeline, effects, at_ns=now_ns())

    # ---- clients; caller: downstream ------------------------------------------------------------

    def lease(self, wish: PullWish, *, now_ns: int) -> list[Batch]:
        """Return the answer to a pull; empty if no message is ready for it."""
        if self.presence.starvation.asks(wish.topics, now_ns):
            self.listener.on_settled()  # it may resume paused reading
        batches = self.buffer.lease(wish, now_ns=now_ns)
        if self.buffer.unreported:
            for pipeline, effects in self.buffer.take_unreported():
                self._execute(pipeline, effects, at_ns=now_ns)
            # More may be ready, also for this pull, but its caller has no answer yet.
            asyncio.get_running_loop().call_soon(self._wake)
        for pipeline, leases in batches:
            self.recent.note(pipeline, now_ns)
            self.counts[pipeline.topic].count_delivered(len(leases))
            if pipeline.is_twin:
                self._arm(pipeline)  # a redrive may have a rate
            elif self._due.note(pipeline, due_ns := leases[0].deadline_ns):  # that of all leases
                self._timer.set(due_ns)
        if not batches and not self.buffer.rates.open:
            self.rates.wait(self.buffer.limited_ns(wish.topics, now_ns=now_ns))
        if self.history.enabled:
            self._notes.delivered(batches, at_ns=now_ns)
        if self.tracing is not None:
            self.tracing.delivered(batches)
        return batches

    def pull_waits(self, wish: PullWish) -> None:
        """Note a pull, for which ``lease`` has found nothing, that begins to wait for messages."""
        self.presence.waits(wish.topics, 1, places=wish.max_jobs)
        if self.history.enabled:
            self._notes.pull("pull_wait", wish)

    def pull_ends(self, wish: PullWish, *, now_ns: int) -> None:
        """Note a pull that stops waiting: it has messages, timed out, or was lost."""
        self.presence.waits(wish.topics, -1, places=wish.max_jobs)
        self.presence.starvation.asks(wish.topics, now_ns)
        if self.history.enabled:
            self._notes.pull("pull_end", wish)

    def replayed(self, batches: Iterable[Batch]) -> None:
        """Record a repeated answer to a pull; its leases stay unchanged."""
        self._notes.replayed(batches)

    def await_replay(self, batches: Iterable[Batch], *, connection: int) -> None:
        """Keep the leases of an answer never written to *connection*; it may be repeated until they
        end.
        """
        for lease in (lease for batch in batches for lease in batch.leases):
            # otherwise it went to another connection meanwhile
            if lease.holder.connection == connection:
                lease.not_sent()

    def return_unsent(self, batches: Iterable[Batch]) -> None:
        """Return the leases of an answer that was never written; they do not count as
        deliveries.
        """
        for pipeline, leases in batches:
            if not pipeline.closed:
                live = pipeline.return_unsent(leases)
                self._notes.unsent(pipeline, live)
                if self.tracing is not None:
                    self.tracing.ended(pipeline, live, "unsent")
                self._apply(pipeline, pipeline.on_time(now_ns=now_ns()))  # a redrive may stop
                self.listener.on_settled()

    def settle(
        self,
        topic: str,
        qid: str,
        *,
        acked: Sequence[LeaseId] = (),
        nacked: Sequence[Nack] = (),
        released: Sequence[LeaseId] = (),
        at_ns: int = 0,
    ) -> Sequence[int]:
        """Apply verdicts of a client on leases of one queue, which came at *at_ns* (0: now); return
        the ids of those that were no longer held.
        """
        now = at_ns or now_ns()
        pipeline = self._judged(topic, qid, now)
        if pipeline is None:
            return self._fenced_elsewhere(topic, qid, judged_ids(acked, nacked, released))
        if not (acked or nacked or released):
            return ()
        effects = pipeline.settle(acked=acked, nacked=nacked, released=released, now_ns=now)
        self._execute(pipeline, effects, nacks=nacked, at_ns=now)
        self._wake()
        return () if effects.plain else effects.fenced

    def settle_by_offset(
        self,
        topic: str,
        qid: str,
        *,
        success: Sequence[int] = (),
        failed: Sequence[int] = (),
        connection: int,
        at_ns: int = 0,
    ) -> Sequence[int]:
        """Apply verdicts by offset, of a client without lease ids, which came at *at_ns* (0: now);
        return the offsets that were no longer leased on *connection*.
        """
        now = at_ns or now_ns()
        pipeline = self._judged(topic, qid, now)
        if pipeline is None:
            return self._fenced_elsewhere(topic, qid, [*success, *failed])
        if not (success or failed):
            return ()
        effects = pipeline.settle_by_offset(
            success=success,
            failed=failed,
            connection=connection,
            open_connections=self.open_connections,
            now_ns=now,
        )
        self._apply(pipeline, effects, at_ns=now)
        return effects.fenced

    def extend(self, topic: str, qid: str, lease_ids: Sequence[LeaseId], *, ms: int) -> list[int]:
        """Extend leases; return the ids of those that were no longer held."""
        pipeline = self._owned.get((topic, qid))
        if pipeline is None or pipeline.has_ended:
            return list(lease_ids)
        at_ns = now_ns()
        self.recent.note(pipeline, at_ns)
        not_held: list[int] = [*pipeline.extend(lease_ids, ms=ms, now_ns=at_ns)]
        refused = set(not_held)
        held = [lease_id for lease_id in lease_ids if lease_id not in refused]
        self._notes.extended(pipeline, held, ms=ms, at_ns=at_ns)
        return not_held

    def statistics(self) -> list[PipelineStatistics]:
        """Return one frozen record per owned queue."""
        return [pipeline.statistics() for pipeline in self.buffer]

    def close(self) -> None:
        """Stop the timers. The pipelines must have been handed over."""
        self.rates.close()
        self._timer.stop()
        self._batch_timer.stop()

    # ---- internals ------------------------------------------------------------------------------

    def _follow(self, settings: GroupSettings) -> None:
        self.settings = settings
        self.is_broadcast, self.delivers = settings.mode == "broadcast", settings.delivers
        before, self.topics = self.topics, {topic.name: topic for topic in settings.topics}
        if self.history.enabled and self.topics.keys() != before.keys():
            self._notes.consumes(self.topics)

    def _forget(self, topic: Topic) -> None:
        """Forget a *topic* that the group no longer consumes, once its last queue is removed."""
        if not self._queues_of[topic]:
            del self._queues_of[topic]
            self.counts.pop(topic, None)
            self.presence.forget(topic)
            self.buffer.forget(topic)

    def _judged(self, topic: str, qid: str, now_ns: int) -> QueuePipeline | None:
        """Note a client with verdicts; return the queue whose verdicts count, or None."""
        if now_ns - self._timer.due_ns > _STALLED_NS:
            self._after_stall(now_ns)
        pipeline = self._owned.get((topic, qid))
        if pipeline is not None and pipeline.has_ended:
            pipeline = None
        if self.presence.seen(now_ns, None if pipeline is None else pipeline.topic):
            self.listener.on_wanted(self)
        return pipeline

    def _fenced_elsewhere(self, topic: str, qid: str, numbers: Sequence[int]) -> Sequence[int]:
        """Void verdicts on an ownership period that is not, or no longer, this proxy's."""
        if topic in self.topics:
            self.counts[Topic(topic)].voided(len(numbers))
        self._notes.fenced(topic, qid, numbers)
        return numbers

    def _apply(
        self,
        pipeline: QueuePipeline,
        effects: Effects,
        *,
        nacks: Sequence[Nack] = (),
        at_ns: int = 0,
    ) -> None:
        """Execute *effects* and wake waiting pulls; *nacks* caused them, *at_ns* is when they were
        applied.
        """
        self._execute(pipeline, effects, nacks=nacks, at_ns=at_ns)
        self._wake()

    def _execute(
        self,
        pipeline: QueuePipeline,
        effects: Effects,
        *,
        nacks: Sequence[Nack] = (),
        at_ns: int = 0,
        arms: bool = True,
    ) -> None:
        """Execute *effects*, without waking waiting pulls. *arms*: something may be due earlier."""
        self.recent.note(pipeline, at_ns or now_ns())
        counts = self.counts[pipeline.topic]
        counts.add(effects)
        if effects.missing_keys:
            counts.without_key(effects.missing_keys, pipeline.keys.record.rule.missing)
        if self.history.enabled:
            self._notes.effects(pipeline, effects, nacks=nacks, at_ns=at_ns)
        if self.tracing is not None:
            self.tracing.effects(pipeline, effects)
        if effects.parking:
            self.listener.on_parking(self, pipeline)
        self.buffer.refresh(pipeline)
        if effects.plain and effects.finished:  # acks make nothing due earlier
            self.listener.on_settled()
            return
        if arms or not effects.plain:
            self._arm(pipeline)
        if not effects.plain:
            self._execute_rest(pipeline, effects)

    def _execute_rest(self, pipeline: QueuePipeline, effects: Effects) -> None:
        if effects.expired:
            now, connected = now_ns(), self.open_connections
            self.counts[pipeline.topic].lease_expired(now)
            here = [lease for lease in effects.expired if lease.holder.connection in connected]
            self.buffer.expired(pipeline.topic, here, now_ns=now)
        for job in effects.dead_letters:
            self.listener.on_dead_letter(self, pipeline, job)
        for refill in effects.refills:
            self.listener.on_refill(self, pipeline, refill)
        ended = effects.nacked or effects.released or effects.expired or effects.unsent
        ended = ended or effects.stalled
        if effects.finished or ended or effects.revoked:
            self.listener.on_settled()

    def _after(self, pipeline: QueuePipeline) -> None:
        self.buffer.refresh(pipeline)
        self._arm(pipeline)
        self._wake()

    def _wake(self) -> None:
        if self.presence.waiting_pulls and self.buffer.has_ready:
            self.listener.on_ready(self)

    def _arm(self, pipeline: QueuePipeline) -> None:
        """Set the timer no later than the pipeline's next due time."""
        due_ns = pipeline.next_due_ns(now_ns())
        if due_ns is not None and self._due.note(pipeline, due_ns):
            self._timer.set(due_ns)

    def _after_stall(self, now_ns: int) -> None:
        """End the leases whose deadline passed while the process stood still. Clients could neither
        ack nor extend them, so their deliveries do not count.
        """
        self._timer.stop()
        self._due.clear()
        self._look_at(self.buffer, lambda each: each.after_stall(now_ns=now_ns), at_ns=now_ns)

    def _on_timer(self) -> None:
        """Look at the queues that are due. The others may be thousands, and at rest."""
        if (now := now_ns()) - self._timer.due_ns > _STALLED_NS:
            self._after_stall(now)
        due = dict.fromkeys(self._due.take(now))
        twins = dict.fromkeys(each.twin for each in due if each.twin is not None)
        self._look_at(due | twins, lambda each: each.on_time(now_ns=now_ns()))
        if (next_ns := self._due.first_ns) is not None:
            self._timer.set(next_ns)

    def _look_at(
        self,
        pipelines: Iterable[QueuePipeline],
        step: Callable[[QueuePipeline], Effects],
        *,
        at_ns: int = 0,
    ) -> None:
        """Apply *step* to each of *pipelines*. A bug with one is logged and must not stop the
        timers of the others; this one is looked at again later.
        """
        for pipeline in list(pipelines):
            place = str(pipeline.queue)
            confined = _noisy.confined(
                place, "a queue's timer failed", group=self.name, queue=place
            )
            with confined:
                if not pipeline.closed:
                    self._apply(pipeline, step(pipeline), at_ns=at_ns)
                    self._arm(pipeline)
            if confined.failed and self._due.note(pipeline, due_ns := now_ns() + _AGAIN_NS):
                self._timer.set(due_ns)
