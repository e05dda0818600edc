"""One owned queue: everything the proxy knows of it. Events in, effects out; pure.

Here it is read, held and given up; ``hand_outs`` has what clients do with its jobs.

A pipeline lives as long as one ownership period. Losing the orderly lock drops the object whole,
so nothing of an old period can leak into a new one.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from broker_core.names import QueueName
from broker_core.remoting.message import StoredMessage
from proxy.actions.document import Subject
from proxy.core.jobs.chains import NEW, RUNNING, Job
from proxy.core.jobs.changes import Noted
from proxy.core.jobs.jobs import Jobs
from proxy.core.jobs.refills import Refill
from proxy.core.jobs.window import Budget, FlowWindow
from proxy.core.keys.ids import Epoch, qid_text
from proxy.core.keys.order_key import QUEUE_CHAIN, MissingKey
from proxy.core.keys.retry_policy import MS
from proxy.core.keys.topic_rules import SHADOW_MARK, TopicRules
from proxy.core.leases.failures import Failures
from proxy.core.leases.lease_book import LeaseBook
from proxy.core.leases.verdicts import Filtered, Outcome
from proxy.core.pipeline.effects import Effects, PipelineStatistics
from proxy.core.pipeline.order_keyed import OrderKeyed
from proxy.core.records.paused_key import EVERYTHING, PausedKey
from proxy.core.records.record import Anchor, Snapshot

#: With so many ready jobs a queue is read on only once they are few again. What is read long before
#: it is wanted costs memory, and is in no cache of the processor when its turn comes.
_PLENTY, _ENOUGH = 2048, 1024
#: What a message takes in memory beside its body, properties and order key: the objects around it.
BESIDE_BYTES = 640
_NO_PAUSES: Noted[bytes | None, PausedKey] = Noted()  # of parked twins


def _first_lease(now_ns: int) -> int:
    """Id of the first lease of a period. Where ownership records are lost periods are counted anew,
    and no lease may have the name of one of before: by the microsecond, for none is granted faster.
    Clients may keep it as a double.
    """
    return 1 + (now_ns >> 10) % (1 << 50)


class QueuePipeline(OrderKeyed):
    """The chains, leases and offsets of one queue in one ownership period. All times are ns."""

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
    ) -> None:
        """*resume* is what the records said *now*; nothing is handed out before *hold*.
        *twin_of*: *queue* holds the parked messages of that one's. *life*: the incarnation of its
        topic that all offsets are of, None if the broker tells none apart.
        """
        jobs = Jobs(
            start_offset,
            window=FlowWindow(rules.max_jobs, memory),
            max_jobs_per_key=rules.max_jobs_per_key,
            resume=resume,
            spill_all=twin_of is not None,
        )
        failures = Failures(rules.retry, {} if resume is None else resume.attempts)
        leases = LeaseBook(
            leases_of_group,
            memory,
            failures,
            first_id=_first_lease(now_ns),
            held_back_ns={o: now_ns + ms * MS for o, ms in resume.leases.items()} if resume else {},
        )
        super().__init__(
            jobs,
            leases,
            rules,
            keys=None if resume is None else resume.keys,
            parked=Noted(() if resume is None else resume.parked),
            is_twin=twin_of is not None,
            trusted_until_ns=trusted_until_ns,
            hold_until_ns=hold_until_ns,
        )
        self.queue, self.epoch, self.life = queue, epoch, life
        self._own_lease_ns = rules.visibility_ns  # as the record says that the period began with
        self.topic, self.place = queue.topic, queue.qid  # as clients and histories name the queue
        if twin_of is not None:
            self.topic, self.place = twin_of.topic, f"{twin_of.place}p"
            self.paused = twin_of.paused  # one truth for both
        elif resume is not None:
            self.paused = Noted(resume.paused)
        self.qid = qid_text(self.place, period)
        #: The pipeline of the queue itself, and that of its parked messages, if there are any.
        self.origin = twin_of or self
        self.twin: QueuePipeline | None = None
        # When it was committed, or nothing was left to commit; kept by upstream.
        self.committed, self.committed_ns = committed, now_ns
        #: Keys, blocked or parked, whose messages the broker is about to delete; kept by upstream.
        self.near_retention: frozenset[bytes] = frozenset()
        self.records_damaged = self.recreated = False  # as it began; kept by upstream
        self._plenty, self.record_trouble = False, ""  # ready jobs, for a while; kept by upstream
        self._not_whole = 0, -1  # messages given up without a whole copy, and the last one's offset
        self.end_offset = max(start_offset, committed)  # as the broker last said; kept by upstream

    # ---- pausing; caller: key desk --------------------------------------------------------------

    def pause(self, key: bytes | None, how: PausedKey) -> bool:
        """As elsewhere; the group knows which of its queues are paused as a whole."""
        if key is EVERYTHING:
            self.paused_queues.setdefault(self.queue, how)
        return super().pause(key, how)

    def resume(self, key: bytes | None) -> PausedKey | None:
        """As elsewhere."""
        if key is EVERYTHING:
            self.paused_queues.pop(self.queue, None)
        return super().resume(key)

    # ---- other rules; caller: group lane --------------------------------------------------------

    def change_rules(self, rules: TopicRules) -> Effects:
        """Go on by *rules*; another order key only after ``plan_key_change``.

        Limits and tags count for what is read from now on, retries and policies from the next
        failure on, the length of leases from the next hand-out on; a longer one once a record says
        so (``raised_lease_ms``). What is leased or waits for its retry stays as it is.

        Affects: window, spilled chains.
        """
        self.rules = rules
        self._failures.change_policy(rules.retry)
        self.jobs.residency.change_limits(
            max_jobs=rules.max_jobs, max_jobs_per_key=rules.max_jobs_per_key
        )
        return self._with_refills(Effects())

    @property
    def visibility_ns(self) -> int:
        """How long a lease is. The records of a queue speak for those of its twin, too."""
        wanted_ns, longest_ns = self.rules.visibility_ns, self.origin.longest_lease_ns
        return wanted_ns if wanted_ns < longest_ns else longest_ns

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
        if self.draining or self.closed or self.key_change_planned:
            return 0
        ready = self.ready
        self._plenty = ready >= _PLENTY or (self._plenty and ready > _ENOUGH)
        if self._plenty:
            return 0
        if EVERYTHING in self.paused:
            demand = False  # whoever waits has no use for more
        has_many_keys = self.key_record.rule.order_key.has_many_keys
        return self.jobs.residency.room(demand=demand and has_many_keys, idle=self._idle)

    @property
    def offers(self) -> bool:
        """True if something is ready, whether or not all of the queue is paused."""
        return bool(self.jobs.chains.ready or self.leases.offered)

    @property
    def _idle(self) -> bool:
        """True if it has nothing for any client, and nothing comes that is being read again."""
        return not (self.offers or self.jobs.residency.being_read)

    @property
    def oldest_is_out(self) -> bool:
        """True if its first unfinished message is in memory, and in hands of a client, or waits for
        a retry or a person.
        """
        oldest = self.jobs.oldest
        return oldest is not None and oldest.state is RUNNING

    @property
    def _reading_paused(self) -> str:
        window = self.jobs.window
        if window.short_of_memory:
            return "memory"
        # For clients that wait the whole window is filled, but with one key, where it helps nobody.
        has_many_keys = self.key_record.rule.order_key.has_many_keys
        return "jobs" if (self.jobs.residency.left <= 0 if has_many_keys else window.full) else ""

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
        effects = Effects()
        if self.draining or self.closed or self.key_change_planned:
            return effects
        jobs = self.jobs
        position = jobs.position
        residency, memory = jobs.residency, jobs.window.memory
        rules, resumes = self.rules, jobs.resumes
        left, limit = residency.left, memory.limit
        residency.look_at_memory()
        for message in messages:
            offset = message.queue_offset
            if offset < position:
                continue
            if left <= 0 and (left := residency.left) <= 0:  # some may have been spilled
                next_offset = offset
                break
            left -= 1
            position = offset + 1
            if resumes and jobs.knows(offset):
                jobs.pass_over(offset)
            elif (
                rules.tags is not None
                or message.raw_properties.find(SHADOW_MARK) >= 0  # nearly none; "in" takes longer
            ) and (rule := rules.unwanted(message)) is not None:
                jobs.pass_over(offset)
                effects.filtered_by[offset] = Filtered(rule, offset)
                effects.finished.append((offset, Outcome.FILTERED))
            elif memory.used >= limit and not self._has_place(message):
                next_offset = offset
                break
            else:
                self._admit(message, effects)
        jobs.advance(next_offset)
        return self._with_refills(effects)

    def _has_place(self, message: StoredMessage) -> bool:
        """Whether *message* may come while memory is full."""
        key = self._rule_of(message).order_key.of(message)
        return self.jobs.residency.has_place(key, idle=self._idle)

    def _admit(self, message: StoredMessage, effects: Effects) -> None:
        key = self._rule_of(message).order_key.of(message)
        if self.jobs.change is not None:
            self.jobs.change.read(message)
        if key is None and (rule := self._rule_of(message)).text is not None:
            effects.missing_keys += 1
            if rule.missing is MissingKey.DEAD_LETTER:
                job = self._job(message, None)
                self.jobs.hold(job)
                job.move(NEW, RUNNING)  # it never was ready: nobody may poll it
                job.reason = f"no order key at {rule.text}"
                self._give_up(job, effects)
                return
            if rule.missing is MissingKey.BY_QUEUE:
                key = QUEUE_CHAIN
        if not self.jobs.residency.spill(key, message.queue_offset):
            self.jobs.admit(self._job(message, key))

    def _job(self, message: StoredMessage, key: bytes | None) -> Job:
        offset, body_bytes = message.queue_offset, len(message.body)
        held_bytes = BESIDE_BYTES + body_bytes + len(message.raw_properties)
        if key is not None:
            held_bytes += len(key)
        job = Job(offset, key, message, body_bytes, held_bytes)
        if self._failures.attempts:
            job.attempts = self._failures.attempts.get(offset, 0)
        return job

    def _subject(self, job: Job) -> Subject:
        if job.message is None:
            raise RuntimeError(f"{job} is about to be handed out without its message")
        offset, message = self._offset_of(job, job.message), job.message
        return Subject(message, self.topic, self.origin.place, offset, message.body)

    def _offset_of(self, job: Job, _message: StoredMessage) -> int:
        """Where the message stands in its queue, also that of a parked copy."""
        return job.offset

    def refilled(self, refill: Refill, messages: Iterable[StoredMessage]) -> Effects:
        """Spilled messages were read again; those that are not there any more are finished."""
        if self.closed:
            return Effects()
        if refill.set_down:
            return self._came_back(refill.offsets[0], next(iter(messages), None))
        effects = Effects()
        jobs = {}
        for message in messages:  # none is without a key: the policy for missing ones has spoken
            jobs[message.queue_offset] = self._job(message, refill.key)
            if self.jobs.change is not None:
                self.jobs.change.read_again(message)
        here = [jobs[each] for each in refill.offsets if each in jobs]
        if self.jobs.refilled(refill, here):
            gone = [offset for offset in refill.offsets if offset not in jobs]
            effects.finished += [(offset, Outcome.DELETED) for offset in gone]
            if gone:
                effects.gone |= dict.fromkeys(gone, refill.key)
        return self._with_refills(effects)

    def _came_back(self, offset: int, message: StoredMessage | None) -> Effects:
        """The message of a job that is set down was read again, or (None) is gone."""
        effects = Effects()
        job = self.jobs.residency.came_back(
            offset, None if message is None else self._job(message, None)
        )
        if job is not None and message is None:
            self.jobs.chains.take_ready(job)
            self._withdraw(job)
            self._finish(job, Outcome.DELETED, effects)
            if job.key is not None:
                effects.gone[offset] = job.key
        elif job is not None and message is not None:
            if self.jobs.change is not None:
                self.jobs.change.read_again(message)
            self._is_back(job)
        return self._with_refills(effects)

    @property
    def refills_due(self) -> bool:
        """True if there is room for something that is to be read again, and nobody was told."""
        return bool(self.jobs.residency.refills) and not self.closed

    def take_refills(self) -> Effects:
        """What ``refills_due`` says."""
        return self._with_refills(Effects())

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
        return self.may_unlock(now_ns) and not self._dead_lettering

    def snapshot(self, *, now_ns: int = 0) -> Snapshot:
        """What the next owner must know to repeat nothing that is finished."""
        jobs = self.jobs.snapshot(self.epoch, self.leases.attempts, self.lease_times(now_ns))
        return replace(
            jobs,
            parked=dict(self.parked),
            longest_lease_ms=self.raised_lease_ms,
            paused=dict(self.recorded_pauses),
            keys=self.recorded_keys,
            anchor=self.anchor,
        )

    @property
    def recorded_pauses(self) -> Noted[bytes | None, PausedKey]:
        """What of ``paused`` stands in its own records."""
        return self.paused if self.origin is self else _NO_PAUSES

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
            blocked=unfinished - ready - leased - retrying - len(self._dead_lettering),
            keys=len(self.jobs.by_key),
            spilled=self.jobs.spilled,
            held_bytes=self.jobs.window.used_bytes,
            base=self.committable,
            committed=self.committed,
            position=self.position,
            end=max(self.end_offset, self.position),
            draining=self.draining,
            paused=len(self.recorded_pauses) - (EVERYTHING in self.recorded_pauses),
            paused_whole=EVERYTHING in self.paused,
            near_retention=len(self.near_retention),
            records_damaged=self.records_damaged,
            recreated=self.recreated,
            trouble="; ".join(filter(None, (self.record_trouble, self.copy_trouble))),
            key_rule=str(self.key_record.rule),
            key_version=self.key_record.version,
            older=self.jobs.older,
            key_change=self.key_change_in_words,
            reading_paused=self._reading_paused,
            oldest_ms=None if oldest is None else self.jobs.residency.down.stored_ms(oldest),
            most_attempts=max(self.leases.attempts.values(), default=0),
            window_used=self.jobs.residency.taken / self.rules.max_jobs,
            committed_ns=self.committed_ns,
        )

    def __repr__(self) -> str:
        return f"<QueuePipeline {self.statistics()}>"
