"""Plans that ``make explore`` found and shrank: each still has the result in its file.

``breaks`` lists all promises that a plan breaks today, by the ids of ``docs/history.md``. A change
that fixes one empties the list.
"""

from __future__ import annotations

from pathlib import Path

import orjson
import pytest

from testkit.explorer.plan import Plan
from testkit.explorer.player import play
from testkit.processes import ROOT

LONG = (
    "commit_ahead_of_the_records",
    "commit_of_a_reset_lost",
    "demand_of_another_topic",
    "memory_full_of_one_key",
    "spilled_and_not_shown_yet",
    "unconfirmed_by_a_majority",
    "window_full_beside_a_backlog",
)
FOUND = [
    pytest.param(path, id=path.stem, marks=[pytest.mark.slow] if path.stem in LONG else [])
    for path in sorted((ROOT / "tests/world/found").glob("*.json"))
]


@pytest.mark.parametrize("path", FOUND)
def test_a_plan_breaks_exactly_the_promises_in_its_file(path: Path) -> None:
    found = orjson.loads(path.read_bytes())
    outcome = play(Plan.from_json(orjson.dumps(found["plan"])))
    assert sorted(outcome.violations) == found["breaks"], outcome.violations
    assert outcome.errors == []


@pytest.mark.slow
def test_a_world_of_all_kinds_of_faults_and_acts_keeps_its_promises() -> None:
    """One complete drawn plan: no rule reports a violation where there is none."""
    outcome = play(Plan.from_json((ROOT / "tests/world/kept.json").read_bytes()))
    assert outcome.violations == {}
    assert outcome.errors == []
    assert sum(outcome.done.values()) > 5
