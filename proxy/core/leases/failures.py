"""Failed deliveries: the count for each job, and whether it is delivered again. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from proxy.core.jobs.chains import Job
from proxy.core.jobs.tracked_dict import TrackedDict
from proxy.core.keys.retry_policy import MS, OnExhausted, RetryPolicy
from proxy.core.leases.verdicts import Nack

#: Reasons of a failed delivery whose lease ended without a verdict.
EXPIRED, REVOKED = "lease expired", "lease revoked by an operator"


class Failures:
    """Failed deliveries of one queue's unfinished jobs."""

    def __init__(self, policy: RetryPolicy, attempts: Mapping[int, int]) -> None:
        """Start with the *attempts* of earlier ownership periods, by offset."""
        #: Set by ``change_policy``. Read-only for others.
        self.policy = policy
        #: Deliveries by offset of the unfinished jobs that failed at least once. Read-only for
        #: others; the recorder collects its changes.
        self.attempts: TrackedDict[int, int] = TrackedDict(attempts)
        #: Jobs that an earlier owner gave up without recording the outcome. Read-only for others.
        self.given_up = {offset for offset, count in attempts.items() if policy.gives_up(count)}

    def change_policy(self, policy: RetryPolicy) -> None:
        """Apply *policy* from the next failure on."""
        self.policy = policy

    def next_try_ns(
        self, job: Job, nack: Nack | None, *, now_ns: int, ended: str = EXPIRED
    ) -> int | None:
        """Note a failed delivery of *job*: a *nack* by its client, or None if its lease ended
        without a verdict because it *ended* so. Return the time of the next delivery; None if the
        job is given up.
        """
        reason = (nack.reason or "failed by its client") if nack else ended
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
        """Return True if the unfinished job at *offset* used up its deliveries in earlier periods:
        one of them gave it up, but no record contains the outcome.
        """
        return offset in self.given_up and self.policy.gives_up(self.attempts[offset])

    def reset(self, offset: int) -> None:
        """Reset the deliveries of the unfinished, unleased job at *offset*."""
        if offset in self.attempts:
            self.count(offset, 0)

    def count(self, offset: int, attempts: int) -> None:
        """Set the deliveries of the unfinished job at *offset*; 0 means that it never failed."""
        self.attempts[offset] = attempts
        self.given_up.discard(offset)

    def forget_others(self, unfinished: Iterable[int]) -> None:
        """Remove all jobs but the *unfinished* ones. O(unfinished), unless none has failed."""
        if self.attempts:
            for offset in self.attempts.keys() - set(unfinished):
                self.forget(offset)

    def forget(self, offset: int) -> None:
        """Remove the finished job at *offset*."""
        self.attempts.pop(offset, None)
        self.given_up.discard(offset)
