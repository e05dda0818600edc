"""Verdicts on parts of a history, and how they are put together to one report. Pure.

A history that is too long for one process is split by queue; each part has a verdict of its own.
What no part can tell alone is whether a message that stands in several queues, a *stray*, came to
an end: each part says what it knows of it.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, field

from proxy.history.findings import Counts, Findings, Place, Report, Violation
from proxy.history.reader import HistoryError


@dataclass(frozen=True, slots=True)
class Whole:
    """What is known of a whole history before its parts are judged."""

    events: int = 0
    torn: int = 0
    groups: Mapping[str, Sequence[str]] = field(default_factory=dict)
    """Who reads each topic."""
    sent_topics: AbstractSet[str] = frozenset()
    """Topics with sends."""


@dataclass(frozen=True, slots=True)
class Stray:
    """A message that stands in several queues, as one part knows it."""

    name: str
    topic: str
    sent: bool
    acknowledged: bool
    outcome_unknown: bool
    places: Sequence[Place]
    owed: bool
    """It has to come to an end in every group."""
    done: Mapping[str, bool]
    """Whether it came to an end, by the groups whose queues were judged in that part."""
    if_lost: Mapping[str, Mapping[str, Violation]] = field(default_factory=dict)
    """What else did not hold, by group, if it came to no end elsewhere either."""


@dataclass(frozen=True, slots=True)
class Verdict:
    """On one part. Numbers as in ``Counts``; both kinds of duplicates, strays left out."""

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
    """The verdict on the *whole*.

    Raises HistoryError if there was no send or no delivery: an empty history proves nothing.
    """
    verdicts = list(verdicts)
    findings = Findings()
    for verdict in verdicts:
        findings.join(verdict.violations)
    parts = [stray for verdict in verdicts for stray in verdict.strays]
    strays = _put_together(parts)
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
        raise HistoryError("these histories hold no send: there is nothing to judge")
    if not counts.deliveries + counts.handled:
        raise HistoryError("these histories hold no delivery: there is nothing to judge")
    return Report(counts, findings.by_id)


def _put_together(strays: Iterable[Stray]) -> list[Stray]:
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
    """L1, L2 and D1 of *stray*; the groups in which it was lost."""
    findings.several_places(stray.name, stray.topic, stray.places, allowed=stray.outcome_unknown)
    if not stray.sent and stray.topic in whole.sent_topics:
        findings.never_sent(stray.name, stray.topic)
    lost = [
        group
        for group in whole.groups.get(stray.topic, ())
        if stray.owed and not stray.done.get(group)
    ]
    for group in lost:
        findings.no_end(group, stray.name, stray.topic, stray.places)
    return lost
