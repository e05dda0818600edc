"""``make mutants``: is every invariant of the proxy judged, and no correct run rejected?

Each scenario runs once unchanged, and has to be clean, or to violate only the invariants that the
gateway is known to violate there; then once with each bug, which has to be found under its
invariant's id, whatever else it breaks. The same history is also judged in parts, with the same
result. Prints a table; exit code 1 if a bug is not found, if a run without one is not clean, if
parts give another verdict, or if an invariant has no bug.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Collection, Iterator
from dataclasses import dataclass

import structlog

from testkit.simulation.loop import StandsStill
from tests.mutants.bugs import MUTANTS
from tests.mutants.key_change_bugs import KEY_CHANGE_MUTANTS
from tests.mutants.reset_bugs import RESET_MUTANTS
from tests.mutants.scenarios import LIMITS, SCENARIOS, judge
from tests.mutants.world import Events
from tests.support.history_parts import counted, judge_in_parts

INVARIANTS = (
    *("O1", "O2", "O3", "O3b", "O4", "O5", "W1", "W2", "W3", "C1", "C2", "C3"),
    *("D1", "D2", "D3", "D3b", "D4", "D5", "R1", "R2", "R3", "R4", "R5"),
    *("N1", "N2", "N3", "N4", "N5", "N6", "N7", "Q1", "X1", "G1", "K1", "I1", "A1"),
)
#: In place of an invariant's id.
_DIFFERENT = "(other verdict in parts)"


def _silent(*_: object) -> None:
    raise structlog.DropEvent


@dataclass(frozen=True, slots=True)
class _Case:
    """One row of the table. ``invariant``: empty without a bug."""

    invariant: str
    what: str
    known: frozenset[str]
    run: Callable[[], Events]

    def verdict(self, found: Collection[str]) -> tuple[bool, str]:
        """Return whether *found* is right, and the word for it."""
        if _DIFFERENT in found:
            return False, "DIFFERENT"
        if self.invariant:
            right = self.invariant in found and self.invariant not in self.known
            return right, "red" if right else "NOT FOUND"
        if self.known - set(found):
            return False, "NOT FOUND"
        if set(found) - self.known:
            return False, "RED"
        return True, "known" if self.known else "clean"


def _cases() -> Iterator[_Case]:
    for scenario in SCENARIOS:
        yield _Case("", f"no bug: {scenario.name}", scenario.known, scenario.run)
    for mutant in (*MUTANTS, *KEY_CHANGE_MUTANTS, *RESET_MUTANTS):
        yield _Case(mutant.invariant, mutant.what, mutant.scenario.known, mutant.run)


def _found(run: Callable[[], Events]) -> dict[str, int]:
    """Return the number of violations of each invariant."""
    history = run()
    report = judge(history)
    violations = report.violations
    found = {name: violations[name].count for name in sorted(violations)}
    if counted(judge_in_parts(history, limits=LIMITS)) != counted(report):
        found[_DIFFERENT] = 1
    return found


def main() -> int:
    """Run all; return the exit code."""
    structlog.configure(processors=[_silent])
    began, right_ones, wrong, seen = time.monotonic(), 0, 0, set()
    for case in _cases():
        try:
            found = _found(case.run)
        except StandsStill as error:
            found = {f"({error})": 1}
        right, verdict = case.verdict(found)
        right_ones += right
        wrong += not right
        seen.add(case.invariant)
        others = " ".join(f"{name}:{count}" for name, count in found.items())
        print(f"{case.invariant:4} {verdict:9} {case.what:64} {others}")
    missing = [invariant for invariant in INVARIANTS if invariant not in seen]
    if missing:
        print(f"without a mutant: {' '.join(missing)}")
    print(f"{len(seen) - 1} invariants in {time.monotonic() - began:.1f} s")
    print(f"{right_ones} passed, {wrong} failed")
    return 1 if wrong or missing else 0


if __name__ == "__main__":
    sys.exit(main())
