"""Bugs of actions, each in the place of a method that it gets as its first argument."""

from __future__ import annotations

from typing import Any

from proxy.actions.pipeline import Actions, Dropped, Failed
from proxy.core.leases.verdicts import Outcome
from proxy.core.pipeline.actions import PASSED
from proxy.core.pipeline.dispatch import Dispatch


def error_is_a_no(original: Any, actions: Actions, subject: Any) -> Any:
    outcome = original(actions, subject)
    return Dropped(outcome.reason.partition(" (")[0]) if isinstance(outcome, Failed) else outcome


def error_is_a_success(original: Any, dispatch: Dispatch, job: Any, acted: Any, **how: Any) -> None:
    if isinstance(acted, Failed):
        effects, _ = dispatch.unreported.ended(job, Dropped(""), origin=0)
        dispatch._settlement.finish(job, Outcome.OK, effects)
    else:
        original(dispatch, job, acted, **how)


def as_it_is_the_second_time(original: Any, dispatch: Dispatch, job: Any) -> Any:
    return PASSED if job.attempts else original(dispatch, job)


def error_is_free(original: Any, unreported: Any, job: Any, acted: Any, **how: Any) -> Any:
    ended = original(unreported, job, acted, **how)
    job.attempts -= ended[1] is not None
    return ended
