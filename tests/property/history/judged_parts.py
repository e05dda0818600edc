"""Verdicts over a whole history and joined over its parts."""

from __future__ import annotations

from typing import Any

from proxy.history.check import HistoryChecker
from proxy.history.limits import Limits
from proxy.history.reader import Event, HistoryError
from tests.support.history_parts import counted, judge_in_parts

#: Short, so that random histories break the timed invariants as well.
LIMITS = Limits(
    commit_s=2.0,
    delivery_s=2.0,
    successor_s=1.5,
    isolation_s=1.5,
    demand_s=1.5,
    retry_s=1.0,
    lease_s=1.0,
    durable_s=1.0,
    early_s=0.1,
    settle_s=1.0,
)


_TIMED = frozenset({"N1", "N3", "N4", "N5", "N6", "R1"})


def whole(events: list[Event]) -> dict[str, Any]:
    """Return the verdict without examples, or the error."""
    try:
        checker = HistoryChecker(limits=LIMITS)
        for event in events:
            checker.on_event(event)
        return counted(checker.report())
    except HistoryError as error:
        return {"error": str(error)}


def in_parts(events: list[Event]) -> dict[str, Any]:
    try:
        return counted(judge_in_parts(events, limits=LIMITS))
    except HistoryError as error:
        return {"error": str(error)}


def comparable(verdict: dict[str, Any]) -> dict[str, Any]:
    """Remove timed ids that may differ.

    If two proxies act in one ownership period (W1), or leases belong to a former life of their
    topic (G1), the site of a live lease is ambiguous.
    """
    if not {"W1", "G1"} & verdict.get("by_id", {}).keys():
        return verdict
    found = {name: count for name, count in verdict["by_id"].items() if name not in _TIMED}
    return {**verdict, "by_id": found, "violations": sum(found.values())}
