"""The components of one pipeline, assembled like ``QueuePipeline``, to be tested separately."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from typing import Any

from broker_core.remoting.message import StoredMessage
from proxy.actions.document import Subject
from proxy.core.jobs.chains import Job
from proxy.core.jobs.jobs import Jobs
from proxy.core.jobs.tracked_dict import TrackedDict
from proxy.core.jobs.window import FlowWindow
from proxy.core.keys.topic_rules import TopicRules
from proxy.core.leases.failures import Failures
from proxy.core.leases.lease_book import Lease, LeaseBook
from proxy.core.pipeline.dispatch import Dispatch
from proxy.core.pipeline.exhausted import DeadLetters
from proxy.core.pipeline.intake import Intake
from proxy.core.pipeline.key_switch import KeySwitch
from proxy.core.pipeline.observations import Observations
from proxy.core.pipeline.operator_actions import OperatorActions
from proxy.core.pipeline.pauses import Pauses
from proxy.core.pipeline.settlement import Settlement
from proxy.core.records.record import Snapshot
from testkit.pipelines import HOLDER, MS, Budgets, rules

#: Length of leases.
LEASE_NS = 5000 * MS


@dataclass(frozen=True, slots=True)
class Components:
    """All components; ``wanted`` are the rules of their topic."""

    wanted: TopicRules
    jobs: Jobs
    leases: LeaseBook
    pauses: Pauses
    exhausted: DeadLetters
    observed: Observations
    settlement: Settlement
    operator: OperatorActions
    intake: Intake
    dispatch: Dispatch

    def read(self, *messages: StoredMessage) -> None:
        """Admit *messages*."""
        self.intake.read(messages, next_offset=0)

    def lease(self, jobs: int = 100, *, now_ns: int = 0) -> list[Lease]:
        """Return up to *jobs* leases, of any size."""
        return self.dispatch.lease(jobs, 1 << 60, now_ns, HOLDER, now_ns + LEASE_NS)

    def head(self, key: str) -> Job:
        """Return the first unfinished job of *key*."""
        job = self.jobs.by_key.head(key.encode())
        assert job is not None
        return job


def components(
    wanted: TopicRules | None = None,
    *,
    resume: Snapshot | None = None,
    budgets: Budgets | None = None,
    held_back_ns: dict[int, int] | None = None,
    messages: Collection[StoredMessage] = (),
    **others: Any,
) -> Components:
    """Return components that have read *messages*; *others* are rules in addition to the message
    key.
    """
    wanted = wanted or rules(**others)
    budgets = budgets or Budgets()
    jobs = Jobs(
        0,
        window=FlowWindow(wanted.max_jobs, budgets.memory),
        max_jobs_per_key=wanted.max_jobs_per_key,
        resume=resume,
    )
    failures = Failures(wanted.retry, {} if resume is None else resume.attempts)
    leases = LeaseBook(budgets.leases, budgets.memory, failures, held_back_ns=held_back_ns or {})
    keys = KeySwitch(jobs, wanted, None, TrackedDict(), is_twin=False)
    pauses, exhausted = Pauses(TrackedDict()), DeadLetters()
    observed = Observations(jobs.chains)
    settlement = Settlement(jobs, leases, pauses, exhausted, observed)
    operator = OperatorActions(jobs, leases, exhausted, settlement)
    intake = Intake(wanted, jobs, leases, keys, pauses, exhausted, settlement, operator)
    dispatch = Dispatch(
        wanted,
        jobs,
        leases,
        pauses,
        exhausted,
        settlement,
        observed,
        subject_of=lambda job: _subject(job, intake),
    )
    made = Components(
        wanted,
        jobs,
        leases,
        pauses,
        exhausted,
        observed,
        settlement,
        operator,
        intake,
        dispatch,
    )
    made.read(*messages)
    return made


def _subject(job: Job, intake: Intake) -> Subject:
    assert job.message is not None
    offset = intake.origin_offset(job, job.message)
    return Subject(job.message, job.message.topic, "0", offset, job.message.body)
