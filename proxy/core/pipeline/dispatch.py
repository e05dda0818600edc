"""From ready jobs to leases: which go out, and through which actions. Pure.

``settlement`` handles the ends of leases.
"""

from __future__ import annotations

from collections.abc import Callable, Collection

from proxy.actions.document import Subject
from proxy.actions.pipeline import Dropped, Failed, Passed
from proxy.core.jobs.chains import REACTIVATION_BURST, RUNNING, Job
from proxy.core.jobs.jobs import Jobs
from proxy.core.jobs.window import Budget
from proxy.core.keys.topic_rules import TopicRules
from proxy.core.leases.lease_book import Holder, Lease, LeaseBook
from proxy.core.leases.verdicts import Outcome
from proxy.core.pipeline.actions import MAX_WORK, PASSED, Acted, Unreported, work_of
from proxy.core.pipeline.exhausted import OnExhausted
from proxy.core.pipeline.observations import Observations
from proxy.core.pipeline.pauses import Pauses
from proxy.core.pipeline.settlement import Settlement


class Dispatch:
    """Chooses ready jobs of one queue and leases them. All times are ns.

    Caller: the pipeline, while its queue may hand out. Affects: chains, leases, pauses; through
    actions, and what an owner before had given up, also what settlement affects.
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
        """*subject_of* is a job as its actions see it; the parts are those of one pipeline."""
        self._rules = rules
        self._jobs, self._leases, self._pauses = jobs, leases, pauses
        self._exhausted, self._settlement, self._observed = exhausted, settlement, observed
        self._subject_of = subject_of
        self._held = exhausted.held
        self._failures, self._held_back = leases.failures, leases.held_back
        #: Where ready jobs wait: offered again, new, reactivated; ``stale`` entries of the latter
        #: two are none. As they are at any time.
        self.ready_queues = (leases.offered, *jobs.chains.queues)
        #: What became of jobs that ``lease`` did not give.
        self.unreported = Unreported()
        self._work = Budget(MAX_WORK)
        self._offered_in_a_row = 0

    def share_work(self, work: Budget) -> None:
        """Count what actions look at in *work*, as other queues of the group do in one pull."""
        self._work = work

    def change_rules(self, rules: TopicRules) -> None:
        """Go on by *rules* from the next hand-out on."""
        self._rules = rules

    def lease(
        self, max_jobs: int, max_bytes: int, now_ns: int, holder: Holder, deadline_ns: int
    ) -> list[Lease]:
        """Up to *max_jobs* jobs for *holder*, of distinct keys; the last may overshoot *max_bytes*.

        What became of others, by actions or because an owner before had given them up, is there
        in ``unreported``.
        """
        leases: list[Lease] = []
        wire_bytes = 0
        offered, new, reactivated = self.ready_queues
        if (ready := len(offered) + len(new) + len(reactivated)) < max_jobs:
            max_jobs = ready
        work, grant, held = self._work, self._leases.grant, self._held
        if offered:
            next_job = self._poll
        else:  # mostly; nothing is offered meanwhile
            self._offered_in_a_row, next_job = 0, self._jobs.chains.poll
        some_stay = self._pauses.keys or self._held_back.numbers or self._failures.given_up
        acts = self._rules.actions.each
        since_ns: list[int] = []
        keys: list[bytes | None] = []
        while len(leases) < max_jobs and wire_bytes < max_bytes and work.used < work.limit:
            job = next_job()
            if job is None:
                break
            if job.state is not RUNNING or (held and job.key in held):
                continue  # it was copied, or is going to be, or was put back
            message, made_body = job.message, None
            if message is None and self._is_set_down(job):
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
            since_ns.append(job.since_ns)
            keys.append(job.key)
        observed = self._observed
        observed.measures.queue_wait.note_since(since_ns, now_ns)
        observed.hot.note(keys, now_ns=now_ns)
        if observed.noted_keys:
            observed.handed_out(leases)
        return leases

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
        keys = [each.job.key for each in followers]
        self._observed.hot.note(keys, now_ns=self._observed.now.ns)
        self._observed.handed_out(followers)
        return [lease for run in runs.values() for lease in run]

    # ---- inside ----------------------------------------------------------------------------------

    def _poll(self) -> Job | None:
        """The job whose turn it is. Jobs offered again go first, but have no monopoly, or a client
        that hands its jobs back at once would starve all other keys: of (REACTIVATION_BURST + 1)²
        jobs in a row there is one of each kind that is ready, offered, reactivated and new, the
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
        """True if *job*, whose turn has come, is not handed out now: its key is paused, a client of
        the owner before may have it, or that owner had given it up.
        """
        if self._pauses.keys and self._settlement.set_aside(job):
            return True
        if (due_ns := self._held_back.numbers.get(job.offset, 0)) > now_ns:
            self._settlement.retry_at(job, due_ns)
            return True
        if self._failures.given_up and self._failures.were_used_up(job.offset):
            job.note_reason("its hand-outs were used up before its owner ended")
            self._exhausted.give_up(job, self.unreported.effects)
            return True
        return False

    def _is_set_down(self, job: Job) -> bool:
        """True if the message of *job* has to be read first: it waited for older messages."""
        if not self._jobs.residency.read_back(job):
            return False
        _ = self.unreported.effects  # there is something to be told
        return True

    def _act(self, job: Job) -> Acted:
        """What the actions of the topic make of *job*; a body that nobody can read has failed."""
        acted: Acted = PASSED
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
