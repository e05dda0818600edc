"""Hand-outs that failed: how often for each job, and whether it is handed out again. Pure."""

from __future__ import annotations

from collections.abc import Mapping

from proxy.core.jobs.chains import Job
from proxy.core.jobs.changes import Noted
from proxy.core.keys.retry_policy import MS, OnExhausted, RetryPolicy
from proxy.core.leases.verdicts import Nack


class Failures:
    """The failed hand-outs of one queue's unfinished jobs."""

    def __init__(self, policy: RetryPolicy, attempts: Mapping[int, int]) -> None:
        """*attempts* are those of earlier periods, by offset."""
        #: Set by ``change_policy``. Read-only for others.
        self.policy = policy
        #: Hand-outs by offset of the unfinished jobs that failed at least once. Read-only for
        #: others, who take the note of its changes.
        self.attempts: Noted[int, int] = Noted(attempts)
        #: Given up by an owner before, which ended before it could say so. Read-only for others.
        self.given_up = {offset for offset, count in attempts.items() if policy.gives_up(count)}

    def change_policy(self, policy: RetryPolicy) -> None:
        """Go on by *policy* from the next failure on."""
        self.policy = policy

    def next_try_ns(self, job: Job, nack: Nack | None, *, now_ns: int) -> int | None:
        """Note that a hand-out of *job* failed, by its client's *nack* or (None) by its lease's
        expiry. When it is offered again; None if it is given up.
        """
        reason = (nack.reason or "failed by its client") if nack else "lease expired"
        job.note_failure(reason, now_ns)
        self.attempts[job.offset] = job.attempts
        rejected = nack is not None and nack.reject
        if (rejected and self.policy.on_exhausted is not OnExhausted.BLOCK) or (
            self.policy.gives_up(job.attempts)
        ):
            return None
        if nack is None:
            return now_ns
        if nack.retry_after_ms is not None:
            return now_ns + nack.retry_after_ms * MS
        return now_ns + self.policy.delay_ns(job.attempts)

    def were_used_up(self, offset: int) -> bool:
        """True if the unfinished job there had all its hand-outs in earlier periods: then it was
        given up in one of them, but no record says how that ended.
        """
        return offset in self.given_up and self.policy.gives_up(self.attempts[offset])

    def begin_anew(self, offset: int) -> None:
        """The hand-outs of the unfinished job there, of which nobody has it, count no longer."""
        if offset in self.attempts:
            self.count(offset, 0)

    def count(self, offset: int, attempts: int) -> None:
        """So many hand-outs of the unfinished job there count; 0: as if it had not failed."""
        self.attempts[offset] = attempts
        self.given_up.discard(offset)

    def forget(self, offset: int) -> None:
        """The job there is finished."""
        self.attempts.pop(offset, None)
        self.given_up.discard(offset)
