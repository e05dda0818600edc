"""One owned queue: the complete state in the proxy. Events in, effects out; pure.

A pipeline lives as long as one ownership period. Losing the orderly lock drops the whole object, so
nothing of an old period can leak into a new one.

It owns and coordinates its components, each with one reason to change:

- ``jobs`` (``proxy.core.jobs``): chains, spilled chains, window and offsets;
- ``leases`` (``proxy.core.leases``): grants, runs, deadlines, retry times and failures;
- ``keys``: the order-key rule of messages, and changes of it;
- ``pauses``: paused keys, and pauses of the whole queue;
- ``exhausted``: the strategy for jobs that used up their deliveries (dead letter, park or block);
- intake (messages to jobs), dispatch (ready jobs to leases), settlement (ends of deliveries),
  operator actions, observations.

Other code changes a pipeline only by its methods. Each event that may have effects returns them;
the shell executes them.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Container, Iterable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from types import MappingProxyType
from typing import TypedDict

from broker_core.names import QueueName, Topic
from broker_core.remoting.message import StoredMessage
from proxy.actions.document import Subject
from proxy.core.jobs.chains import RUNNING, Job
from proxy.core.jobs.hand_out import HandOut
from proxy.core.jobs.jobs import Jobs
from proxy.core.jobs.measures import Measures
from proxy.core.jobs.refills import Refill
from proxy.core.jobs.tracked_dict import TrackedDict
from proxy.core.jobs.window import Budget, FlowWindow
from proxy.core.keys.ids import Epoch, LeaseId, qid_text
from proxy.core.keys.order_key import chain_at_clients, key_text
from proxy.core.keys.retry_policy import MS
from proxy.core.keys.topic_rules import TopicRules
from proxy.core.leases.failures import Failures
from proxy.core.leases.lease_book import Holder, Lease, LeaseBook
from proxy.core.leases.verdicts import Nack, Outcome, Skip
from proxy.core.pipeline.dispatch import Dispatch
from proxy.core.pipeline.effects import Effects, PipelineStatistics
from proxy.core.pipeline.exhausted import DeadLetters, OnExhausted
from proxy.core.pipeline.intake import Intake
from proxy.core.pipeline.key_switch import KeySwitch
from proxy.core.pipeline.observations import Observations
from proxy.core.pipeline.operator_actions import OperatorActions
from proxy.core.pipeline.pauses import Pauses
from proxy.core.pipeline.recent_keys import HotKeys, KeyEvents
from proxy.core.pipeline.settlement import Settlement
from proxy.core.records.parked_key import TWIN_MARK, ParkedKey
from proxy.core.records.paused_key import EVERYTHING, PausedKey
from proxy.core.records.record import Anchor, Snapshot, if_above
from proxy.core.records.replay import LastOwner
from proxy.errors import WrongState

_NO_PAUSES: TrackedDict[bytes | None, PausedKey] = TrackedDict()  # for parked twins
_NO_LIVES: Mapping[int, int] = MappingProxyType({})

#: Creates the strategy for given-up jobs from jobs, leases, parked keys and epoch of a queue.
MakeExhausted = Callable[[Jobs, LeaseBook, TrackedDict[bytes, ParkedKey], Epoch], OnExhausted]

#: Creates the intake from the other components.
MakeIntake = Callable[
    [TopicRules, Jobs, LeaseBook, KeySwitch, Pauses, OnExhausted, Settlement, OperatorActions],
    Intake,
]


class Period(TypedDict, total=False):
    """Common arguments of all kinds of ``QueuePipeline``."""

    queue: QueueName
    epoch: Epoch
    period: int
    start_offset: int
    committed: int
    trusted_until_ns: int
    memory: Budget
    leases_of_group: Budget
    hold_until_ns: int
    now_ns: int
    life: int | None
    former: Mapping[int, int]


def _first_lease(now_ns: int) -> int:
    """Return the id of the first lease of a period. It must not repeat an earlier id even if
    ownership records are lost and periods are counted again, so it counts microseconds: leases are
    never granted faster. Clients may store ids as doubles.
    """
    return 1 + (now_ns >> 10) % (1 << 50)


def _dead_letters(
    _jobs: Jobs, _leases: LeaseBook, _parked: TrackedDict[bytes, ParkedKey], _epoch: Epoch
) -> OnExhausted:
    return DeadLetters()


def _subject(intake: Intake, topic: Topic, place: str, job: Job) -> Subject:
    """Return *job* as actions see it; *topic* and *place* are those of its own queue."""
    if (message := job.message) is None:
        raise RuntimeError(f"{job} is about to be delivered without its message")
    return Subject(message, topic, place, intake.origin_offset(job, message), message.body)


class QueuePipeline:
    """The jobs, leases and order key of one queue in one ownership period. All times are ns.

    Callers: the group lane and its buffer (deliveries, verdicts, time), the queue reader (reading),
    ownership, recorder and committer, and the operator's verbs.
    """

    #: The last message that was read, if the broker does not report lives of topics.
    anchor: Anchor | None = None
    #: Whether spilled offsets have other messages by now, if the broker does not report lives.
    life_in_doubt = False

    def __init__(
        self,
        *,
        queue: QueueName,
        epoch: Epoch,
        period: int,
        rules: TopicRules,
        start_offset: int,
        committed: int,
        trusted_until_ns: int,
        memory: Budget,
        leases_of_group: Budget,
        hold_until_ns: int = 0,
        resume: Snapshot | None = None,
        now_ns: int = 0,
        twin_of: QueuePipeline | None = None,
        life: int | None = None,
        former: Mapping[int, int] = _NO_LIVES,
        exhausted: MakeExhausted = _dead_letters,
        intake: MakeIntake = Intake,
    ) -> None:
        """Create the pipeline of an ownership period.

        Nothing is delivered before *hold_until_ns*. *resume* is the state in the ownership records
        at *now_ns*. *twin_of*: the queue whose parked messages *queue* holds. *life*: the
        incarnation of the topic to which all offsets belong, None if the broker has none. *former*:
        incarnations that it continues, with the offset up to which it does.
        """
        self.queue, self.epoch, self.life = queue, epoch, life
        self._former = former
        self.topic, self.place = (
            queue.topic,
            queue.qid,
        )  # names of the queue for clients and histories
        if twin_of is not None:
            self.topic, self.place = twin_of.topic, f"{twin_of.place}{TWIN_MARK}"
        self.qid = qid_text(self.place, period)
        self._twin_of = twin_of
        #: Whether it has the parked copies of another pipeline's queue.
        self.is_twin = twin_of is not None
        #: The pipeline of its parked messages, if any.
        self.twin: QueuePipeline | None = None
        self.rules = rules
        self._own_lease_ns = rules.visibility_ns  # as recorded at the start of the period
        #: Longest lease according to the records: the next owner waits no longer.
        self.longest_lease_ns = rules.visibility_ns
        # Fields, because each delivery needs both, and a property costs a call.
        #: Length of a lease: that of the rules, once recorded. The records of a queue also cover
        #: its twin.
        self.visibility_ns = rules.visibility_ns
        self.limit_leases()
        #: Order key at clients of messages that have none of their own.
        self.chain_at_clients = chain_at_clients(self.origin.queue.qid)

        self.jobs = Jobs(
            start_offset,
            window=FlowWindow(rules.max_jobs, memory),
            max_jobs_per_key=rules.max_jobs_per_key,
            resume=resume,
            spill_all=self.is_twin,
        )
        attempts = {} if resume is None else resume.attempts
        begin = self.jobs.committable  # perhaps above the state: an administrator moved the group
        self.leases = LeaseBook(
            leases_of_group,
            memory,
            Failures(rules.retry, {at: count for at, count in attempts.items() if at >= begin}),
            first_id=_first_lease(now_ns),
            held_back_ns={o: now_ns + ms * MS for o, ms in resume.leases.items()} if resume else {},
        )
        #: Parked keys in its records, or on their way; in a twin, how far each key was read.
        self.parked: TrackedDict[bytes, ParkedKey] = TrackedDict(
            () if resume is None else resume.parked
        )
        self.keys = KeySwitch(
            self.jobs,
            rules,
            None if resume is None else resume.keys,
            self.parked,
            is_twin=self.is_twin,
        )
        paused: TrackedDict[bytes | None, PausedKey] = TrackedDict(
            () if resume is None else resume.paused
        )
        #: Paused keys; a twin shares those of its queue.
        self.pauses: Pauses = Pauses(paused if twin_of is None else twin_of.paused)
        self._moved_from = None if resume is None else resume.moved_from
        self._recorded, self._unrecorded = self.jobs.committable, False
        self.exhausted: OnExhausted = exhausted(self.jobs, self.leases, self.parked, epoch)
        self.observed = Observations(self.jobs.chains)
        self.settlement = Settlement(
            self.jobs, self.leases, self.pauses, self.exhausted, self.observed
        )
        self.operator = OperatorActions(self.jobs, self.leases, self.exhausted, self.settlement)
        self.intake = intake(
            rules,
            self.jobs,
            self.leases,
            self.keys,
            self.pauses,
            self.exhausted,
            self.settlement,
            self.operator,
        )
        self._dispatch = Dispatch(
            rules,
            self.jobs,
            self.leases,
            self.pauses,
            self.exhausted,
            self.settlement,
            self.observed,
            subject_of=partial(_subject, self.intake, self.topic, self.origin.place),
        )
        # Used with every event.
        self._ready_queues, self._stale = self._dispatch.ready_queues, self.jobs.chains.stale
        #: Effects for ``take_unreported``. Read-only for others.
        self.unreported = self._dispatch.unreported
        self._now = self.observed.now

        # Ownership.
        self.trusted_until_ns, self.hold_until_ns = trusted_until_ns, hold_until_ns
        self.doubtful = False  # the lock may be lost: deliver nothing until that is resolved
        self.has_ended = False  # the last record is made, or about to be: verdicts no longer count
        self.draining = False
        self.extensions_refused = False
        self.closed = False
        # Reported by the shell; see the methods of ownership and commits.
        self.committed, self.committed_ns = committed, now_ns
        self.end_offset = max(start_offset, committed)
        self.near_retention: frozenset[bytes] = frozenset()
        self.records_damaged = self.recreated = False
        self.record_trouble = self.read_trouble = ""
        self.damaged, self.damaged_until = "", 0  # about the messages at the read position
        # The same about messages to be read again, by offset.
        self._damaged_again: dict[int, tuple[str, int, Refill]] = {}
        self._not_whole = (
            0,
            -1,
        )  # messages given up without a complete copy, and the last one's offset

    @property
    def origin(self) -> QueuePipeline:
        """The pipeline of the queue itself: for a parked twin that of its queue."""
        return self._twin_of or self

    def continues(self, life: int | None, offset: int) -> bool:
        """Return whether the message that had *offset* in *life* of the topic is there now; True if
        either life is unknown.
        """
        if life is None or self.life is None or life == self.life:
            return True
        return offset < self._former.get(life, 0)

    def state_of_twin(self, last: LastOwner) -> LastOwner:
        """Return the part of *last*, of the records of its parked twin, that counts in its life."""
        return last.of_origin(self.life, former=self._former)

    # ---- observing ------------------------------------------------------------------------------

    def at(self, now_ns: int) -> None:
        """Set the time of events that do not contain one, for measures and events of keys. No
        decision depends on it. Caller: group lane.
        """
        self._now.set(now_ns)

    def measured_by(self, measures: Measures, *, hot: HotKeys | None = None) -> None:
        """Add further measures to *measures*, and count deliveries of keys in *hot*. Caller: group
        lane.
        """
        self.observed.measure_by(measures, hot=hot)

    @property
    def hot(self) -> HotKeys:
        """Keys with a large share of the deliveries."""
        return self.observed.hot

    @property
    def events(self) -> KeyEvents:
        """The last events of keys."""
        return self.observed.events

    # ---- handing out; caller: group buffer ------------------------------------------------------

    def share_work(self, work: Budget) -> None:
        """Count the work of actions in *work*, which queues of the group share in one pull."""
        self._dispatch.share_work(work)

    def hand_out_by(self, policy: HandOut) -> None:
        """Choose among ready jobs by *policy* from the next delivery on. O(ready)."""
        self.jobs.hand_out_by(policy)

    @property
    def longest_ready(self) -> int:
        """Number of jobs of the longest chain with a ready job; 0 if none has several, or the
        policy is ``oldest``.
        """
        return self.jobs.chains.longest

    def ready_from(self, length: int, *, most: int) -> int:
        """Return the number of chains of at least *length* jobs with a ready job, counted up to
        *most* or slightly more; 0 if the policy is ``oldest``.
        """
        return self.jobs.chains.ready_from(length, most=most)

    def may_hand_out(self, now_ns: int) -> bool:
        """Return False while draining, in doubt, paused or taking over, or without trust."""
        return (
            not (self.draining or self.doubtful or self.closed or EVERYTHING in self.pauses.keys)
            and self.hold_until_ns <= now_ns < self.trusted_until_ns
        )

    @property
    def ready(self) -> int:
        """Number of jobs available to ``lease`` if delivery is allowed; jobs of recently paused
        keys may be among them.
        """
        if EVERYTHING in self.pauses.keys:
            return 0
        offered, main, reactivated = self._ready_queues  # called for every message
        if self._stale:
            return len(offered) + self.jobs.chains.ready
        return len(offered) + len(main) + len(reactivated)

    def has_ready(self) -> bool:
        """Return whether ``ready`` is not 0."""
        if EVERYTHING in self.pauses.keys:
            return False
        offered, main, reactivated = self._ready_queues
        if self._stale:
            return bool(offered or self.jobs.chains.ready)
        return bool(main or reactivated or offered)

    @property
    def unordered_ready(self) -> int:
        """Number of ``ready`` jobs without a key. O(ready)."""
        ready = (self.leases.offered, self.jobs.chains.ready_jobs())
        return sum(job.key is None for jobs in ready for job in jobs)

    def lease(self, *, max_jobs: int, max_bytes: int, now_ns: int, holder: Holder) -> list[Lease]:
        """Return up to *max_jobs* leases for *holder*, with distinct keys; the last one may exceed
        *max_bytes*.

        Effects on other jobs, which actions ended or an earlier owner gave up, are in
        ``take_unreported``.

        Affects: chains, leases; through actions also tracker and window.
        """
        self._now.set(now_ns)
        if not self.may_hand_out(now_ns):
            return []
        return self._dispatch.lease(
            max_jobs, max_bytes, now_ns, holder, now_ns + self.visibility_ns
        )

    def lengthen(
        self, firsts: Collection[Lease], *, max_run: int, max_jobs: int, max_bytes: int
    ) -> list[Lease]:
        """Return the leases *firsts* with up to *max_jobs* followers in runs: see ``Dispatch``."""
        return self._dispatch.lengthen(
            firsts, max_run=max_run, max_jobs=max_jobs, max_bytes=max_bytes
        )

    def take_unreported(self) -> Effects | None:
        """Return, once, the effects on jobs that ``lease`` did not return; None without any.

        Affects: spilled chains.
        """
        if self.unreported.pending is None:
            return None
        return self._concluded(self.unreported.take())

    # ---- verdicts and time; caller: group lane --------------------------------------------------

    def settle(
        self,
        *,
        acked: Iterable[LeaseId] = (),
        nacked: Iterable[Nack] = (),
        released: Iterable[LeaseId] = (),
        now_ns: int,
    ) -> Effects:
        """Apply verdicts by lease id: see ``Settlement``.

        Affects: chains (successors become ready), leases, tracker, window.
        """
        return self._concluded(self.settlement.settle(acked, nacked, released, now_ns))

    def settle_by_offset(
        self,
        *,
        success: Iterable[int],
        failed: Iterable[int],
        connection: int,
        open_connections: Container[int],
        now_ns: int,
    ) -> Effects:
        """Apply verdicts of a client without lease ids: see ``Settlement``."""
        effects = self.settlement.settle_by_offset(
            success,
            failed,
            connection=connection,
            open_connections=open_connections,
            now_ns=now_ns,
        )
        return self._concluded(effects)

    def extend(self, lease_ids: Iterable[LeaseId], *, ms: int, now_ns: int) -> list[LeaseId]:
        """Extend leases to *ms* from now, at most one visibility timeout; return the ids not held.

        Extends nothing once trust has lapsed: the next owner does not wait for leases granted
        later.
        """
        if self.extensions_refused or now_ns >= self.trusted_until_ns:
            return list(lease_ids)
        deadline_ns = now_ns + min(ms * MS, self.visibility_ns)
        return self.leases.extend_all(lease_ids, deadline_ns, now_ns=now_ns)

    def return_unsent(self, leases: Collection[Lease]) -> list[Lease]:
        """Offer the jobs of *leases* again, uncounted, because their answer was never written;
        return the live ones.
        """
        return self.settlement.return_unsent(leases)

    def dead_lettered(self, job: Job) -> Effects:
        """Finish *job*, whose copy is stored, and let its key continue, unless closed."""
        effects = Effects()
        if self.closed:
            return effects
        self.exhausted.stored(job)
        self.settlement.finish(job, Outcome.DEAD_LETTERED, effects)
        return self._concluded(effects)

    def is_dead_lettering(self, job: Job) -> bool:
        """Return True while a copy of *job* is being stored."""
        return job.offset in self.exhausted.under_way

    def on_time(self, *, now_ns: int) -> Effects:
        """End leases past their deadline; offer jobs whose retry is due."""
        return self._concluded(self.settlement.on_time(now_ns))

    def after_stall(self, *, now_ns: int) -> Effects:
        """End leases whose deadline passed while the process stood still, without counting their
        deliveries.
        """
        return self._concluded(self.settlement.after_stall(now_ns))

    def revoke(self, lease_id: LeaseId, *, now_ns: int) -> Effects:
        """End a lease and its run as if the deadline had passed: later verdicts on it are fenced.
        If it is not live, the only effect is ``fenced``.
        """
        return self._concluded(self.settlement.revoke(lease_id, now_ns))

    def next_due_ns(self, now_ns: int) -> int | None:
        """Return when ``on_time`` is due next, or a take-over may begin to deliver."""
        due_ns = self.leases.next_due_ns()
        if self.hold_until_ns <= now_ns:
            return due_ns
        return self.hold_until_ns if due_ns is None else min(due_ns, self.hold_until_ns)

    def lease_times(self, now_ns: int) -> dict[int, int]:
        """Return for how many ms from now clients may hold jobs across a hand-over, by offset:
        leases of this period that can no longer be extended, and those of earlier owners.
        """
        return self.leases.times_left_ms(now_ns, with_live=self.extensions_refused)

    def _concluded(self, effects: Effects) -> Effects:
        """Add refills, events of held keys and progress of an order-key change to *effects*."""
        jobs = self.jobs
        if not (jobs.residency.refills or jobs.change is not None or jobs.chains.held_keys):
            return effects  # the usual case: nothing to read again, no held key, no other order key
        self.exhausted.conclude(effects)
        if self.keys.settle():
            effects.note_keys_changed()
        if refills := jobs.residency.take_refills():
            effects.refills.extend(refills)
        return effects

    # ---- operator actions; caller: the operator's verbs -----------------------------------------

    @property
    def paused(self) -> TrackedDict[bytes | None, PausedKey]:
        """Paused keys, or ``EVERYTHING``. Read-only for others."""
        return self.pauses.keys

    def pause(self, key: bytes | None, how: PausedKey) -> bool:
        """Stop delivering *key* (or ``EVERYTHING``), with or without jobs; return False if it is
        paused.
        """
        return self.pauses.pause(key, how)

    def resume(self, key: bytes | None) -> PausedKey | None:
        """Resume *key*; call ``resumed`` for its jobs. Return its pause, None without one."""
        return self.pauses.resume(key)

    def resumed(self, key: bytes | None) -> Effects:
        """Offer the job set aside for *key* again if the key is no longer paused."""
        job = self.pauses.take(key)
        if job is not None and job.state is RUNNING:
            self.settlement.offer(job)
        return self._concluded(Effects())

    def first_stored(self, key: bytes) -> int | None:
        """Return the first unfinished offset of *key* if no job of it is in memory or being read,
        as for parked copies; None otherwise.
        """
        return self.jobs.by_key.first_stored(key)

    def skip_stored(self, why: Skip) -> Effects:
        """Finish the job of ``first_stored``, which was not read since."""
        effects = Effects()
        self.operator.skip_stored(why, effects)
        return self._concluded(effects)

    def head(self, key: bytes) -> Job | None:
        """Return the first unfinished job of *key*; None if it has none.

        Raise WrongState while its message is being read again, or if that is damaged.
        """
        if (first := self.jobs.by_key.lowest(key)) in self._damaged_again:
            raise WrongState(
                f"the first message of key {key_text(key)!r}, at offset {first} of queue"
                f" {self.place}, is damaged: restore it, or skip it with orderlane offsets skip"
            )
        return self.operator.head(key)

    def skip(self, job: Job, why: Skip) -> Effects:
        """Finish *job*, the ``head`` of its key, unhandled; its key continues without it. Raise
        WrongState if a client has it, or may have it.
        """
        return self._concluded(self.operator.skip(job, why))

    def retry(self, job: Job, *, reset_attempts: bool) -> int:
        """Take *job*, the ``head`` of its key, out of its wait for a retry, for ``offer_again``.
        *reset_attempts*: reset the count of its deliveries. Return their former number.

        Raise WrongState if it does not wait for a retry, or a client has it.
        """
        return self.operator.retry(job, reset_attempts=reset_attempts)

    def count_attempts(self, job: Job, attempts: int) -> None:
        """Set the count of deliveries of *job*."""
        self.operator.count_attempts(job, attempts)

    def offer_again(self, job: Job) -> Effects:
        """Make *job*, which ``retry`` took, available to clients."""
        self.operator.offer_again(job)
        return self._concluded(Effects())

    # ---- the order key; caller: key changes -----------------------------------------------------

    @property
    def key_change_due(self) -> bool:
        """True if the rules ask for another order key, and the change may be planned now."""
        return not (self.draining or self.closed) and self.keys.is_due(self.rules)

    @property
    def key_change_in_words(self) -> str:
        """State of a change of the order key; "" if there is none."""
        return self.keys.in_words(self.rules)

    def plan_key_change(self) -> None:
        """Choose the offset from which the new rule applies: see ``KeySwitch``."""
        self.keys.plan(self.rules, copied_below=self.copied_below)

    @property
    def copied_below(self) -> int:
        """Offset above all messages with parked copies, including those of an earlier owner that
        was killed before it recorded its read position.
        """
        return 0

    def key_change_recorded(self) -> Effects:
        """Continue reading, because a record contains the switch. Affects: chains."""
        self.keys.planned_is_recorded()
        if self.closed:
            return Effects()
        self.keys.begin()
        return self._concluded(Effects().note_keys_changed())

    def older_counted(self, asked: Sequence[int], messages: Mapping[int, StoredMessage]) -> Effects:
        """Count older messages, which were read again, under their new keys."""
        self.keys.older_counted(asked, messages)
        return self._concluded(Effects())

    def older_copies_read(self, found: Mapping[bytes, Collection[bytes]]) -> Effects:
        """Take the new keys of older parked copies, by parked key."""
        self.keys.older_copies_read(found)
        return self._concluded(Effects())

    # ---- other rules; caller: group lane --------------------------------------------------------

    def has_rules(self, rules: TopicRules) -> bool:
        """Return whether *rules*, this very object, were given to the pipeline last."""
        return rules is self.rules

    def change_rules(self, rules: TopicRules) -> Effects:
        """Apply *rules*; another order key only after ``plan_key_change``.

        Limits and tags apply to messages read from now on, retries and policies from the next
        failure on, the length of leases from the next delivery on; a longer one once it is recorded
        (``raised_lease_ms``). Leases and waiting retries stay unchanged.

        Affects: window, spilled chains.
        """
        self.rules = rules
        self.limit_leases()
        self.leases.failures.change_policy(rules.retry)
        self._dispatch.change_rules(rules)
        self.intake.change_rules(rules)
        self.jobs.residency.change_limits(
            max_jobs=rules.max_jobs, max_jobs_per_key=rules.max_jobs_per_key
        )
        return self._concluded(Effects())

    @property
    def raised_lease_ms(self) -> int:
        """Longest lease to record if longer than in the ``own``; 0 otherwise."""
        longest_ns = max(self.longest_lease_ns, self.rules.visibility_ns)
        return longest_ns // MS if longest_ns > self._own_lease_ns and not self.is_twin else 0

    def raised_lease_recorded(self, ms: int) -> None:
        """Note that leases of up to *ms* are recorded."""
        self.longest_lease_ns = max(self.longest_lease_ns, ms * MS)
        for each in (self, self.twin):
            if each is not None:
                each.limit_leases()

    def limit_leases(self) -> None:
        """Set the length of new leases from the rules and the records. Caller: its own queue's."""
        self.visibility_ns = min(self.rules.visibility_ns, self.origin.longest_lease_ns)

    # ---- reading; caller: queue reader ---------------------------------------------------------

    @property
    def position(self) -> int:
        """Next offset to read."""
        return self.jobs.position

    def room(self, *, demand: bool = False) -> int:
        """Return how many more messages may be read now; 0 pauses reading.

        *demand*: clients wait, so reading continues past jobs that cannot be delivered now.
        """
        if self.draining or self.closed or self.keys.planned:
            return 0
        return self.intake.room(ready=self.ready, demand=demand)

    @property
    def offers(self) -> bool:
        """True if a job is ready, even if the whole queue is paused."""
        return self.intake.offers

    @property
    def oldest_is_out(self) -> bool:
        """True if the first unfinished message is in memory and leased, or waits for a retry or an
        operator.
        """
        oldest = self.jobs.oldest
        return oldest is not None and oldest.state is RUNNING

    def anchored(self, anchor: Anchor | None) -> None:
        """Set the last message read, here or by the earlier owner."""
        self.anchor = anchor

    def doubt_life(self) -> None:
        """Let the reader check whether the topic was created again. Caller: refills."""
        self.life_in_doubt = True

    def life_checked(self) -> None:
        """Note that it was not."""
        self.life_in_doubt = False

    def on_messages(self, messages: Collection[StoredMessage], *, next_offset: int) -> Effects:
        """Admit *messages*. The next read starts at *next_offset*, or earlier: at the first message
        for which the window or memory has no room. Messages read before are skipped.

        Nothing is admitted once the pipeline drains or is closed, because the next owner reads the
        messages, nor while the order key is about to change, because they are read again.

        Affects: chains, tracker, window.
        """
        if self.draining or self.closed or self.keys.planned:
            return Effects()
        return self._concluded(self.intake.read(messages, next_offset=next_offset))

    def refilled(self, refill: Refill, messages: Iterable[StoredMessage]) -> Effects:
        """Admit spilled messages that were read again; deleted ones are finished."""
        if self.closed:
            return Effects()
        for offset in refill.offsets if self._damaged_again else ():
            self._damaged_again.pop(offset, None)  # its file was restored
        return self._concluded(self.intake.refilled(refill, messages))

    def wants(self, refill: Refill) -> bool:
        """Return True if the messages of *refill* are still to be read again."""
        return not self.closed and self.jobs.residency.wants(refill)

    def waits_at_damage(self, refill: Refill, what: str, *, until: int) -> bool:
        """Note that the first message of *refill* cannot be read: *what* is damaged up to
        the offset *until*. Its key waits. Return True if that is new.
        """
        offset = refill.offsets[0]
        is_new = offset not in self._damaged_again
        self._damaged_again[offset] = what, until, refill
        self.jobs.residency.wait_for(refill)
        return is_new

    def skip_damaged(self, offset: int, *, audit: str) -> Effects:
        """Finish the message at *offset*, which is damaged and waited for, unhandled; at the read
        position all damaged ones from there on. Raise WrongState if none is waited for there.
        """
        if self.closed or self.draining:
            raise WrongState(
                f"queue {self.place} is being handed over: try again in a moment", passing=True
            )
        if self.keys.planned:
            raise WrongState(f"the order key of queue {self.place} changes now: try again")
        again = self._damaged_again.get(offset)
        if again is not None and self.wants(again[2]):
            del self._damaged_again[offset]
            first = replace(again[2], offsets=(offset,))
            skip = Skip(audit, first.key or None)
            return self._concluded(self.intake.refilled(first, (), skip=skip))
        if not self.damaged or offset != self.position:
            raise WrongState(
                f"queue {self.place} of {self.topic!r} does not wait at a damaged message"
                f" {offset}: nothing was skipped"
            )
        effects = self.intake.pass_damage(self.damaged_until, audit=audit)
        self.stands_at_damage("", until=0)
        return self._concluded(effects)

    def waits_no_more(self, refill: Refill) -> None:
        """Note that the first message of *refill* is no longer to be read again."""
        self._damaged_again.pop(refill.offsets[0], None)

    @property
    def refills_due(self) -> bool:
        """True if there are refills to read that were not yet returned as effects."""
        return bool(self.jobs.residency.refills) and not self.closed

    def take_refills(self) -> Effects:
        """Return the effects announced by ``refills_due``."""
        return self._concluded(Effects())

    def not_whole(self, job: Job) -> None:
        """Count *job*, which is given up without a complete copy, for the doctor."""
        count, last = self._not_whole
        self._not_whole = count + (job.offset != last), job.offset

    @property
    def copy_trouble(self) -> str:
        """Problem with copies of given-up messages, in a sentence; "" if all are complete."""
        count, last = self._not_whole
        if not count:
            return ""
        return (
            f"{count} given-up message{'' if count == 1 else 's'} exceeded the broker's size limit,"
            f" the last at offset {last}: dead letters without the full body"
        )

    # ---- ownership and commits; caller: ownership, committer ------------------------------------

    @property
    def committable(self) -> int:
        """Next offset that the group needs: never above the lowest unfinished one."""
        return self.jobs.committable

    @property
    def recorded(self) -> int:
        """``committable`` as of the records: the offset to commit.

        A commit ahead of them could fall again. The next master of a broker may lack it, and then
        the next owner begins where the records say. If the broker refuses the records, only commits
        spare the next owner what is finished.
        """
        return self.committable if self._unrecorded else min(self.committable, self._recorded)

    def recorded_to(self, offset: int) -> None:
        """Note that the records contain that all messages below *offset* are finished."""
        self._recorded, self._unrecorded = offset, False

    def records_refused(self) -> None:
        """Note that the broker has refused a record: none can be stored for now."""
        self._unrecorded = True

    def committed_at(self, offset: int, now_ns: int) -> None:
        """Note that the broker stored *offset* as committed; all messages below are finished."""
        self.committed, self.committed_ns = offset, now_ns

    def nothing_to_commit(self, now_ns: int) -> None:
        """Note that everything committable is committed."""
        self.committed_ns = now_ns

    def ends_at(self, offset: int) -> None:
        """Note the end *offset* of the queue, as reported by the broker."""
        self.end_offset = offset

    def nears_retention(self, keys: Collection[bytes]) -> None:
        """Set the blocked or parked *keys* whose messages retention is about to delete."""
        self.near_retention = frozenset(keys)

    def began_with_damage(self) -> None:
        """Note that the ownership records of the previous period are damaged."""
        self.records_damaged = True

    def stands_at_damage(self, what: str, *, until: int) -> None:
        """Note *what* is damaged from the read position *until* an offset; "" and 0: nothing."""
        self.damaged, self.damaged_until = what, until

    def _first_damage(self) -> tuple[int, str, int]:
        """Return offset, sentence and end of the first damaged messages that are waited for."""
        found = [(offset, *each[:2]) for offset, each in self._damaged_again.items()]
        if self.damaged:
            found.append((self.position, self.damaged, self.damaged_until))
        return min(found, default=(0, "", 0))

    def began_recreated(self) -> None:
        """Note that this period begins a new incarnation of the topic."""
        self.recreated = True

    def record_fails(self, why: str) -> None:
        """Note the reason *why* ownership records cannot be stored; "" if they can."""
        self.record_trouble = why

    def read_fails(self, why: str) -> None:
        """Note the reason *why* the broker has served no read for a while; "" if it does."""
        self.read_trouble = why

    def doubt(self) -> None:
        """Deliver nothing until ``trust_until``, because the broker may have forgotten the lock."""
        self.doubtful = True

    def trust_until(self, until_ns: int) -> None:
        """Note that ownership is certain until then; trust never becomes shorter."""
        self.doubtful = False
        if until_ns > self.trusted_until_ns:
            self.trusted_until_ns = until_ns

    def refuse_extensions(self) -> None:
        """Stop extending leases, because the queue is about to be handed over."""
        self.extensions_refused = True

    def ended(self) -> None:
        """Note that the last record is made, or about to be: verdicts no longer count."""
        self.has_ended = True

    def unconfirmed_ns(self, now_ns: int) -> int:
        """Return for how long the broker has not confirmed the lock; 0 while it is trusted."""
        return max(0, now_ns - self.origin.trusted_until_ns)

    def is_owned(self, now_ns: int) -> bool:
        """Return True if ownership is certain, so that finished messages count."""
        origin = self.origin
        return not (self.closed or origin.doubtful) and now_ns < origin.trusted_until_ns

    def drain(self) -> None:
        """Stop reading and delivering; verdicts on leases still count."""
        self.draining = True

    @property
    def leases_end_ns(self) -> int:
        """Latest deadline of live leases and of those left by an earlier owner; 0 without any."""
        return self.leases.end_ns

    def may_unlock(self, now_ns: int) -> bool:
        """Return True if a clean end is possible now: the last snapshot would name all live leases,
        and none of the previous owner may be left.

        The next owner does not wait after a clean end, so it must not follow during our own wait.
        """
        done = not self.leases or self.extensions_refused
        return done and self.hold_until_ns <= now_ns

    def drained(self, now_ns: int) -> bool:
        """Return True once the queue may be unlocked and no dead letter is being stored."""
        return self.may_unlock(now_ns) and not self.exhausted.under_way

    def snapshot(self, *, now_ns: int = 0) -> Snapshot:
        """Return the state that the next owner needs to repeat no finished message."""
        jobs = self.jobs.snapshot(self.epoch, self.leases.attempts, self.lease_times(now_ns))
        return replace(
            jobs,
            parked=dict(self.parked),
            longest_lease_ms=self.raised_lease_ms,
            paused=dict(self.recorded_pauses),
            keys=self.keys.recorded,
            anchor=self.anchor,
            moved_from=if_above(jobs.base, self._moved_from),
        )

    @property
    def recorded_pauses(self) -> TrackedDict[bytes | None, PausedKey]:
        """Pauses to store in the queue's own records."""
        return _NO_PAUSES if self.is_twin else self.pauses.keys

    def close(self) -> None:
        """Drop the pipeline: it delivers nothing more; its leases and memory no longer count.

        Jobs and bodies are released here, even if tasks and answers still refer to the pipeline.
        """
        self.closed = True
        self.jobs.close()
        self.leases.clear()
        self.pauses.close()
        self.unreported.close()
        self.twin = None  # they refer to each other

    def statistics(self) -> PipelineStatistics:
        """Return the state at this moment."""
        unfinished, ready, oldest = self.jobs.unfinished, self.ready, self.jobs.oldest
        leased, retrying = len(self.leases), self.leases.waiting
        damaged_from, damaged, damaged_until = self._first_damage()
        return PipelineStatistics(
            queue=self.queue,
            epoch=self.epoch,
            unfinished=unfinished,
            ready=ready,
            leased=leased,
            retrying=retrying,
            blocked=unfinished - ready - leased - retrying - len(self.exhausted.under_way),
            keys=len(self.jobs.by_key),
            spilled=self.jobs.spilled,
            held_bytes=self.jobs.window.used_bytes,
            base=self.committable,
            committed=self.committed,
            position=self.position,
            end=max(self.end_offset, self.position),
            draining=self.draining,
            paused=len(self.recorded_pauses) - (EVERYTHING in self.recorded_pauses),
            paused_whole=EVERYTHING in self.pauses.keys,
            near_retention=len(self.near_retention),
            records_damaged=self.records_damaged,
            damaged=damaged,
            damaged_from=damaged_from,
            damaged_until=damaged_until,
            recreated=self.recreated,
            trouble="; ".join(filter(None, (self.record_trouble, self.copy_trouble))),
            read_trouble=self.read_trouble,
            key_rule=str(self.keys.record.rule),
            key_version=self.keys.record.version,
            older=self.jobs.older,
            key_change=self.key_change_in_words,
            change_waits_for_parked=self.keys.waits_for_parked,
            reading_paused=self.intake.paused_by,
            oldest_ms=None if oldest is None else self.jobs.residency.unloaded.stored_ms(oldest),
            most_attempts=max(self.leases.attempts.values(), default=0),
            window_used=self.jobs.residency.taken / self.rules.max_jobs,
            committed_ns=self.committed_ns,
        )

    def __repr__(self) -> str:
        return f"<QueuePipeline {self.statistics()}>"
