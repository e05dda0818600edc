"""Findings of a check: violations by the id of their invariant, and the counts of a run."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

#: Place of a message: queue, offset.
Place = tuple[str, int]

#: Examples kept per invariant, as one bug may violate it a million times. All are counted.
EXAMPLES = 20


@dataclass(slots=True)
class Violation:
    """Violations of one invariant: their number and the first cases in words."""

    count: int = 0
    examples: list[str] = field(default_factory=list)


@dataclass(slots=True)
class Findings:
    """Collects violations."""

    by_id: dict[str, Violation] = field(default_factory=dict)

    def add(self, invariant: str, text: str) -> None:
        """Add a violation of *invariant* (such as ``O2``); *text* names the messages concerned."""
        violation = self.by_id.setdefault(invariant, Violation())
        violation.count += 1
        if violation.count <= EXAMPLES:
            violation.examples.append(text)

    def several_places(
        self, message: str, topic: str, places: Sequence[Place], *, allowed: bool
    ) -> None:
        """Report L1 if *message* is stored at several places, unless a retried send explains it."""
        if len(places) > 1 and not allowed:
            where = " and ".join(f"{queue} at {offset}" for queue, offset in places)
            self.add("L1", f"message {message} of {topic} stands in {where}")

    def never_sent(self, message: str, topic: str) -> None:
        """Report L2: *message* was never sent."""
        self.add("L2", f"message {message} of {topic} was never sent")

    def lost(self, group: str, message: str, topic: str, places: Sequence[Place]) -> None:
        """Report D1: *message* was acknowledged and did not finish in *group*."""
        where = ", ".join(f"{queue} at {offset}" for queue, offset in places) or "a place unknown"
        self.add("D1", f"group {group}: message {message} of {topic} ({where}) came to no end")

    def join(self, others: Mapping[str, Violation]) -> None:
        """Add the violations of another check."""
        for invariant, other in others.items():
            violation = self.by_id.setdefault(invariant, Violation())
            violation.count += other.count
            violation.examples += other.examples[: EXAMPLES - len(violation.examples)]


@dataclass(frozen=True, slots=True)
class Counts:
    """Contents of the histories: numbers of messages or deliveries unless stated otherwise."""

    events: int
    """Lines read."""
    torn: int
    """Torn last lines of killed processes."""
    sends: int
    """Messages sent, with any outcome."""
    acknowledged: int
    """Messages whose send was answered OK."""
    deliveries: int
    """Deliveries by proxies."""
    handled: int
    """Starts of a handler."""
    keys: int
    """Order keys, counted once per queue and group."""
    duplicates: int
    """Handlers started for a message that the group had handled; without handler events, deliveries
    of finished messages."""
    late: int
    """Handlers started, or still running, after their lease had ended."""
    lost: int
    """Acknowledged messages that did not finish in a group."""
    void: int = 0
    """Verdicts accepted by an owner after the queue was granted to another one; they have no
    effect."""
    changed: int = 0
    """Messages that finished again after a crash, with another outcome."""


@dataclass(frozen=True, slots=True)
class Report:
    """The verdict on a set of histories."""

    counts: Counts
    violations: Mapping[str, Violation]

    @property
    def clean(self) -> bool:
        """Whether every invariant held."""
        return not self.violations

    def as_dict(self) -> dict[str, Any]:
        """Return a JSON object: the counts, the number of ``violations``, and ``by_id`` with
        examples.
        """
        return {
            **asdict(self.counts),
            "violations": sum(violation.count for violation in self.violations.values()),
            "by_id": {name: asdict(found) for name, found in sorted(self.violations.items())},
        }
