"""One owned queue: everything the proxy knows of it. Events in, effects out; pure.

A pipeline lives as long as one ownership period. Losing the orderly lock drops the object whole,
so nothing of an old period can leak into a new one.
"""

from __future__ import annotations

from collections.abc import Collection, Container, Iterable, Mapping

from broker_core.names import QueueName
from broker_core.remoting.message import StoredMessage
from proxy.core.effects import Effects, Nack, Outcome, PipelineStatistics
from proxy.core.failures import Failures
from proxy.core.flow_window import Budget, FlowWindow
from proxy.core.ids import Epoch, LeaseId, qid_text
from proxy.core.job_chains import REACTIVATION_BURST, Job, JobState
from proxy.core.order_key import QUEUE_CHAIN, MissingKey
from proxy.core.ownership_record import Snapshot
from proxy.core.pull_buffer import Holder, Lease, PullBuffer
from proxy.core.queue_jobs import QueueJobs, Refill
from proxy.core.retry_policy import MS
from proxy.core.rules import TopicRules


class QueuePipeline:
    """The chains, leases and offsets of one queue in one ownership period. All times are ns."""

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
    ) -> None:
        """*resume* is what the ownership records say; nothing is handed out before *hold*."""
        self.queue, self.epoch = queue, epoch
        self.qid = qid_text(queue, period)
        self.rules = rules
        self.committed = committed
        self.end_offset = max(start_offset, committed)  # as the broker last said; kept by upstream
        self.trusted_until_ns = trusted_until_ns
        self.doubtful = False  # the lock may be forgotten: hand out nothing until that is known
        self.hold_until_ns = hold_until_ns
        self.draining = False
        self.extensions_refused = False
        self.closed = False
        self._buffer = PullBuffer(leases_of_group)
        self.jobs = QueueJobs(
            start_offset,
            window=FlowWindow(rules.max_jobs, memory),
            max_jobs_per_key=rules.max_jobs_per_key,
            resume=resume,
        )
        self._dead_lettering: set[int] = set()  # offsets whose copies are being stored
        self._failures = Failures(rules.retry, {} if resume is None else resume.attempts)
        self._offered_in_a_row = 0

    # ---- reading; caller: queue reader ---------------------------------------------------------

    @property
    def position(self) -> int:
        """The next offset to read."""
        return self.jobs.position

    def room(self, *, demand: bool = False) -> int:
        """How many more messages may be read now; 0 pauses reading.

        *demand*: clients wait, and for them reading goes on past jobs that nobody can have now.
        """
        if self.draining or self.closed:
            return 0
        return self.jobs.room(demand=demand and self.rules.order_key.has_many_keys)

    def on_messages(self, messages: Iterable[StoredMessage], *, next_offset: int) -> Effects:
        """Messages were read; the next read starts at *next_offset*. Re-read ones are passed over,
        and all of them once the pipeline drains or is closed: the next owner reads them.

        Affects: chains, tracker, window.
        """
        effects = Effects()
        if self.draining or self.closed:
            return effects
        for message in messages:
            offset = message.queue_offset
            if offset < self.jobs.position:
                continue
            if self.jobs.knows(offset):
                self.jobs.pass_over(offset)
            elif self.rules.tags is not None and message.tag not in self.rules.tags:
                self.jobs.pass_over(offset)
                effects.finished.append((offset, Outcome.FILTERED))
            else:
                self._admit(message, effects)
        self.jobs.advance(next_offset)
        return self._with_refills(effects)

    def _admit(self, message: StoredMessage, effects: Effects) -> None:
        job = self._job(message)
        if job.key is None and self.rules.order_key.text is not None:
            effects.missing_keys += 1
            if self.rules.missing_key is MissingKey.DEAD_LETTER:
                self.jobs.hold(job)
                job.move(JobState.NEW, JobState.RUNNING)  # it never was ready: nobody may poll it
                job.reason = f"no order key at {self.rules.order_key.text}"
                self._give_up(job, effects)
                return
            if self.rules.missing_key is MissingKey.BY_QUEUE:
                job.key = QUEUE_CHAIN
        self.jobs.admit(job)

    def _job(self, message: StoredMessage) -> Job:
        offset = message.queue_offset
        job = Job(offset, self.rules.order_key.of(message), message, len(message.body))
        job.attempts = self.attempts.get(offset, 0)
        return job

    def refilled(self, refill: Refill, messages: Iterable[StoredMessage]) -> Effects:
        """Spilled messages were read again; those that are not there any more are finished."""
        if self.closed:
            return Effects()
        effects = Effects()
        jobs = {message.queue_offset: self._job(message) for message in messages}
        for job in jobs.values():
            job.key = refill.key  # the policy for missing keys has spoken
        self.jobs.refilled(refill, [jobs[each] for each in refill.offsets if each in jobs])
        gone = (offset for offset in refill.offsets if offset not in jobs)
        effects.finished += [(offset, Outcome.DELETED) for offset in gone]
        return self._with_refills(effects)

    def _with_refills(self, effects: Effects) -> Effects:
        effects.refills += self.jobs.take_refills()
        return effects

    # ---- handing out; caller: group buffer ------------------------------------------------------

    def may_hand_out(self, now_ns: int) -> bool:
        """False while draining or in doubt, while a take-over waits, and once trust has lapsed."""
        return (
            not (self.draining or self.doubtful or self.closed)
            and self.hold_until_ns <= now_ns < self.trusted_until_ns
        )

    @property
    def ready(self) -> int:
        """Jobs that ``lease`` would give, were handing out allowed."""
        return self._buffer.offered + self.jobs.ready

    def lease(self, *, max_jobs: int, max_bytes: int, now_ns: int, holder: Holder) -> list[Lease]:
        """Up to *max_jobs* jobs for *holder*, of distinct keys; the last may overshoot *max_bytes*.

        Affects: chains, buffer.
        """
        leases: list[Lease] = []
        if not self.may_hand_out(now_ns):
            return leases
        body_bytes = 0
        deadline_ns = now_ns + self.rules.visibility_ns
        while len(leases) < max_jobs and body_bytes < max_bytes:
            job = self._next_job()
            if job is None:
                break
            body_bytes += job.body_bytes
            leases.append(self._buffer.grant(job, holder=holder, deadline_ns=deadline_ns))
        return leases

    def _next_job(self) -> Job | None:
        """Jobs offered again go first, but have no monopoly, or a client that hands its jobs back
        at once would starve all other keys.
        """
        if self._buffer.offered and (
            self._offered_in_a_row < REACTIVATION_BURST or not self.jobs.ready
        ):
            self._offered_in_a_row += 1
            return self._buffer.take_offered()
        self._offered_in_a_row = 0
        return self.jobs.poll()

    # ---- verdicts; caller: group lane -----------------------------------------------------------

    def lease_of(self, lease_id: LeaseId) -> Lease | None:
        """The lease of that id, if it is alive."""
        return self._buffer.live(lease_id)

    def settle(
        self,
        *,
        acked: Iterable[LeaseId] = (),
        nacked: Iterable[Nack] = (),
        released: Iterable[LeaseId] = (),
        now_ns: int,
    ) -> Effects:
        """Apply verdicts by lease id. One on a lease that is not live finishes nothing: fenced.

        Affects: chains (successors become ready), buffer, tracker, window.
        """
        effects = self.on_time(now_ns=now_ns)
        for lease_id in acked:
            if lease := self._live(lease_id, effects):
                effects.acked.append(lease)
                self._finish(self._buffer.end(lease), Outcome.OK, effects)
        for nack in nacked:
            if lease := self._live(nack.lease_id, effects):
                effects.nacked.append(lease)
                self._failed(self._buffer.end(lease), nack=nack, now_ns=now_ns, effects=effects)
        for lease_id in released:
            if lease := self._live(lease_id, effects):
                effects.released.append(lease)
                job = self._buffer.end(lease)
                job.attempts -= 1  # handed back unhandled: it does not count
                self._buffer.offer(job)
        return self._with_refills(effects)

    def settle_by_offset(
        self,
        *,
        success: Iterable[int],
        failed: Iterable[int],
        connection: int,
        open_connections: Container[int],
        now_ns: int,
    ) -> Effects:
        """Apply the verdicts of a client that knows no lease ids (DDMQ's own).

        An offset counts if it comes on the connection that holds its lease, or on one that never
        held it while all its leases went to one connection that is now closed: a client that
        reconnected. Anything else is fenced.
        """
        effects = self.on_time(now_ns=now_ns)
        nack_of: dict[int, Nack | None] = {offset: Nack(LeaseId(0)) for offset in failed}
        nack_of.update(dict.fromkeys(success))  # success wins
        for offset, nack in nack_of.items():
            lease = self._buffer.live_at(offset)
            if lease is None or not lease.may_be_settled_on(connection, open_connections):
                effects.fenced.append(offset)
            elif nack is None:
                effects.acked.append(lease)
                self._finish(self._buffer.end(lease), Outcome.OK, effects)
            else:
                effects.nacked.append(lease)
                self._failed(self._buffer.end(lease), nack=nack, now_ns=now_ns, effects=effects)
        return self._with_refills(effects)

    def extend(self, lease_ids: Iterable[LeaseId], *, ms: int, now_ns: int) -> list[LeaseId]:
        """Let leases run *ms* from now, one visibility timeout at most; returns those not held.

        None is extended once trust has lapsed: the next owner waits for no lease that was granted
        later than that.
        """
        deadline_ns = now_ns + min(ms * MS, self.rules.visibility_ns)
        refused = self.extensions_refused or now_ns >= self.trusted_until_ns
        not_held = []
        for lease_id in lease_ids:
            lease = self._buffer.live(lease_id)
            if refused or lease is None or lease.deadline_ns <= now_ns:
                not_held.append(lease_id)
            else:
                self._buffer.extend(lease, deadline_ns)
        return not_held

    def return_unsent(self, leases: Collection[Lease]) -> list[Lease]:
        """Their answer was never written: offer the jobs again, uncounted; returns the live."""
        live = [lease for lease in leases if self.lease_of(lease.lease_id) is lease]
        for lease in live:
            job = self._buffer.end(lease)
            job.attempts -= 1
            self._buffer.offer(job)
        return live

    def dead_lettered(self, job: Job) -> Effects:
        """The copy of *job* is stored: finish it, and let its key go on (if not closed by now)."""
        effects = Effects()
        if self.closed:
            return effects
        self._dead_lettering.remove(job.offset)
        self._finish(job, Outcome.DEAD_LETTERED, effects)
        return self._with_refills(effects)

    # ---- time; caller: group lane ---------------------------------------------------------------

    def on_time(self, *, now_ns: int) -> Effects:
        """End the leases whose deadline has come; offer the jobs whose retry is due.

        An expired job is offered again at once, or given up if its hand-outs are used up.
        """
        effects = Effects()
        for lease in self._buffer.expired(now_ns):
            effects.expired.append(lease)
            self._failed(lease.job, nack=None, now_ns=now_ns, effects=effects)
        self._buffer.offer_due(now_ns)
        return self._with_refills(effects)

    def next_due_ns(self, now_ns: int) -> int | None:
        """When ``on_time`` has something to do, or a waiting take-over may begin to hand out."""
        due = self._buffer.next_due_ns()
        if self.hold_until_ns > now_ns:
            due = self.hold_until_ns if due is None else min(due, self.hold_until_ns)
        return due

    # ---- ownership and commits; caller: ownership, committer ------------------------------------

    @property
    def committable(self) -> int:
        """The next offset that the group needs: never above the lowest unfinished one."""
        return self.jobs.committable

    def drain(self) -> None:
        """Read and hand out nothing more; verdicts on what is leased still count."""
        self.draining = True

    @property
    def leases_end_ns(self) -> int:
        """When the last of its live leases ends; 0 without any. O(leases)."""
        return self._buffer.last_deadline_ns

    def may_unlock(self, now_ns: int) -> bool:
        """True if no lease is alive, nor may be one of the owner before: a clean end, if now.

        The next owner does not wait after a clean end, so it must not come during our own wait.
        """
        return not self._buffer.leased and self.hold_until_ns <= now_ns

    def drained(self, now_ns: int) -> bool:
        """True once the queue may be unlocked and no dead letter is on its way."""
        return self.may_unlock(now_ns) and not self._dead_lettering

    @property
    def attempts(self) -> Mapping[int, int]:
        """Hand-outs by offset of the unfinished jobs that failed at least once."""
        return self._failures.attempts

    def snapshot(self) -> Snapshot:
        """What the next owner must know to repeat nothing that is finished."""
        return self.jobs.snapshot(self.epoch, self.attempts)

    def close(self) -> None:
        """Drop the pipeline: nothing more is handed out, nothing it held counts any longer."""
        self.closed = True
        self.jobs.window.clear()
        self._buffer.clear()

    def statistics(self) -> PipelineStatistics:
        """A frozen record of this moment."""
        unfinished, ready = self.jobs.unfinished, self.ready
        leased, retrying = self._buffer.leased, self._buffer.waiting
        return PipelineStatistics(
            queue=self.queue,
            epoch=self.epoch,
            unfinished=unfinished,
            ready=ready,
            leased=leased,
            retrying=retrying,
            blocked=unfinished - ready - leased - retrying - len(self._dead_lettering),
            keys=self.jobs.keys,
            spilled=self.jobs.spilled,
            body_bytes=self.jobs.window.used_bytes,
            base=self.committable,
            committed=self.committed,
            position=self.position,
            end=max(self.end_offset, self.position),
            draining=self.draining,
        )

    # ---- inside ----------------------------------------------------------------------------------

    def _live(self, lease_id: LeaseId, effects: Effects) -> Lease | None:
        if (lease := self._buffer.live(lease_id)) is None:
            effects.fenced.append(lease_id)
        return lease

    def _finish(self, job: Job, outcome: Outcome, effects: Effects) -> None:
        self.jobs.finish(job)
        self._failures.forget(job.offset)
        job.message = None  # whoever still holds the job must not hold the body
        effects.finished.append((job.offset, outcome))

    def _failed(self, job: Job, *, nack: Nack | None, now_ns: int, effects: Effects) -> None:
        """A hand-out of *job* failed: by its client's *nack*, or (None) by its lease's expiry."""
        next_try_ns = self._failures.next_try_ns(job, nack, now_ns=now_ns)
        if next_try_ns is None:
            self._give_up(job, effects)
        elif nack is None:
            self._buffer.offer(job)
        else:
            self._buffer.retry_at(job, next_try_ns)

    def _give_up(self, job: Job, effects: Effects) -> None:
        self._dead_lettering.add(job.offset)
        effects.dead_letters.append(job)

    def __repr__(self) -> str:
        return f"<QueuePipeline {self.statistics()}>"
