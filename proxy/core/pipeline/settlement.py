"""Ends of deliveries of one queue, by verdict, by time or by an operator, and their effects. Pure.

A *run* is several consecutive jobs of a key, delivered together to one client. It is one lease in
effect: extended, expired and returned as one. Verdicts in it count in order: one on a later job
waits until those ahead are finished; after the first failure the rest is returned unhandled.
"""

from __future__ import annotations

from collections.abc import Collection, Container, Iterable, Sequence
from itertools import repeat
from operator import attrgetter

from proxy.core.jobs.chains import RUNNING, Job
from proxy.core.jobs.jobs import Jobs
from proxy.core.keys.ids import LeaseId
from proxy.core.leases.failures import EXPIRED, REVOKED
from proxy.core.leases.lease_book import Judged, Lease, LeaseBook, Plain
from proxy.core.leases.verdicts import Nack, Outcome
from proxy.core.pipeline.effects import Effects
from proxy.core.pipeline.exhausted import OnExhausted
from proxy.core.pipeline.observations import Observations
from proxy.core.pipeline.pauses import Pauses

# Fields of many leases or jobs at once, without a step of the interpreter for each.
_job_of, _granted_ns_of = attrgetter("job"), attrgetter("granted_ns")
_offset_of = attrgetter("offset")


