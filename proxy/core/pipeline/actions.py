"""Jobs on their way through the actions of their topic, at the moment of a hand-out. Pure.

Only what is about to be handed out is looked at, so chains, spilling, retries and take-overs are
what they are without actions. A job that is filtered finishes, and the next of its key has its
turn. One on which an action fails has used up a hand-out: it is retried, and given up, as if a
client had failed on it. So has one whose body is compressed and cannot be inflated.

How much one pull has looked at is bounded (``work``): where a filter drops most of a long backlog,
the pull ends with what it has, and the lane looks again a moment later.
"""

from __future__ import annotations

from proxy.actions.pipeline import Dropped, Failed, Passed
from proxy.core.jobs.chains import Job
from proxy.core.keys.ids import LeaseId
from proxy.core.leases.verdicts import FailedAction, Filtered, Nack
from proxy.core.pipeline.effects import Effects

#: What one pull may look at: so many messages, of whose bodies this many bytes count as one more.
MAX_WORK, BYTES_OF_WORK = 256, 4096

#: What becomes of a job: it is handed out, filtered, or has failed.
Acted = Passed | Dropped | Failed

PASSED = Passed()


def work_of(job: Job) -> int:
    """What it takes to look at *job*."""
    return 1 + job.body_bytes // BYTES_OF_WORK


class Unreported:
    """What became of jobs that were about to be handed out, until somebody takes it."""

    def __init__(self) -> None:
        self.noted: Effects | None = None
        """What ``take`` would give."""

    def take(self) -> Effects:
        """All of it, once."""
        effects, self.noted = self.effects, None
        return effects

    @property
    def effects(self) -> Effects:
        """Where to note more of it."""
        self.noted = self.noted or Effects()
        return self.noted

    def ended(
        self, job: Job, acted: Dropped | Failed, *, origin: int
    ) -> tuple[Effects, Nack | None]:
        """Actions ended the hand-out of *job*: where to note what that leads to, and how it failed,
        which counts as a hand-out; None if it was filtered.
        """
        effects = self.effects
        if isinstance(acted, Dropped):
            effects.filtered_by[job.offset] = Filtered(acted.by, origin)
            return effects, None
        job.count_attempt()
        failed = FailedAction(job.offset, origin, job.key, job.attempts, acted.reason)
        effects.failed_actions.append(failed)
        return effects, Nack(LeaseId(0), reason=acted.reason)
