"""What a check found: violations by the id of their invariant, and the counts of a run."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

#: Where a message stands: queue, offset.
Place = tuple[str, int]

#: Examples kept of each invariant; all are counted. One bug may break it a million times.
EXAMPLES = 20


@dataclass(slots=True)
class Violation:
    """One invariant that did not hold: how often, and the first cases in words."""

    count: int = 0
    examples: list[str] = field(default_factory=list)


@dataclass(slots=True)
class Findings:
    """Collects violations."""

    by_id: dict[str, Violation] = field(default_factory=dict)

    def add(self, invariant: str, text: str) -> None:
        """*invariant* (such as ``O2``) did not hold; *text* names the messages concerned."""
        violation = self.by_id.setdefault(invariant, Violation())
        violation.count += 1
        if violation.count <= EXAMPLES:
            violation.examples.append(text)

    def several_places(
        self, message: str, topic: str, places: Sequence[Place], *, allowed: bool
    ) -> None:
        """L1 if *message* stands in several, unless a retry of its send explains it."""
        if len(places) > 1 and not allowed:
            where = " and ".join(f"{queue} at {offset}" for queue, offset in places)
            self.add("L1", f"message {message} of {topic} stands in {where}")

    def never_sent(self, message: str, topic: str) -> None:
        """L2: it came from nowhere."""
        self.add("L2", f"message {message} of {topic} was never sent")

    def no_end(self, group: str, message: str, topic: str, places: Sequence[Place]) -> None:
        """D1: it was acknowledged, and *group* never came to an end with it."""
        where = ", ".join(f"{queue} at {offset}" for queue, offset in places) or "a place unknown"
        self.add("D1", f"group {group}: message {message} of {topic} ({where}) came to no end")

    def join(self, others: Mapping[str, Violation]) -> None:
        """Add what was found elsewhere."""
        for invariant, other in others.items():
            violation = self.by_id.setdefault(invariant, Violation())
            violation.count += other.count
            violation.examples += other.examples[: EXAMPLES - len(violation.examples)]


@dataclass(frozen=True, slots=True)
class Counts:
    """How much the histories hold. All are numbers of messages or hand-outs unless said."""

    events: int
    """Lines read."""
    torn: int
    """Torn last lines of killed processes."""
    sends: int
    """Messages sent, whatever came of it."""
    acknowledged: int
    """Messages whose send was answered OK."""
    deliveries: int
    """Hand-outs by proxies."""
    handled: int
    """Starts of a handler."""
    keys: int
    """Order keys, counted once in each queue of each group."""
    duplicates: int
    """Handlers started for a message that the group had handled well; hand-outs of finished
    messages where the histories know no handlers."""
    late: int
    """Handlers started, or still running, after their lease had ended."""
    lost: int
    """Acknowledged messages that came to no end in a group."""
    void: int = 0
    """Verdicts that an owner accepted after another one had been granted its queue: without effect,
    as that one hands the message out again."""
    changed: int = 0
    """Messages that ended once more after a crash, and otherwise than before."""


@dataclass(frozen=True, slots=True)
class Report:
    """The verdict on a set of histories."""

    counts: Counts
    violations: Mapping[str, Violation]

    @property
    def clean(self) -> bool:
        """True if every invariant held."""
        return not self.violations

    def as_dict(self) -> dict[str, Any]:
        """For JSON: the counts at the top, ``violations`` in all, and ``by_id`` with examples."""
        return {
            **asdict(self.counts),
            "violations": sum(violation.count for violation in self.violations.values()),
            "by_id": {name: asdict(found) for name, found in sorted(self.violations.items())},
        }
