"""From ready jobs to leases: which go out, through which actions, and how a job ends. Pure.

``hand_outs`` has what becomes of leases.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence

from broker_core.names import QueueName
from proxy.actions.document import Subject
from proxy.actions.pipeline import Dropped, Failed, Passed
from proxy.core.jobs.chains import REACTIVATION_BURST, RUNNING, Job
from proxy.core.jobs.changes import Noted
from proxy.core.jobs.jobs import Jobs
from proxy.core.jobs.measures import Measures
from proxy.core.jobs.window import Budget
from proxy.core.keys.topic_rules import TopicRules
from proxy.core.leases.lease_book import Holder, Lease, LeaseBook
from proxy.core.leases.verdicts import Nack, Outcome
from proxy.core.pipeline.actions import MAX_WORK, PASSED, Acted, Unreported, work_of
from proxy.core.pipeline.effects import Effects
from proxy.core.pipeline.recent_keys import HotKeys, KeyEvent, KeyEvents
from proxy.core.records.paused_key import EVERYTHING, PausedKey


class HandingOut:
    """What leads to a lease, and what ends a job. All times are ns."""

    def __init__(
        self,
        jobs: Jobs,
        leases: LeaseBook,
        rules: TopicRules,
        *,
        trusted_until_ns: int,
        hold_until_ns: int,
    ) -> None:
        """Nothing is handed out before *hold*."""
        self.jobs = jobs
        self.rules = rules
        #: How long a lease may be by what the records say: the next owner waits no longer.
        self.longest_lease_ns = rules.visibility_ns
        self.trusted_until_ns = trusted_until_ns
        self.ended = False  # the last record is made, or about to be: verdicts count no more
        self.doubtful = False  # the lock may be forgotten: hand out nothing until that is known
        self.hold_until_ns = hold_until_ns
        self.draining = False
        self.extensions_refused = False
        self.closed = False
        self.leases = leases
        self._ready_queues = (leases.offered, *jobs.chains.queues)
        self._stale = jobs.chains.stale
        self._unreported = Unreported()
        #: What actions may look at in the present pull; the group buffer's.
        self.work = Budget(MAX_WORK)
        self._dead_lettering: set[int] = set()  # offsets whose copies are being stored
        self._failures = leases.failures
        self._held_back = leases.held_back
        #: Keys of which it is noted in ``_freed`` that a job ended, or went back.
        self._watched: Collection[bytes | None] = ()
        self._freed: set[bytes] = set()
        #: Keys that are paused, or ``EVERYTHING``; ``key_acts`` changes it.
        self.paused: Noted[bytes | None, PausedKey] = Noted()
        #: Who paused which queue of the group as a whole; the group buffer's.
        self.paused_queues: dict[QueueName, PausedKey] = {}
        self._set_aside: dict[bytes, Job] = {}  # what of paused keys would be handed out now
        self._hastened: set[int] = set()  # offsets of jobs that somebody retries, for a moment
        self._offered_in_a_row = 0
        self.hot = HotKeys()
        self.events = KeyEvents()
        self._noted_keys = self.events.keys
        self._now = jobs.chains.now
        self.measures = Measures()
        self.measured_by(self.measures)

    def at(self, now_ns: int) -> None:
        """What happens next happens *now*, where that is not said: for measures, and what is noted
        of keys. No decision depends on it. Caller: group lane.
        """
        self._now.ns = now_ns

    def measured_by(self, measures: Measures) -> None:
        """Add what is measured to *measures* from now on. Caller: group lane."""
        self.measures = measures
        self.jobs.chains.measured_by(measures)

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
        wanted_ns, longest_ns = self.rules.visibility_ns, self.longest_lease_ns
        return wanted_ns if wanted_ns < longest_ns else longest_ns

    @property
    def ready(self) -> int:
        """Jobs that ``lease`` would give, were handing out allowed; those of keys that were paused
        lately may be among them.
        """
        if EVERYTHING in self.paused:
            return 0
        offered, main, reactivated = self._ready_queues  # asked for at every message
        if self._stale:
            return len(offered) + self.jobs.chains.ready
        return len(offered) + len(main) + len(reactivated)

    def lease(self, *, max_jobs: int, max_bytes: int, now_ns: int, holder: Holder) -> list[Lease]:
        """Up to *max_jobs* jobs for *holder*, of distinct keys; the last may overshoot *max_bytes*.

        What became of others, by actions or because an owner before had given them up, is there
        for ``take_acted``.
        Affects: chains, buffer; through actions also tracker and window.
        """
        self._now.ns = now_ns
        leases: list[Lease] = []
        if not self.may_hand_out(now_ns):
            return leases
        wire_bytes = 0
        if (ready := sum(map(len, self._ready_queues))) < max_jobs:
            max_jobs = ready
        deadline_ns = now_ns + self.visibility_ns
        work, next_job, grant = self.work, self._next_job, self.leases.grant
        some_stay = self.paused or self._held_back.numbers or self._failures.given_up
        acts = self.rules.actions.each
        since_ns: list[int] = []
        keys: list[bytes | None] = []
        while len(leases) < max_jobs and wire_bytes < max_bytes and work.used < work.limit:
            job = next_job()
            if job is None:
                break
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
        self.measures.queue_wait.note_since(since_ns, now_ns)
        self.hot.note(keys, now_ns=now_ns)
        if self._noted_keys:
            self._note_hand_outs(leases)
        return leases

    def _stays(self, job: Job, *, now_ns: int) -> bool:
        """True if *job*, whose turn has come, is not handed out now: its key is paused, a client of
        the owner before may have it, or that owner had given it up.
        """
        if self.paused and job.key is not None and job.key in self.paused:
            self._set_aside[job.key] = job
            self.jobs.residency.down.nobody_has(job, paused=True)
        elif (due_ns := self._held_back.numbers.get(job.offset, 0)) > now_ns:
            self._retry_at(job, due_ns)
        elif self._failures.given_up and self._failures.were_used_up(job.offset):
            job.reason = "its hand-outs were used up before its owner ended"
            self._give_up(job, self._unreported.effects)
        else:
            return False
        return True

    def _is_set_down(self, job: Job) -> bool:
        """True if the message of *job* has to be read first: it waited for older messages."""
        if not self.jobs.residency.read_back(job):
            return False
        _ = self._unreported.effects  # there is something to be told
        return True

    def _retry_at(self, job: Job, due_ns: int) -> None:
        """Offer *job* again at *due_ns*; until then nobody can have it."""
        self.leases.retry_at(job, due_ns)
        self.jobs.residency.down.nobody_has(job, paused=False)

    def _offer(self, job: Job, since_ns: int = 0) -> None:
        """Somebody may have *job* again, once its message is there."""
        self.jobs.residency.down.somebody_may_have(job)
        if not self.jobs.residency.read_back(job):
            self.leases.offer(job, since_ns)

    def _is_back(self, job: Job) -> None:
        """The message of *job* was read again; what it waits for may be another thing by now."""
        if self.leases.due_ns(job.offset) is not None:
            self.jobs.residency.down.nobody_has(job, paused=False)
        elif job.key is not None and self._set_aside.get(job.key) is job:
            self.jobs.residency.down.nobody_has(job, paused=True)
        elif job.state is RUNNING and not (
            job.offset in self._hastened or job.offset in self._dead_lettering
        ):
            self.leases.offer(job, self._now.ns)

    def _note_hand_outs(self, leases: Collection[Lease]) -> None:
        """Who got what, of keys to which something happened lately."""
        for each in leases:
            if each.job.key in self._noted_keys:
                client = each.holder.client or f"connection {each.holder.connection}"
                self._note(each.job, "handed out", f"to {client}")

    def take_acted(self) -> Effects | None:
        """What became of jobs that ``lease`` did not give, told once; None: nothing.

        Affects: spilled chains.
        """
        if self._unreported.noted is None:
            return None
        return self._with_refills(self._unreported.take())

    def _act(self, job: Job) -> Acted:
        """What the actions of the topic make of *job*; a body that nobody can read has failed."""
        acted: Acted = PASSED
        if self.rules.actions.each:
            self.work.used += work_of(job)
            acted = self.rules.actions.run(self._subject(job))
        message = job.message
        if message is not None and message.body_is_compressed and acted == PASSED:
            return Failed(f"the body {message.why_compressed}")
        return acted

    def _subject(self, job: Job) -> Subject:
        """*job* as its actions see it."""
        raise NotImplementedError

    def _ended_by_action(self, job: Job, acted: Dropped | Failed, *, now_ns: int) -> None:
        effects, failure = self._unreported.ended(job, acted, origin=self._subject(job).offset)
        if failure is None:
            self._finish(job, Outcome.FILTERED, effects)
        else:
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
        followers: list[Lease] = []
        open_runs = [] if self.rules.retry.gives_up(1) else list(runs.values())
        while open_runs and max_jobs > 0 and max_bytes > 0:
            growing = []
            for run in open_runs:
                last = run[-1].job
                following = last.successor
                if max_jobs <= 0 or max_bytes <= 0 or len(run) >= max_run or last.attempts > 1:
                    continue
                if following is None or following.offset in self._held_back.numbers:
                    continue
                if following.attempts or not self.work.left:
                    continue
                acted = self._act(following)
                if isinstance(acted, Passed) and self.jobs.chains.follow(last):
                    run.append(self.leases.follow(run[-1], following, made_body=acted.body))
                    followers.append(run[-1])
                    max_jobs -= 1
                    max_bytes -= run[-1].wire_bytes
                    growing.append(run)
            open_runs = growing
        self.hot.note([each.job.key for each in followers], now_ns=self._now.ns)
        if self._noted_keys:
            self._note_hand_outs(followers)
        return [lease for run in runs.values() for lease in run]

    def _polled(self) -> Job | None:
        """Jobs offered again go first, but have no monopoly, or a client that hands its jobs back
        at once would starve all other keys: of (REACTIVATION_BURST + 1)² jobs in a row there is
        one of each kind that is ready, offered, reactivated and new, the oldest of its kind.
        """
        if self.leases.offered and (
            self._offered_in_a_row < REACTIVATION_BURST or not self.jobs.chains.ready
        ):
            self._offered_in_a_row += 1
            return self.leases.take_offered()
        self._offered_in_a_row = 0
        return self.jobs.chains.poll()

    #: The job whose turn it is. Some pass jobs over.
    _next_job = _polled

    # ---- ends of jobs ----------------------------------------------------------------------------

    def _acked(self, leases: Sequence[Lease], effects: Effects) -> None:
        """The jobs of *leases*, which have ended, were handled."""
        effects.acked += leases
        jobs: list[Job] = []
        granted_ns: list[int] = []
        for lease in leases:
            jobs.append(lease.job)
            granted_ns.append(lease.granted_ns)
        measures = self.measures
        measures.handler.note_since(granted_ns, self._now.ns)
        if not (self._noted_keys or self._failures.attempts):
            self.jobs.finish_all(jobs)
            finished, ok = effects.finished, Outcome.OK
            for job in jobs:
                job.message = None  # whoever still holds the job must not hold the body
                finished.append((job.offset, ok))
            # At the first hand-out: whatever failed before stands in _failures.
            measures.attempts.note_lowest(len(jobs))
            if self._watched:
                for job in jobs:
                    self._free(job)
        else:
            for job in jobs:
                self._finish(job, Outcome.OK, effects)

    def _finish(self, job: Job, outcome: Outcome, effects: Effects) -> None:
        if job.key in self._noted_keys or outcome is Outcome.SKIPPED:
            self._note(job, f"finished: {outcome.value}", "")
        self.jobs.finish(job)
        if job.attempts:
            self.measures.attempts.note(job.attempts)
        if self._failures.attempts:
            self._failures.forget(job.offset)
        job.message = None  # whoever still holds the job must not hold the body
        effects.finished.append((job.offset, outcome))
        self._free(job)

    def _free(self, job: Job) -> None:
        """Nobody has *job* any more, or nobody but the buffer."""
        if job.key is not None and job.key in self._watched:
            self._freed.add(job.key)

    def _failed(self, job: Job, *, nack: Nack | None, now_ns: int, effects: Effects) -> None:
        """A hand-out of *job* failed: by its client's *nack*, or (None) by its lease's expiry."""
        next_try_ns = self._failures.next_try_ns(job, nack, now_ns=now_ns)
        if next_try_ns is None:
            self._give_up(job, effects)
        elif nack is None:
            self.leases.offer(job, now_ns)
        else:
            self._retry_at(job, next_try_ns)
        self._free(job)
        self._note(job, "failed", job.reason)

    def _note(self, job: Job, what: str, detail: str) -> None:
        if job.key is not None:
            event = KeyEvent(self._now.ns, what, job.offset, job.attempts, detail)
            self.events.note(job.key, event)

    def _give_up(self, job: Job, effects: Effects) -> None:
        self._dead_lettering.add(job.offset)
        effects.dead_letters.append(job)

    def _with_refills(self, effects: Effects) -> Effects:
        if refills := self.jobs.residency.take_refills():
            effects.refills += refills
        return effects
