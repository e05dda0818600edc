"""What of one queue is in the hands of clients: leases, runs, verdicts, retries. Pure.

A *run* is several consecutive jobs of a key that one client got together. It is one lease in
effect: extended, expired and given back as one. Verdicts in it count in its order: one on a later
job waits until those ahead are finished, and at the first that fails the rest goes back, unhandled.
"""

from __future__ import annotations

from collections.abc import Collection, Container, Iterable, Mapping

from proxy.actions.document import Subject
from proxy.actions.pipeline import Dropped, Failed, Passed
from proxy.core.acting import MAX_WORK, PASSED, Acted, Unreported, work_of
from proxy.core.effects import Effects, Nack, Outcome
from proxy.core.failures import Failures
from proxy.core.flow_window import Budget
from proxy.core.ids import LeaseId
from proxy.core.job_chains import REACTIVATION_BURST, Job
from proxy.core.paused_key import EVERYTHING, PausedKey
from proxy.core.pull_buffer import Holder, Judged, Lease, Plain, PullBuffer, at_expiry
from proxy.core.queue_jobs import QueueJobs
from proxy.core.retry_policy import MS
from proxy.core.rules import TopicRules


class HandOuts:
    """The running jobs of one queue in one ownership period. All times are ns."""

    def __init__(
        self,
        jobs: QueueJobs,
        rules: TopicRules,
        *,
        trusted_until_ns: int,
        hold_until_ns: int,
        leases_of_group: Budget,
        attempts: Mapping[int, int],
        held_back_ns: Mapping[int, int],
    ) -> None:
        """*attempts* are those of earlier periods; nothing is handed out before *hold*, and no job
        before what *held_back* says for its offset: a client may have it still.
        """
        self.jobs = jobs
        self.rules = rules
        #: How long a lease may be by what the records say: the next owner waits no longer.
        self.longest_lease_ns = rules.visibility_ns
        self.trusted_until_ns = trusted_until_ns
        self.doubtful = False  # the lock may be forgotten: hand out nothing until that is known
        self.hold_until_ns = hold_until_ns
        self.draining = False
        self.extensions_refused = False
        self.closed = False
        self._buffer = PullBuffer(leases_of_group, jobs.window.memory)
        self._unreported = Unreported()
        #: What actions may look at in the present pull; the group buffer's.
        self.work = Budget(MAX_WORK)
        self._dead_lettering: set[int] = set()  # offsets whose copies are being stored
        self._failures = Failures(rules.retry, attempts)
        self._held_back_ns = dict(held_back_ns)
        #: Keys that are paused, or ``EVERYTHING``; ``key_acts`` changes it.
        self.paused: dict[bytes | None, PausedKey] = {}
        self._set_aside: dict[bytes, Job] = {}  # what of paused keys would be handed out now
        self._offered_in_a_row = 0

    # ---- handing out; caller: group buffer ------------------------------------------------------

    def may_hand_out(self, now_ns: int) -> bool:
        """False while draining or in doubt, while a take-over waits, and once trust has lapsed."""
        return (
            not (self.draining or self.doubtful or self.closed or EVERYTHING in self.paused)
            and self.hold_until_ns <= now_ns < self.trusted_until_ns
        )

    @property
    def visibility_ns(self) -> int:
        """How long a lease is: as the rules say, once a record does."""
        return min(self.rules.visibility_ns, self.longest_lease_ns)

    @property
    def ready(self) -> int:
        """Jobs that ``lease`` would give, were handing out allowed; those of keys that were paused
        lately may be among them.
        """
        return 0 if EVERYTHING in self.paused else self._buffer.offered + self.jobs.ready

    def lease(self, *, max_jobs: int, max_bytes: int, now_ns: int, holder: Holder) -> list[Lease]:
        """Up to *max_jobs* jobs for *holder*, of distinct keys; the last may overshoot *max_bytes*.

        What actions did to others is there for ``take_acted``.
        Affects: chains, buffer; through actions also tracker and window.
        """
        leases: list[Lease] = []
        if not self.may_hand_out(now_ns):
            return leases
        body_bytes = 0
        deadline_ns = now_ns + self.visibility_ns
        while len(leases) < max_jobs and body_bytes < max_bytes and self.work.left:
            job = self._next_job()
            if job is None:
                break
            if self.paused and job.key is not None and job.key in self.paused:
                self._set_aside[job.key] = job
                continue
            if (due_ns := self._held_back_ns.get(job.offset, 0)) > now_ns:
                self._buffer.retry_at(job, due_ns)
                continue
            acted = self._act(job)
            if not isinstance(acted, Passed):
                self._ended_by_action(job, acted, now_ns=now_ns)
                continue
            lease = self._buffer.grant(
                job, holder=holder, deadline_ns=deadline_ns, made_body=acted.body
            )
            body_bytes += lease.body_bytes
            leases.append(lease)
        return leases

    def take_acted(self) -> Effects | None:
        """What actions did to jobs that ``lease`` did not give, told once; None: nothing.

        Affects: spilled chains.
        """
        effects = self._unreported.take()
        return None if effects is None else self._with_refills(effects)

    def _act(self, job: Job) -> Acted:
        """What the actions of the topic make of *job*."""
        if not self.rules.actions:
            return PASSED
        self.work.used += work_of(job)
        return self.rules.actions.run(self._subject(job))

    def _subject(self, job: Job) -> Subject:
        """*job* as its actions see it."""
        raise NotImplementedError

    def _ended_by_action(self, job: Job, acted: Dropped | Failed, *, now_ns: int) -> None:
        if isinstance(acted, Dropped):
            effects = self._unreported.effects()
            effects.filtered_by[job.offset] = acted.by
            self._finish(job, Outcome.FILTERED, effects)
        else:
            effects = self._unreported.failed(job, acted.reason)
            failure = Nack(LeaseId(0), reason=acted.reason)
            self._failed(job, nack=failure, now_ns=now_ns, effects=effects)

    def lengthen(
        self, firsts: Collection[Lease], *, max_run: int, max_jobs: int, max_bytes: int
    ) -> list[Lease]:
        """The leases *firsts* with up to *max_jobs* more: each with those of its key that follow,
        *max_run* in all, none of which failed before. All keys in turn, so that none is left short.

        A run that ends by expiry counts as a hand-out of each of it, so what failed goes alone:
        else one that kills its clients would use up the hand-outs of those beside it. A run ends
        before what actions do not let pass: that has its turn alone.
        """
        runs = {lease.lease_id: [lease] for lease in firsts}
        open_runs = [] if self.rules.retry.gives_up(1) else list(runs.values())
        while open_runs and max_jobs > 0 and max_bytes > 0:
            growing = []
            for run in open_runs:
                last = run[-1].job
                following = last.successor
                if max_jobs <= 0 or max_bytes <= 0 or len(run) >= max_run or last.attempts > 1:
                    continue
                if following is None or following.offset in self._held_back_ns:
                    continue
                if following.attempts or not self.work.left:
                    continue
                acted = self._act(following)
                if isinstance(acted, Passed) and self.jobs.follow(last):
                    run.append(self._buffer.follow(run[-1], following, made_body=acted.body))
                    max_jobs -= 1
                    max_bytes -= run[-1].body_bytes
                    growing.append(run)
            open_runs = growing
        return [lease for run in runs.values() for lease in run]

    def _next_job(self) -> Job | None:
        """Jobs offered again go first, but have no monopoly, or a client that hands its jobs back
        at once would starve all other keys: of (REACTIVATION_BURST + 1)² jobs in a row there is
        one of each kind that is ready, offered, reactivated and new, the oldest of its kind.
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
        In a run it waits for those ahead of its lease; all behind one that failed go back.

        Affects: chains (successors become ready), buffer, tracker, window.
        """
        effects = self.on_time(now_ns=now_ns)
        expired = len(effects.released)  # so many ended with a run that did
        for lease_id in acked:
            self._judge(self._live(lease_id, effects), Plain.ACK, effects, now_ns=now_ns)
        for nack in nacked:
            self._judge(self._live(nack.lease_id, effects), nack, effects, now_ns=now_ns)
        given_back = {lease.lease_id for lease in effects.released[expired:]}  # the rest of runs
        for lease_id in released:
            if lease_id not in given_back:
                lease = self._live(lease_id, effects)
                given_back.update(self._judge(lease, Plain.RELEASE, effects, now_ns=now_ns))
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
            else:
                self._judge(lease, nack or Plain.ACK, effects, now_ns=now_ns)
        return self._with_refills(effects)

    def extend(self, lease_ids: Iterable[LeaseId], *, ms: int, now_ns: int) -> list[LeaseId]:
        """Let leases run *ms* from now, one visibility timeout at most; returns those not held.

        None is extended once trust has lapsed: the next owner waits for no lease that was granted
        later than that.
        """
        deadline_ns = now_ns + min(ms * MS, self.visibility_ns)
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
            if self.lease_of(lease.lease_id) is lease:  # it did not go with the head of its run
                ended = self._buffer.end(lease)
                if not lease.run:  # else it followed one that is alive
                    self._take_back(ended.pop(0).job)
                self._unfollow(ended)
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

        An expired job is offered again at once, or given up if its hand-outs are used up. One whose
        answer was never written is offered uncounted; so are those of a run that its client had
        given back, though one ahead of them was open.
        """
        effects = Effects()
        for first, *behind in self._buffer.expired(now_ns):
            if first.unsent:
                effects.unsent += [first, *behind]
                self._take_back(first.job)
                self._unfollow(behind)
                continue
            handled, unhandled = at_expiry(behind)
            effects.expired += [first, *handled]
            for lease in handled:
                self._failures.next_try_ns(lease.job, None, now_ns=now_ns)  # it counts
                self.jobs.unfollow(lease.job)
            effects.released += unhandled
            self._unfollow(unhandled)
            self._failed(first.job, nack=None, now_ns=now_ns, effects=effects)
        self._buffer.offer_due(now_ns)
        if self._held_back_ns:
            held_back = self._held_back_ns.items()
            self._held_back_ns = {offset: due for offset, due in held_back if due > now_ns}
        return self._with_refills(effects)

    def next_due_ns(self, now_ns: int) -> int | None:
        """When ``on_time`` has something to do, or a waiting take-over may begin to hand out."""
        times = [due for due in self._held_back_ns.values() if due > now_ns]
        if (due := self._buffer.next_due_ns()) is not None:
            times.append(due)
        if self.hold_until_ns > now_ns:
            times.append(self.hold_until_ns)
        return min(times, default=None)

    def lease_times(self, now_ns: int) -> dict[int, int]:
        """By offset for how many ms from now clients may have what a hand-over leaves in their
        hands: leases of this period that are not extended any more, and of those before.
        """
        ends = dict(self._held_back_ns)
        if self.extensions_refused:
            ends |= {lease.job.offset: lease.deadline_ns for lease in self._buffer.leases()}
        return {offset: -((now_ns - end) // MS) for offset, end in ends.items() if end > now_ns}

    @property
    def attempts(self) -> Mapping[int, int]:
        """Hand-outs by offset of the unfinished jobs that failed at least once."""
        return self._failures.attempts

    # ---- inside ----------------------------------------------------------------------------------

    def _live(self, lease_id: LeaseId, effects: Effects) -> Lease | None:
        if (lease := self._buffer.live(lease_id)) is None:
            effects.fenced.append(lease_id)
        return lease

    def _judge(
        self, lease: Lease | None, verdict: Plain | Nack, effects: Effects, *, now_ns: int
    ) -> list[LeaseId]:
        """Do what *verdict* decides; returns the leases that went back with it."""
        judged: list[Judged] = [] if lease is None else list(self._buffer.judge(lease, verdict))
        for each in judged:
            if each.verdict is Plain.ACK:
                effects.acked.append(each.lease)
                self._finish(each.lease.job, Outcome.OK, effects)
                continue
            if each.verdict is Plain.RELEASE:
                effects.released.append(each.lease)
                self._take_back(each.lease.job)
            else:
                effects.nacked.append(each.lease)
                self._failed(each.lease.job, nack=each.verdict, now_ns=now_ns, effects=effects)
            effects.released += each.behind
            self._unfollow(each.behind)
        return [lease.lease_id for each in judged for lease in each.behind]

    def _take_back(self, job: Job) -> None:
        job.attempts -= 1  # handed back unhandled: it does not count
        self._buffer.offer(job)

    def _unfollow(self, leases: Iterable[Lease]) -> None:
        for lease in leases:
            lease.job.attempts -= 1
            self.jobs.unfollow(lease.job)

    def _withdraw(self, job: Job) -> None:
        """Hand *job*, which is running and of which no lease lives, out no more."""
        self._buffer.withdraw(job)
        if job.key is not None and self._set_aside.get(job.key) is job:
            del self._set_aside[job.key]

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

    def _with_refills(self, effects: Effects) -> Effects:
        effects.refills += self.jobs.take_refills()
        return effects
