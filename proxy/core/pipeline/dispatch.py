"""Delivery of ready jobs: selection, actions and leases. Pure.

``settlement`` handles the ends of leases.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from operator import attrgetter

from proxy.actions.document import Subject
from proxy.actions.pipeline import Dropped, Failed, Passed
from proxy.core.jobs.chains import REACTIVATION_BURST, RUNNING, Job
from proxy.core.jobs.jobs import Jobs
from proxy.core.jobs.window import Budget
from proxy.core.keys.topic_rules import TopicRules
from proxy.core.leases.lease_book import Holder, Lease, LeaseBook
from proxy.core.leases.verdicts import Outcome
from proxy.core.pipeline.actions import MAX_WORK, PASSED, ActionResult, Unreported, work_of
from proxy.core.pipeline.exhausted import OnExhausted
from proxy.core.pipeline.observations import Observations
from proxy.core.pipeline.pauses import Pauses
from proxy.core.pipeline.settlement import Settlement

# Fields of many leases at once, without a step of the interpreter for each.
_since_ns_of, _key_of = attrgetter("job.since_ns"), attrgetter("job.key")


class Dispatch:
    """Selects ready jobs of one queue and leases them. All times are ns.

    Caller: the pipeline, while its queue may deliver. Affects: chains, leases, pauses; through
    actions, and jobs that an earlier owner gave up, also everything that settlement affects.
    """

    def __init__(
        self,
        rules: TopicRules,
        jobs: Jobs,
        leases: LeaseBook,
        pauses: Pauses,
        exhausted: OnExhausted,
        settlement: Settlement,
        observed: Observations,
        *,
        subject_of: Callable[[Job], Subject],
    ) -> None:
        """Use the components of one pipeline. *subject_of* returns a job as actions see it."""
        self._rules = rules
        self._jobs, self._leases, self.pauses = jobs, leases, pauses
        self._exhausted, self._settlement, self._observed = exhausted, settlement, observed
        self._subject_of = subject_of
        self.held = exhausted.held
        self._failures, self._held_back = leases.failures, leases.held_back
        #: Queues of ready jobs: offered again, new, reactivated; live views. The latter two may
        #: contain ``stale`` entries.
        self.ready_queues = (leases.offered, *jobs.chains.queues)
        #: Effects of jobs that ``lease`` did not return.
        self.unreported = Unreported()
        self._work = Budget(MAX_WORK)
        # A new period begins with a new job: otherwise, in a queue that moves often, those that
        # failed at earlier owners would come first each time.
        self._offered_in_a_row = REACTIVATION_BURST

    def share_work(self, work: Budget) -> None:
        """Count the work of actions in *work*, which queues of the group share in one pull."""
        self._work = work

    def change_rules(self, rules: TopicRules) -> None:
        """Apply *rules* from the next delivery on."""
        self._rules = rules

    def lease(
        self, max_jobs: int, max_bytes: int, now_ns: int, holder: Holder, deadline_ns: int
    ) -> list[Lease]:
        """Return up to *max_jobs* leases for *holder*, with distinct keys; the last one may exceed
        *max_bytes*.

        Effects on other jobs, which actions ended or an earlier owner gave up, are in
        ``unreported``.
        """
        leases: list[Lease] = []
        wire_bytes = 0
        offered, new, reactivated = self.ready_queues
        if max_jobs > 1 and (ready := len(offered) + len(new) + len(reactivated)) < max_jobs:
            max_jobs = ready
        work, grant, held = self._work, self._leases.grant_in_batch, self.held
        if offered:
            next_job = self._poll
        else:  # the usual case; nothing is offered meanwhile
            self._offered_in_a_row, next_job = 0, self._jobs.chains.poll
        some_stay = self.pauses.keys or self._held_back.numbers or self._failures.given_up
        acts = self._rules.actions.each
        while len(leases) < max_jobs and wire_bytes < max_bytes and work.used < work.limit:
            job = next_job()
            if job is None:
                break
            if job.state is not RUNNING or (held and job.key in held):
                continue  # it is copied, about to be copied, or was put back
            message, made_body = job.message, None
            if message is None and self._is_unloaded(job):
                continue
            if some_stay and self._stays(job, now_ns=now_ns):
                continue
            if acts or message is None or message.body_is_compressed:
                acted = self._act(job)
                if not isinstance(acted, Passed):
                    self._ended_by_action(job, acted, now_ns=now_ns)
                    continue
                made_body = acted.body
            lease = grant(job, holder, deadline_ns, made_body, now_ns)
            wire_bytes += lease.wire_bytes
            leases.append(lease)
        self._leases.leases_of_group.take(len(leases))
        observed = self._observed
        observed.measures.queue_wait.note_since([*map(_since_ns_of, leases)], now_ns)
        observed.hot.note(map(_key_of, leases), now_ns=now_ns)
        if observed.noted_keys:
            observed.handed_out(leases)
        return leases

    def lengthen(
        self, firsts: Collection[Lease], *, max_run: int, max_jobs: int, max_bytes: int
    ) -> list[Lease]:
        """Return the leases *firsts* followed by up to *max_jobs* more. Each is continued by
        successors of its key that never failed, *max_run* in all; keys take turns, so that none is
        left short.

        The expiry of a run counts as a delivery of each of its messages, so failed messages go
        alone: otherwise a message that kills its clients would use up the deliveries of its
        neighbours. A run ends before a message that actions do not pass unchanged, which is
        delivered alone.
        """
        runs = {lease.lease_id: [lease] for lease in firsts}
        followers: list[Lease] = []
        open_runs = [] if self._rules.retry.gives_up(1) else list(runs.values())
        follow = self._jobs.chains.follow
        while open_runs and max_jobs > 0 and max_bytes > 0:
            growing = []
            for run in open_runs:
                last = run[-1].job
                following = last.successor
                if max_jobs <= 0 or max_bytes <= 0 or len(run) >= max_run or last.attempts > 1:
                    continue
                if following is None or following.offset in self._held_back.numbers:
                    continue
                if following.attempts or not self._work.left:
                    continue
                acted = self._act(following)
                if isinstance(acted, Passed) and follow(last):
                    run.append(self._leases.follow(run[-1], following, made_body=acted.body))
                    followers.append(run[-1])
                    max_jobs -= 1
                    max_bytes -= run[-1].wire_bytes
                    growing.append(run)
            open_runs = growing
        self._observed.hot.note(map(_key_of, followers), now_ns=self._observed.now.ns)
        self._observed.handed_out(followers)
        return [lease for run in runs.values() for lease in run]

    # ---- internals -------------------------------------------------------------------------------

    def _poll(self) -> Job | None:
        """Return the next job. Jobs offered again have priority, but no monopoly; otherwise a
        client that returns its jobs at once would starve all other keys. Among (REACTIVATION_BURST
        + 1)² jobs in a row there is one of each available kind (offered, reactivated and new), the
        oldest of its kind.
        """
        chains = self._jobs.chains
        if self._leases.offered and (
            self._offered_in_a_row < REACTIVATION_BURST or not chains.ready
        ):
            self._offered_in_a_row += 1
            return self._leases.take_offered()
        self._offered_in_a_row = 0
        return chains.poll()

    def _stays(self, job: Job, *, now_ns: int) -> bool:
        """Return True if *job* cannot be delivered now: its key is paused, a client of the earlier
        owner may have it, or that owner had given it up.
        """
        if self.pauses.keys and self._settlement.set_aside(job):
            return True
        if (due_ns := self._held_back.numbers.get(job.offset, 0)) > now_ns:
            self._settlement.retry_at(job, due_ns)
            return True
        if self._failures.given_up and self._failures.were_used_up(job.offset):
            job.note_reason("its deliveries were used up before its owner ended")
            self._exhausted.give_up(job, self.unreported.effects)
            return True
        return False

    def _is_unloaded(self, job: Job) -> bool:
        """Return True if *job* is unloaded and its message must be read first."""
        if not self._jobs.residency.read_back(job):
            return False
        _ = self.unreported.effects  # so that the refill is reported
        return True

    def _act(self, job: Job) -> ActionResult:
        """Run the topic's actions on *job*; a body that cannot be inflated counts as failed."""
        acted: ActionResult = PASSED
        if self._rules.actions.each:
            self._work.take(work_of(job))
            acted = self._rules.actions.run(self._subject_of(job))
        message = job.message
        if message is not None and message.body_is_compressed and acted == PASSED:
            return Failed(f"the body {message.why_compressed}")
        return acted

    def _ended_by_action(self, job: Job, acted: Dropped | Failed, *, now_ns: int) -> None:
        origin = self._subject_of(job).offset
        effects, failure = self.unreported.ended(job, acted, origin=origin)
        if failure is None:
            self._settlement.finish(job, Outcome.FILTERED, effects)
        else:
            self._settlement.failed(job, nack=failure, now_ns=now_ns, effects=effects)
