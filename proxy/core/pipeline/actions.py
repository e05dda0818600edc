"""Actions of a topic on jobs that are about to be delivered. Pure.

Only jobs about to be delivered are processed, so chains, spilling, retries and take-overs do not
depend on actions. A filtered job finishes, and the next of its key has its turn. A failed action
counts as a failed delivery: the job is retried or given up, as if a client had failed. So does a
compressed body that cannot be inflated.

The ``work`` of one pull is limited: if a filter drops most of a long backlog, the pull returns what
it has, and the lane continues a moment later.
"""

from __future__ import annotations

from proxy.actions.pipeline import Dropped, Failed, Passed
from proxy.core.jobs.chains import Job
from proxy.core.keys.ids import LeaseId
from proxy.core.leases.verdicts import FailedAction, Filtered, Nack
from proxy.core.pipeline.effects import Effects

#: Limit of work for one pull: messages, each of these body bytes counting as one more.
MAX_WORK, BYTES_OF_WORK = 256, 4096

#: Result for a job: deliver it, filter it, or count a failure.
ActionResult = Passed | Dropped | Failed

PASSED = Passed()


def work_of(job: Job) -> int:
    """Return the work of processing *job*."""
    return 1 + job.body_bytes // BYTES_OF_WORK


class Unreported:
    """Effects of jobs that were about to be delivered, until the caller collects them."""

    def __init__(self) -> None:
        self.pending: Effects | None = None
        """Effects for ``take``; None if there are none."""

    def close(self) -> None:
        """Drop all effects."""
        self.pending = None

    def take(self) -> Effects:
        """Return all effects, once."""
        effects, self.pending = self.effects, None
        return effects

    @property
    def effects(self) -> Effects:
        """Effects to which more can be added."""
        self.pending = self.pending or Effects()
        return self.pending

    def ended(
        self, job: Job, acted: Dropped | Failed, *, origin: int
    ) -> tuple[Effects, Nack | None]:
        """Record that actions ended the delivery of *job*. Return the effects to extend, and the
        failure, which counts as a delivery; None if it was filtered.
        """
        effects = self.effects
        if isinstance(acted, Dropped):
            effects.filtered_by[job.offset] = Filtered(acted.by, origin)
            return effects, None
        job.count_attempt()
        failed = FailedAction(job.offset, origin, job.key, job.attempts, acted.reason)
        effects.failed_actions.append(failed)
        return effects, Nack(LeaseId(0), reason=acted.reason)