class Settlement:
    """Ends leases and jobs, and records the effects. All times are ns.

    Caller: the pipeline, which takes refills afterwards. Affects: jobs, leases, observations, and
    (``exhausted``) jobs that are given up.
    """

    def __init__(
        self,
        jobs: Jobs,
        leases: LeaseBook,
        pauses: Pauses,
        exhausted: OnExhausted,
        observed: Observations,
    ) -> None:
        """Use the components of one pipeline."""
        self._jobs, self._leases, self._pauses = jobs, leases, pauses
        self._exhausted, self._observed = exhausted, observed
        self._failures = leases.failures
        self._held_back = leases.held_back
        self._now = observed.now
        self._noted_keys = observed.noted_keys
        self._watched, self._held = exhausted.watched, exhausted.held

    # ---- verdicts -------------------------------------------------------------------------------

    def settle(
        self,
        acked: Iterable[LeaseId],
        nacked: Iterable[Nack],
        released: Iterable[LeaseId],
        now_ns: int,
    ) -> Effects:
        """Apply verdicts by lease id. A verdict on a lease that is not live is fenced and has no
        effect. In a run it waits for those ahead; all jobs behind a failed one are returned.
        """
        effects = self.on_time(now_ns)
        expired = 0 if effects.plain else len(effects.released)  # returned by the expiry of a run
        lease_ids = iter(acked)
        while True:
            ended, other = self._leases.end_handled(lease_ids)  # the usual case
            if ended:
                self._acked(ended, effects)
            if other is None:
                break
            self._judge(self._live(other, effects), Plain.ACK, effects, now_ns=now_ns)
        if nacked or released:
            self._settle_others(nacked, released, effects, expired=expired, now_ns=now_ns)
        return effects

    def _settle_others(
        self,
        nacked: Iterable[Nack],
        released: Iterable[LeaseId],
        effects: Effects,
        *,
        expired: int,
        now_ns: int,
    ) -> None:
        """Apply nacks, then releases; the first *expired* leases were returned by expiry."""
        for nack in nacked:
            self._judge(self._live(nack.lease_id, effects), nack, effects, now_ns=now_ns)
        given_back = {lease.lease_id for lease in effects.released[expired:]}  # the rest of runs
        for lease_id in released:
            if lease_id not in given_back:
                lease = self._live(lease_id, effects)
                given_back.update(self._judge(lease, Plain.RELEASE, effects, now_ns=now_ns))

    def settle_by_offset(
        self,
        success: Iterable[int],
        failed: Iterable[int],
        *,
        connection: int,
        open_connections: Container[int],
        now_ns: int,
    ) -> Effects:
        """Apply verdicts of a client without lease ids (DDMQ's own).

        An offset counts on the connection that holds its lease. It also counts on a connection that
        never held it if all its leases went to one connection that is now closed: the client has
        reconnected. All others are fenced.
        """
        effects = self.on_time(now_ns)
        nack_of: dict[int, Nack | None] = {offset: Nack(LeaseId(0)) for offset in failed}
        nack_of.update(dict.fromkeys(success))  # success wins
        for offset, nack in nack_of.items():
            lease = self._leases.at(offset)
            if lease is None or not lease.may_be_settled_on(connection, open_connections):
                effects.fenced.append(offset)
            else:
                self._judge(lease, nack or Plain.ACK, effects, now_ns=now_ns)
        return effects

    def _live(self, lease_id: LeaseId, effects: Effects) -> Lease | None:
        if (lease := self._leases.live(lease_id)) is None:
            effects.fenced.append(lease_id)
        return lease

    def _judge(
        self, lease: Lease | None, verdict: Plain | Nack, effects: Effects, *, now_ns: int
    ) -> list[LeaseId]:
        """Apply *verdict*; return the ids of the leases that were returned with it."""
        judged: list[Judged] = [] if lease is None else list(self._leases.judge(lease, verdict))
        for each in judged:
            if each.verdict is not Plain.RELEASE:
                self._observed.measures.handler.note_since([each.lease.granted_ns], now_ns)
            if each.verdict is Plain.ACK:
                effects.acked.append(each.lease)
                self.finish(each.lease.job, Outcome.OK, effects)
                continue
            if each.verdict is Plain.RELEASE:
                effects.released.append(each.lease)
                self._take_back(each.lease.job)
            else:
                effects.nacked.append(each.lease)
                self.failed(each.lease.job, nack=each.verdict, now_ns=now_ns, effects=effects)
            effects.released.extend(each.behind)
            self._unfollow(each.behind)
        return [lease.lease_id for each in judged for lease in each.behind]

    def return_unsent(self, leases: Collection[Lease]) -> list[Lease]:
        """Offer the jobs of *leases* again, uncounted, because their answer was never written;
        return the live ones.
        """
        is_live = self._leases.live
        live = [lease for lease in leases if is_live(lease.lease_id) is lease]
        for lease in live:
            if is_live(lease.lease_id) is lease:  # it did not end with the head of its run
                ended = self._leases.end(lease)
                if not lease.run:  # otherwise it followed a live one
                    self._take_back(ended.pop(0).job)
                self._unfollow(ended)
        return live

    # ---- time -----------------------------------------------------------------------------------

    def on_time(self, now_ns: int) -> Effects:
        """End leases past their deadline; offer jobs whose retry is due.

        An expired job is offered again at once, or given up if its deliveries are used up. A job
        whose answer was never written is offered uncounted, and so are jobs of a run that the
        client had already returned behind an open one.
        """
        self._now.set(now_ns)
        effects = Effects()
        book = self._leases
        if self._exhausted.timed:
            self._exhausted.on_time(now_ns)
        if book.quiet_until_ns <= now_ns:
            for leases in book.expired(now_ns):
                effects.expired += self._ended(leases, effects, now_ns=now_ns)
            for job, due_ns in book.take_due(now_ns):
                self.offer(job, due_ns)
        if self._held_back.numbers:
            for _, offset in self._held_back.up_to(now_ns):
                self._exhausted.held_back_no_more(offset)
        return effects

    def after_stall(self, now_ns: int) -> Effects:
        """End leases past their deadline, which passed while the process stood still: their clients
        may have answered in time. The jobs are offered again at once, and no delivery is counted.
        """
        self._now.set(now_ns)
        effects = Effects()
        for leases in self._leases.expired(now_ns):
            first, *behind = leases
            (effects.unsent if first.unsent else effects.stalled).extend(leases)
            if first.job.key in self._held:
                first.job.uncount_attempt()
                self._free(first.job)
                effects.note_parking()
            else:
                self._take_back(first.job)
            self._unfollow(behind)
        return effects

    def revoke(self, lease_id: LeaseId, now_ns: int) -> Effects:
        """End a lease and its run as if the deadline had passed: later verdicts on it are fenced.
        If it is not live, the only effect is ``fenced``.
        """
        effects = self.on_time(now_ns)
        if (lease := self._live(lease_id, effects)) is not None:
            leases = self._leases.end(lease.run[0] if lease.run else lease)
            effects.revoked.extend(self._ended(leases, effects, now_ns=now_ns, how=REVOKED))
        return effects

    def _ended(
        self, leases: Sequence[Lease], effects: Effects, *, now_ns: int, how: str = EXPIRED
    ) -> list[Lease]:
        """Handle *leases*, consecutive in a run, that ended without a verdict; *how* is the reason
        of the failure. Return those that count as deliveries.
        """
        first, *behind = leases
        if first.unsent:
            effects.unsent.extend(leases)
            self._take_back(first.job)
            self._unfollow(behind)
            return []
        handled, unhandled = _at_expiry(behind)
        for lease in handled:
            self._failures.next_try_ns(lease.job, None, now_ns=now_ns, ended=how)  # counts
            self._jobs.chains.unfollow(lease.job)
        effects.released.extend(unhandled)
        self._unfollow(unhandled)
        self.failed(first.job, nack=None, now_ns=now_ns, effects=effects, ended=how)
        return [first, *handled]

    # ---- ends of jobs ----------------------------------------------------------------------------

    def _acked(self, leases: Sequence[Lease], effects: Effects) -> None:
        """Finish the jobs of *leases*, which have ended with an ack."""
        effects.acked.extend(leases)
        jobs: list[Job] = [*map(_job_of, leases)]
        measures = self._observed.measures
        measures.handler.note_since([*map(_granted_ns_of, leases)], self._now.ns)
        if not (self._noted_keys or self._failures.attempts):
            self._jobs.finish_all(jobs)
            effects.finished.extend(zip(map(_offset_of, jobs), repeat(Outcome.OK), strict=False))
            # At the first delivery: jobs that failed before are in ``failures``.
            measures.attempts.note_lowest(len(jobs))
            if self._watched:
                for job in jobs:
                    self._free(job)
        else:
            for job in jobs:
                self.finish(job, Outcome.OK, effects)

    def finish(self, job: Job, outcome: Outcome, effects: Effects) -> None:
        """Finish *job*, which is running or held, with *outcome*."""
        if job.key in self._noted_keys or outcome is Outcome.SKIPPED:
            self._observed.note(job, f"finished: {outcome.value}", "")
        self._jobs.finish(job)
        if job.attempts:
            self._observed.measures.attempts.note(job.attempts)
        if self._failures.attempts:
            self._failures.forget(job.offset)
        effects.finished.append((job.offset, outcome))
        self._free(job)

    def failed(
        self, job: Job, *, nack: Nack | None, now_ns: int, effects: Effects, ended: str = EXPIRED
    ) -> None:
        """Handle a failed delivery of *job*: a *nack* by its client, or None if its lease *ended*
        without a verdict. A job of a held key is not offered again.
        """
        next_try_ns = self._failures.next_try_ns(job, nack, now_ns=now_ns, ended=ended)
        if job.key in self._held:
            self._free(job)
            effects.note_parking()
            return
        if next_try_ns is None:
            self._exhausted.give_up(job, effects)
        elif nack is None:
            self._leases.offer(job, now_ns)
        else:
            self.retry_at(job, next_try_ns)
        self._free(job)
        self._observed.note(job, "failed", job.reason)
        self._exhausted.failed(job)

    def _free(self, job: Job) -> None:
        """Note that no client has *job* any more; the lease book may."""
        if job.key is not None and job.key in self._watched:
            self._exhausted.freed(job.key)

    def _take_back(self, job: Job) -> None:
        job.uncount_attempt()
        self._leases.offer(job, self._now.ns)
        self._free(job)

    def _unfollow(self, leases: Iterable[Lease]) -> None:
        for lease in leases:
            lease.job.uncount_attempt()
            self._jobs.chains.unfollow(lease.job)
            self._free(lease.job)

    # ---- running jobs that no client has ---------------------------------------------------------

    def offer(self, job: Job, since_ns: int = 0) -> None:
        """Make *job* available to clients again, once its message is in memory."""
        self._jobs.residency.unloaded.note_available(job)
        if not self._jobs.residency.read_back(job):
            self._leases.offer(job, since_ns)

    def retry_at(self, job: Job, due_ns: int) -> None:
        """Offer *job* again at *due_ns*; until then it cannot be delivered."""
        self._leases.retry_at(job, due_ns)
        self._jobs.residency.unloaded.note_waiting(job, paused=False)

    def set_aside(self, job: Job) -> bool:
        """Set *job*, whose turn has come, aside if its key is paused, else return False."""
        if not self._pauses.set_aside(job):
            return False
        self._jobs.residency.unloaded.note_waiting(job, paused=True)
        return True

    def is_back(self, job: Job, *, is_taken: bool) -> None:
        """Handle the return of the message of *job*, which may wait for something else by now.
        *is_taken*: an operator is retrying it.
        """
        down = self._jobs.residency.unloaded
        if self._leases.due_ns(job.offset) is not None:
            down.note_waiting(job, paused=False)
        elif self._pauses.has(job):
            down.note_waiting(job, paused=True)
        elif job.state is RUNNING and not (is_taken or job.offset in self._exhausted.under_way):
            self._leases.offer(job, self._now.ns)
        self._exhausted.is_back(job)

    def withdraw(self, job: Job) -> None:
        """Stop delivering *job*, which is running without a live lease."""
        self._leases.withdraw(job)
        self._jobs.residency.unloaded.note_available(job)
        self._pauses.forget(job)


def _at_expiry(behind: Sequence[Lease]) -> tuple[list[Lease], list[Lease]]:
    """Split the leases *behind* an expired one in its run: those possibly handled, and those
    returned because of a verdict on them or on one ahead.
    """
    for at, lease in enumerate(behind):
        if lease.verdict is Plain.RELEASE:
            return list(behind[:at]), list(behind[at:])
        if isinstance(lease.verdict, Nack):
            return list(behind[: at + 1]), list(behind[at + 1 :])
    return list(behind), []
