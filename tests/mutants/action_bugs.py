"""Bugs of actions: classes that replace their base classes, and functions that replace a method.

A function gets the replaced method as its first argument.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from proxy.actions.pipeline import Actions, Dropped, Failed
from proxy.core.jobs.chains import Job
from proxy.core.leases.verdicts import Outcome
from proxy.core.pipeline.actions import PASSED
from proxy.core.pipeline.dispatch import Dispatch


def error_is_a_no(original: Any, actions: Actions, subject: Any) -> Any:
    outcome = original(actions, subject)
    return Dropped(outcome.reason.partition(" (")[0]) if isinstance(outcome, Failed) else outcome


class ErrorIsASuccess(Dispatch):
    """Finishes a job whose action failed."""

    def _ended_by_action(self, job: Job, acted: Dropped | Failed, *, now_ns: int) -> None:
        if isinstance(acted, Failed):
            effects, _ = self.unreported.ended(job, Dropped(""), origin=0)
            self._settlement.finish(job, Outcome.OK, effects)
        else:
            super()._ended_by_action(job, acted, now_ns=now_ns)


def as_it_is_the_second_time(original: Any, dispatch: Dispatch, job: Any) -> Any:
    return PASSED if job.attempts else original(dispatch, job)


def error_is_free(original: Any, unreported: Any, job: Job, acted: Any, **how: Any) -> Any:
    """Count a delivery at a copy only."""
    return original(unreported, replace(job), acted, **how)
