"""What a check found: violations by the id of their invariant, and the counts of a run."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any

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
