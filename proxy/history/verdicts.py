"""Verdicts on parts of a history, joined to one report. Pure.

A history that is too long for one process is split by queue; each part has its own verdict. No part
alone can decide whether a *stray*, a message in several queues, has finished: each part reports
what it knows of it.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, field

from proxy.history.findings import Counts, Findings, Place, Report, Violation
from proxy.history.reader import HistoryError


@dataclass(frozen=True, slots=True)
class Whole:
    """Facts about a whole history, known before its parts are judged."""

    events: int = 0
    torn: int = 0
    groups: Mapping[str, Sequence[str]] = field(default_factory=dict)
    """Groups that read each topic."""
    sent_topics: AbstractSet[str] = frozenset()
    """Topics with sends."""


@dataclass(frozen=True, slots=True)
class Stray:
    """A message that is in several queues, as one part knows it."""

    name: str
    topic: str
    sent: bool
    acknowledged: bool
    outcome_unknown: bool
    places: Sequence[Place]
    owed: bool
    """Whether it must finish in every group."""
    done: Mapping[str, bool]
    """Whether it finished, by the groups whose queues were judged in that part."""
    if_lost: Mapping[str, Mapping[str, Violation]] = field(default_factory=dict)
    """Further violations, by group, if it did not finish elsewhere either."""


@dataclass(frozen=True, slots=True)
class Verdict:
    """Verdict on one part. Numbers as in ``Counts``, with both kinds of duplicates and without
    strays.
    """

    sends: int = 0
    acknowledged: int = 0
    deliveries: int = 0
    handled: int = 0
    keys: int = 0
    repeated_deliveries: int = 0
    repeated_handlings: int = 0
    late: int = 0
    lost: int = 0
    void: int = 0
    changed: int = 0
    violations: Mapping[str, Violation] = field(default_factory=dict)
    strays: Sequence[Stray] = ()


def joined(verdicts: Iterable[Verdict], whole: Whole) -> Report:
    """Return the report on the *whole*.

    Raises HistoryError if there was no send or no delivery: an empty history proves nothing.
    """
    verdicts = list(verdicts)
    findings = Findings()
    for verdict in verdicts:
        findings.join(verdict.violations)
    parts = [stray for verdict in verdicts for stray in verdict.strays]
    strays = _merge(parts)
    lost = {(s.name, group) for s in strays for group in _judge(s, whole, findings)}
    for stray in parts:
        for group, violations in stray.if_lost.items():
            if (stray.name, group) in lost:
                findings.join(violations)

    def total(name: str) -> int:
        return sum(getattr(verdict, name) for verdict in verdicts)

    counts = Counts(
        events=whole.events,
        torn=whole.torn,
        sends=total("sends") + sum(stray.sent for stray in strays),
        acknowledged=total("acknowledged") + sum(stray.acknowledged for stray in strays),
        deliveries=total("deliveries"),
        handled=total("handled"),
        keys=total("keys"),
        duplicates=total("repeated_handlings" if total("handled") else "repeated_deliveries"),
        late=total("late"),
        lost=total("lost") + len(lost),
        void=total("void"),
        changed=total("changed"),
    )
    if not counts.sends:
        raise HistoryError("the histories contain no send: add those of the producers")
    if not counts.deliveries + counts.handled:
        raise HistoryError(
            "the histories contain no delivery: add those of the proxies or the consumers"
        )
    return Report(counts, findings.by_id)


def _merge(strays: Iterable[Stray]) -> list[Stray]:
    known: dict[str, Stray] = {}
    for stray in strays:
        other = known.get(stray.name, stray)
        groups = {**other.done, **stray.done}
        known[stray.name] = Stray(
            name=stray.name,
            topic=stray.topic,
            sent=stray.sent or other.sent,
            acknowledged=stray.acknowledged or other.acknowledged,
            owed=stray.owed or other.owed,
            outcome_unknown=stray.outcome_unknown or other.outcome_unknown,
            places=sorted({*stray.places, *other.places}),
            done={
                group: stray.done.get(group, False) or other.done.get(group, False)
                for group in groups
            },
        )
    return list(known.values())


def _judge(stray: Stray, whole: Whole, findings: Findings) -> list[str]:
    """Report L1, L2 and D1 of *stray*; return the groups in which it was lost."""
    findings.several_places(stray.name, stray.topic, stray.places, allowed=stray.outcome_unknown)
    if not stray.sent and stray.topic in whole.sent_topics:
        findings.never_sent(stray.name, stray.topic)
    lost = [
        group
        for group in whole.groups.get(stray.topic, ())
        if stray.owed and not stray.done.get(group)
    ]
    for group in lost:
        findings.lost(group, stray.name, stray.topic, stray.places)
    return lost
