"""One owned queue: everything the proxy knows of it. Events in, effects out; pure.

A pipeline lives as long as one ownership period. Losing the orderly lock drops the object whole,
so nothing of an old period can leak into a new one.

It owns its parts and coordinates them, each with one reason to change:

- ``jobs`` (``proxy.core.jobs``): chains, spilled chains, window and offsets;
- ``leases`` (``proxy.core.leases``): grants, runs, deadlines, retry times and failures;
- ``keys``: by which rule messages have their order keys, and the change of it;
- ``pauses``: paused keys, and a queue that is paused as a whole;
- ``exhausted``: what becomes of jobs whose hand-outs are used up (dead letter, park or block);
- intake (messages to jobs), dispatch (ready jobs to leases), settlement (ends of hand-outs),
  operator actions, observations.

Code outside changes a pipeline by its methods alone. Each event that may lead to something returns
effects; the shell performs them.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Container, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import TypedDict

from broker_core.names import QueueName
from broker_core.remoting.message import StoredMessage
from proxy.actions.document import Subject
from proxy.core.jobs.chains import RUNNING, Job
from proxy.core.jobs.changes import Noted
from proxy.core.jobs.jobs import Jobs
from proxy.core.jobs.measures import Measures
from proxy.core.jobs.refills import Refill
from proxy.core.jobs.window import Budget, FlowWindow
from proxy.core.keys.ids import Epoch, LeaseId, qid_text
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
from proxy.core.records.parked_key import ParkedKey
from proxy.core.records.paused_key import EVERYTHING, PausedKey
from proxy.core.records.record import Anchor, Snapshot

_NO_PAUSES: Noted[bytes | None, PausedKey] = Noted()  # of parked twins

#: Makes the strategy for given-up jobs of a queue with these jobs, leases, parked keys and epoch.
MakeExhausted = Callable[[Jobs, LeaseBook, Noted[bytes, ParkedKey], Epoch], OnExhausted]

#: Makes what takes messages in, of the other parts.
MakeIntake = Callable[
    [TopicRules, Jobs, LeaseBook, KeySwitch, Pauses, OnExhausted, Settlement, OperatorActions],
    Intake,
]


class Period(TypedDict, total=False):
    """Arguments of ``QueuePipeline`` by which any pipeline is made."""

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


def _first_lease(now_ns: int) -> int:
    """Id of the first lease of a period. Where ownership records are lost periods are counted anew,
    and no lease may have the name of one of before: by the microsecond, for none is granted faster.
    Clients may keep it as a double.
    """
    return 1 + (now_ns >> 10) % (1 << 50)


def _dead_letters(
    _jobs: Jobs, _leases: LeaseBook, _parked: Noted[bytes, ParkedKey], _epoch: Epoch
) -> OnExhausted:
    return DeadLetters()


class QueuePipeline:
    """The jobs, leases and order key of one queue in one ownership period. All times are ns.

    Callers: the group lane and its buffer (hand-outs, verdicts, time), the queue reader (reading),
    ownership, recorder and committer, and the operator's verbs.
    """

    #: The last message that was read, where the broker does not tell lives of topics apart.
    anchor: Anchor | None = None

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
        exhausted: MakeExhausted = _dead_letters,
        intake: MakeIntake = Intake,
    ) -> None:
        """*resume* is what the records said *now*; nothing is handed out before *hold*.
        *twin_of*: *queue* holds the parked messages of that one's. *life*: the incarnation of its
        topic that all offsets are of, None if the broker tells none apart.
        """
        self.queue, self.epoch, self.life = queue, epoch, life
        self.topic, self.place = queue.topic, queue.qid  # as clients and histories name the queue
        if twin_of is not None:
            self.topic, self.place = twin_of.topic, f"{twin_of.place}p"
        self.qid = qid_text(self.place, period)
        #: The pipeline of the queue itself, and that of its parked messages, if there are any.
        self.origin = twin_of or self
        self.twin: QueuePipeline | None = None
        self.rules = rules
        self._own_lease_ns = rules.visibility_ns  # as the record says that the period began with
        #: How long a lease may be by what the records say: the next owner waits no longer.
        self.longest_lease_ns = rules.visibility_ns

        self.jobs = Jobs(
            start_offset,
            window=FlowWindow(rules.max_jobs, memory),
            max_jobs_per_key=rules.max_jobs_per_key,
            resume=resume,
            spill_all=twin_of is not None,
        )
        self.leases = LeaseBook(
            leases_of_group,
            memory,
            Failures(rules.retry, {} if resume is None else resume.attempts),
            first_id=_first_lease(now_ns),
            held_back_ns={o: now_ns + ms * MS for o, ms in resume.leases.items()} if resume else {},
        )
        #: Parked keys in its records, or on their way; of a twin, what was read of them.
        self.parked: Noted[bytes, ParkedKey] = Noted(() if resume is None else resume.parked)
        self.keys = KeySwitch(
            self.jobs,
            rules,
            None if resume is None else resume.keys,
            self.parked,
            is_twin=twin_of is not None,
        )
        paused: Noted[bytes | None, PausedKey] = Noted(() if resume is None else resume.paused)
        #: What is paused; a twin shares the keys of its queue.
        self.pauses: Pauses = Pauses(paused if twin_of is None else twin_of.paused)
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
            subject_of=self._subject,
        )
        # Looked at with every event.
        self._ready_queues, self._stale = self._dispatch.ready_queues, self.jobs.chains.stale
        self._unreported, self._paused = self._dispatch.unreported, self.pauses.keys
        self._now = self.observed.now

        # Ownership.
        self.trusted_until_ns, self.hold_until_ns = trusted_until_ns, hold_until_ns
        self.doubtful = False  # the lock may be forgotten: hand out nothing until that is known
        self.has_ended = False  # the last record is made, or about to be: verdicts count no more
        self.draining = False
        self.extensions_refused = False
        self.closed = False
        # What was told by the shell; see the methods of ownership and commits.
        self.committed, self.committed_ns = committed, now_ns
        self.end_offset = max(start_offset, committed)
        self.near_retention: frozenset[bytes] = frozenset()
        self.records_damaged = self.recreated = False
        self.record_trouble = ""
        self._not_whole = 0, -1  # messages given up without a whole copy, and the last one's offset

    # ---- observing ------------------------------------------------------------------------------

    def at(self, now_ns: int) -> None:
        """What happens next happens *now*, where that is not said: for measures, and what is noted
        of keys. No decision depends on it. Caller: group lane.
        """
        self._now.set(now_ns)

    def measured_by(self, measures: Measures, *, hot: HotKeys | None = None) -> None:
        """Add what is measured to *measures* from now on, and count hand-outs of keys in *hot*.
        Caller: group lane.
        """
        self.observed.measure_by(measures, hot=hot)

    @property
    def hot(self) -> HotKeys:
        """Keys with a large share of the hand-outs."""
        return self.observed.hot

    @property
    def events(self) -> KeyEvents:
        """The last events of keys."""
        return self.observed.events

    # ---- handing out; caller: group buffer ------------------------------------------------------

    def share_work(self, work: Budget) -> None:
        """Count what actions look at in *work*, as other queues of the group do in one pull."""
        self._dispatch.share_work(work)

    def may_hand_out(self, now_ns: int) -> bool:
        """False while draining or in doubt, while a take-over waits, and once trust has lapsed."""
        return (
            not (self.draining or self.doubtful or self.closed or EVERYTHING in self._paused)
            and self.hold_until_ns <= now_ns < self.trusted_until_ns
        )

    @property
    def visibility_ns(self) -> int:
        """How long a lease is: as the rules say, once a record does. The records of a queue speak
        for those of its twin, too.
        """
        wanted_ns, longest_ns = self.rules.visibility_ns, self.origin.longest_lease_ns
        return wanted_ns if wanted_ns < longest_ns else longest_ns

    @property
    def ready(self) -> int:
        """Jobs that ``lease`` would give, were handing out allowed; those of keys that were paused
        lately may be among them.
        """
        if EVERYTHING in self._paused:
            return 0
        offered, main, reactivated = self._ready_queues  # asked for at every message
        if self._stale:
            return len(offered) + self.jobs.chains.ready
        return len(offered) + len(main) + len(reactivated)

    @property
    def unordered_ready(self) -> int:
        """How many of the ``ready`` jobs have no key. O(ready)."""
        ready = (self.leases.offered, self.jobs.chains.ready_jobs())
        return sum(job.key is None for jobs in ready for job in jobs)

    def lease(self, *, max_jobs: int, max_bytes: int, now_ns: int, holder: Holder) -> list[Lease]:
        """Up to *max_jobs* jobs for *holder*, of distinct keys; the last may overshoot *max_bytes*.

        What became of others, by actions or because an owner before had given them up, is there
        for ``take_acted``.
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
        """The leases *firsts* with up to *max_jobs* more that follow them in runs: ``Dispatch``."""
        return self._dispatch.lengthen(
            firsts, max_run=max_run, max_jobs=max_jobs, max_bytes=max_bytes
        )

    def take_acted(self) -> Effects | None:
        """What became of jobs that ``lease`` did not give, told once; None: nothing.

        Affects: spilled chains.
        """
        if self._unreported.noted is None:
            return None
        return self._concluded(self._unreported.take())

    # ---- verdicts and time; caller: group lane --------------------------------------------------

    def settle(
        self,
        *,
        acked: Iterable[LeaseId] = (),
        nacked: Iterable[Nack] = (),
        released: Iterable[LeaseId] = (),
        now_ns: int,
    ) -> Effects:
        """Apply verdicts by lease id, as ``Settlement`` does.

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
        """Apply the verdicts of a client that knows no lease ids, as ``Settlement`` does."""
        effects = self.settlement.settle_by_offset(
            success,
            failed,
            connection=connection,
            open_connections=open_connections,
            now_ns=now_ns,
        )
        return self._concluded(effects)

    def extend(self, lease_ids: Iterable[LeaseId], *, ms: int, now_ns: int) -> list[LeaseId]:
        """Let leases run *ms* from now, one visibility timeout at most; returns those not held.

        None is extended once trust has lapsed: the next owner waits for no lease that was granted
        later than that.
        """
        if self.extensions_refused or now_ns >= self.trusted_until_ns:
            return list(lease_ids)
        deadline_ns = now_ns + min(ms * MS, self.visibility_ns)
        return self.leases.extend_all(lease_ids, deadline_ns, now_ns=now_ns)

    def return_unsent(self, leases: Collection[Lease]) -> list[Lease]:
        """Their answer was never written: offer the jobs again, uncounted; returns the live."""
        return self.settlement.return_unsent(leases)

    def dead_lettered(self, job: Job) -> Effects:
        """The copy of *job* is stored: finish it, and let its key go on (if not closed by now)."""
        effects = Effects()
        if self.closed:
            return effects
        self.exhausted.stored(job)
        self.settlement.finish(job, Outcome.DEAD_LETTERED, effects)
        return self._concluded(effects)

    def is_dead_lettering(self, job: Job) -> bool:
        """True while its copy is being stored."""
        return job.offset in self.exhausted.under_way

    def on_time(self, *, now_ns: int) -> Effects:
        """End the leases whose deadline has come; offer the jobs whose retry is due."""
        return self._concluded(self.settlement.on_time(now_ns))

    def revoke(self, lease_id: LeaseId, *, now_ns: int) -> Effects:
        """End a lease, and all of its run, as if its deadline had come: what its client says of it
        later is fenced. Nothing but ``fenced`` if it is not live.
        """
        return self._concluded(self.settlement.revoke(lease_id, now_ns))

    def next_due_ns(self, now_ns: int) -> int | None:
        """When ``on_time`` has something to do, or a waiting take-over may begin to hand out."""
        due_ns = self.leases.next_due_ns()
        if self.hold_until_ns <= now_ns:
            return due_ns
        return self.hold_until_ns if due_ns is None else min(due_ns, self.hold_until_ns)

    def lease_times(self, now_ns: int) -> dict[int, int]:
        """By offset for how many ms from now clients may have what a hand-over leaves in their
        hands: leases of this period that are not extended any more, and of those before.
        """
        return self.leases.times_left_ms(now_ns, with_live=self.extensions_refused)

    def _concluded(self, effects: Effects) -> Effects:
        """*effects* of an event, with what is to be read again, and what follows for held keys and
        for a change of the order key.
        """
        if self.jobs.quiet:
            return effects  # as nearly always
        self.exhausted.conclude(effects)
        if self.keys.settle():
            effects.note_keys_changed()
        if refills := self.jobs.residency.take_refills():
            effects.refills.extend(refills)
        return effects

    # ---- operator actions; caller: the operator's verbs -----------------------------------------

    @property
    def paused(self) -> Noted[bytes | None, PausedKey]:
        """Keys that are paused, or ``EVERYTHING``. Read-only for others."""
        return self._paused

    def pause(self, key: bytes | None, how: PausedKey) -> bool:
        """Hand out nothing of *key* (or ``EVERYTHING``) from now on, whether it has jobs or not;
        False if it is paused.
        """
        return self.pauses.pause(self.queue, key, how)

    def resume(self, key: bytes | None) -> PausedKey | None:
        """Pause *key* no longer; ``resumed`` says so to its jobs. None if it was not paused."""
        return self.pauses.resume(self.queue, key)

    def resumed(self, key: bytes | None) -> Effects:
        """Offer what was set aside of *key* again, if it is not paused any more."""
        job = self.pauses.take(key)
        if job is not None and job.state is RUNNING:
            self.settlement.offer(job)
        return self._concluded(Effects())

    def first_stored(self, key: bytes) -> int | None:
        """Offset of the first unfinished job of *key* if nothing of it is in memory, nor being read
        again: so it is with parked copies. None otherwise.
        """
        return self.jobs.by_key.first_stored(key)

    def skip_stored(self, why: Skip) -> Effects:
        """Finish that job, which nobody has read since."""
        effects = Effects()
        self.operator.skip_stored(why, effects)
        return self._concluded(effects)

    def head(self, key: bytes) -> Job | None:
        """The first unfinished job of *key*; None if it has none.

        Raises WrongState while its message is being read again.
        """
        return self.operator.head(key)

    def skip(self, job: Job, why: Skip) -> Effects:
        """Finish *job*, the ``head`` of its key, which no client handled: its key goes on without
        it. Raises WrongState if a client has it, or may have it.
        """
        return self._concluded(self.operator.skip(job, why))

    def retry(self, job: Job, *, anew: bool) -> int:
        """Take *job*, the ``head`` of its key, out of its wait for a retry, for ``offer_again``;
        *anew*: its hand-outs so far count no longer. Returns how many there were.

        Raises WrongState if there is nothing to hasten, or a client has it.
        """
        return self.operator.retry(job, anew=anew)

    def count_attempts(self, job: Job, attempts: int) -> None:
        """So many hand-outs of *job* count."""
        self.operator.count_attempts(job, attempts)

    def offer_again(self, job: Job) -> Effects:
        """*job*, which ``retry`` took, may be had now."""
        self.operator.offer_again(job)
        return self._concluded(Effects())

    # ---- the order key; caller: key changes -----------------------------------------------------

    @property
    def key_change_due(self) -> bool:
        """True if the rules want another order key, and it may be planned now."""
        return not (self.draining or self.closed) and self.keys.is_due(self.rules)

    @property
    def key_change_in_words(self) -> str:
        """What a change of the order key waits for; "" if there is none."""
        return self.keys.in_words(self.rules)

    def plan_key_change(self) -> None:
        """Choose from which offset on the new rule holds: see ``KeySwitch``."""
        self.keys.plan(self.rules, copied_below=self.copied_below)

    @property
    def copied_below(self) -> int:
        """All messages with parked copies have lower offsets; those of an owner before, too, that
        was killed before a record said how far it had read.
        """
        return 0

    def key_change_recorded(self) -> Effects:
        """A record names the switch: read on. Affects: chains."""
        self.keys.planned_is_recorded()
        if self.closed:
            return Effects()
        self.keys.begin()
        return self._concluded(Effects().note_keys_changed())

    def older_counted(self, asked: Sequence[int], messages: Mapping[int, StoredMessage]) -> Effects:
        """Older messages were read once more, to be counted under their new keys."""
        self.keys.older_counted(asked, messages)
        return self._concluded(Effects())

    def older_copies_read(self, found: Mapping[bytes, Collection[bytes]]) -> Effects:
        """The copies of older messages were looked at: new keys of those of each parked key."""
        self.keys.older_copies_read(found)
        return self._concluded(Effects())

    # ---- other rules; caller: group lane --------------------------------------------------------

    def change_rules(self, rules: TopicRules) -> Effects:
        """Go on by *rules*; another order key only after ``plan_key_change``.

        Limits and tags count for what is read from now on, retries and policies from the next
        failure on, the length of leases from the next hand-out on; a longer one once a record says
        so (``raised_lease_ms``). What is leased or waits for its retry stays as it is.

        Affects: window, spilled chains.
        """
        self.rules = rules
        self.leases.failures.change_policy(rules.retry)
        self._dispatch.change_rules(rules)
        self.intake.change_rules(rules)
        self.jobs.residency.change_limits(
            max_jobs=rules.max_jobs, max_jobs_per_key=rules.max_jobs_per_key
        )
        return self._concluded(Effects())

    @property
    def raised_lease_ms(self) -> int:
        """What the records have to say of the longest lease beside the ``own``; 0: nothing."""
        longest_ns = max(self.longest_lease_ns, self.rules.visibility_ns)
        return longest_ns // MS if longest_ns > self._own_lease_ns and self.origin is self else 0

    def raised_lease_recorded(self, ms: int) -> None:
        """A record says that leases may be so long."""
        self.longest_lease_ns = max(self.longest_lease_ns, ms * MS)

    # ---- reading; caller: queue reader ---------------------------------------------------------

    @property
    def position(self) -> int:
        """The next offset to read."""
        return self.jobs.position

    def room(self, *, demand: bool = False) -> int:
        """How many more messages may be read now; 0 pauses reading.

        *demand*: clients wait, and for them reading goes on past jobs that nobody can have now.
        """
        if self.draining or self.closed or self.keys.planned:
            return 0
        return self.intake.room(ready=self.ready, demand=demand)

    @property
    def offers(self) -> bool:
        """True if something is ready, whether or not all of the queue is paused."""
        return self.intake.offers

    @property
    def oldest_is_out(self) -> bool:
        """True if its first unfinished message is in memory, and in hands of a client, or waits for
        a retry or a person.
        """
        oldest = self.jobs.oldest
        return oldest is not None and oldest.state is RUNNING

    def anchored(self, anchor: Anchor | None) -> None:
        """*anchor* is the last message that was read, here or by the owner before."""
        self.anchor = anchor

    def on_messages(self, messages: Iterable[StoredMessage], *, next_offset: int) -> Effects:
        """Messages were read; the next read starts at *next_offset*, or earlier: at the first one
        that the window or memory has no room for, since others were read meanwhile. Re-read ones
        are passed over, and all of them once the pipeline drains or is closed: the next owner reads
        them. Nor any while the order key is about to change: they are read again.

        Affects: chains, tracker, window.
        """
        if self.draining or self.closed or self.keys.planned:
            return Effects()
        return self._concluded(self.intake.read(messages, next_offset=next_offset))

    def _subject(self, job: Job) -> Subject:
        if (message := job.message) is None:
            raise RuntimeError(f"{job} is about to be handed out without its message")
        offset = self.intake.origin_offset(job, message)
        return Subject(message, self.topic, self.origin.place, offset, message.body)

    def refilled(self, refill: Refill, messages: Iterable[StoredMessage]) -> Effects:
        """Spilled messages were read again; those that are not there any more are finished."""
        if self.closed:
            return Effects()
        return self._concluded(self.intake.refilled(refill, messages))

    @property
    def refills_due(self) -> bool:
        """True if there is room for something that is to be read again, and nobody was told."""
        return bool(self.jobs.residency.refills) and not self.closed

    def take_refills(self) -> Effects:
        """What ``refills_due`` says."""
        return self._concluded(Effects())

    def not_whole(self, job: Job) -> None:
        """The broker takes no whole copy of *job*, which is given up: doctors ask for that."""
        count, last = self._not_whole
        self._not_whole = count + (job.offset != last), job.offset

    @property
    def copy_trouble(self) -> str:
        """What of the messages given up has no whole copy, in a sentence; "" if all of it has."""
        count, last = self._not_whole
        if not count:
            return ""
        return (
            f"{count} given-up messages, the last at offset {last}, are longer than the broker"
            " takes now: their dead letters have no body"
        )

    # ---- ownership and commits; caller: ownership, committer ------------------------------------

    @property
    def committable(self) -> int:
        """The next offset that the group needs: never above the lowest unfinished one."""
        return self.jobs.committable

    def committed_at(self, offset: int, now_ns: int) -> None:
        """The broker stored *offset* as the group's; all below is finished."""
        self.committed, self.committed_ns = offset, now_ns

    def nothing_to_commit(self, now_ns: int) -> None:
        """What is committed is what there is to commit."""
        self.committed_ns = now_ns

    def ends_at(self, offset: int) -> None:
        """The broker says that the next message of the queue will have this *offset*."""
        self.end_offset = offset

    def nears_retention(self, keys: Collection[bytes]) -> None:
        """*keys* are those, blocked or parked, whose messages the broker is about to delete."""
        self.near_retention = frozenset(keys)

    def began_with_damage(self) -> None:
        """The ownership records of the period before are damaged."""
        self.records_damaged = True

    def began_recreated(self) -> None:
        """An incarnation of the topic that others came before begins with this period."""
        self.recreated = True

    def record_fails(self, why: str) -> None:
        """The ownership record cannot be stored, for the reason *why*; "": it can."""
        self.record_trouble = why

    def doubt(self) -> None:
        """The lock may be forgotten by its broker: hand out nothing until ``trust_until``."""
        self.doubtful = True

    def trust_until(self, until_ns: int) -> None:
        """The queue is owned until then for sure; a trust never becomes shorter."""
        self.doubtful = False
        if until_ns > self.trusted_until_ns:
            self.trusted_until_ns = until_ns

    def refuse_extensions(self) -> None:
        """Extend no lease any more: the queue is about to be handed over."""
        self.extensions_refused = True

    def ended(self) -> None:
        """The last record is made, or about to be: verdicts count no more."""
        self.has_ended = True

    def is_owned(self, now_ns: int) -> bool:
        """True if it is certain that nobody else owns the queue: what is finished counts."""
        origin = self.origin
        return not (self.closed or origin.doubtful) and now_ns < origin.trusted_until_ns

    def drain(self) -> None:
        """Read and hand out nothing more; verdicts on what is leased still count."""
        self.draining = True

    @property
    def leases_end_ns(self) -> int:
        """When the last of its live leases ends, or of those that an owner before left alive; 0
        without any.
        """
        return self.leases.end_ns

    def may_unlock(self, now_ns: int) -> bool:
        """True if no lease is alive that the last snapshot would not name, nor may be one of the
        owner before: a clean end, if now.

        The next owner does not wait after a clean end, so it must not come during our own wait.
        """
        done = not self.leases or self.extensions_refused
        return done and self.hold_until_ns <= now_ns

    def drained(self, now_ns: int) -> bool:
        """True once the queue may be unlocked and no dead letter is on its way."""
        return self.may_unlock(now_ns) and not self.exhausted.under_way

    def snapshot(self, *, now_ns: int = 0) -> Snapshot:
        """What the next owner must know to repeat nothing that is finished."""
        jobs = self.jobs.snapshot(self.epoch, self.leases.attempts, self.lease_times(now_ns))
        return replace(
            jobs,
            parked=dict(self.parked),
            longest_lease_ms=self.raised_lease_ms,
            paused=dict(self.recorded_pauses),
            keys=self.keys.recorded,
            anchor=self.anchor,
        )

    @property
    def recorded_pauses(self) -> Noted[bytes | None, PausedKey]:
        """What of ``paused`` stands in its own records."""
        return self._paused if self.origin is self else _NO_PAUSES

    def close(self) -> None:
        """Drop the pipeline: nothing more is handed out, nothing it held counts any longer."""
        self.closed = True
        self.jobs.close()
        self.leases.clear()

    def statistics(self) -> PipelineStatistics:
        """A frozen record of this moment."""
        unfinished, ready, oldest = self.jobs.unfinished, self.ready, self.jobs.oldest
        leased, retrying = len(self.leases), self.leases.waiting
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
            paused_whole=EVERYTHING in self._paused,
            near_retention=len(self.near_retention),
            records_damaged=self.records_damaged,
            recreated=self.recreated,
            trouble="; ".join(filter(None, (self.record_trouble, self.copy_trouble))),
            key_rule=str(self.keys.record.rule),
            key_version=self.keys.record.version,
            older=self.jobs.older,
            key_change=self.key_change_in_words,
            reading_paused=self.intake.paused_by,
            oldest_ms=None if oldest is None else self.jobs.residency.down.stored_ms(oldest),
            most_attempts=max(self.leases.attempts.values(), default=0),
            window_used=self.jobs.residency.taken / self.rules.max_jobs,
            committed_ns=self.committed_ns,
        )

    def __repr__(self) -> str:
        return f"<QueuePipeline {self.statistics()}>"
