"""One drawn world for each hazard: damage, losses of data, floods, expired rights, used-up quotas.

``python -m tests.mutants.explored`` shows that such worlds find bugs.
"""

from __future__ import annotations

import pytest

from testkit.explorer.generator import draw
from testkit.explorer.hazards import HAZARDS
from testkit.explorer.player import play

#: What is played at least once, by hazard, in the world of the seed.
SEEDS = {
    "damage": (31, "damage"),
    "record damage": (31, "damage"),
    "restores": (6, "restore"),
    "leaps": (3, "clock"),
    "topic floods": (6, "topic flood"),
    "connection floods": (3, "connection flood"),
    "elected masters": (3, "master"),
    "expiring tokens": (3, None),
    "quotas": (3, None),
}


def test_every_hazard_has_a_world() -> None:
    assert SEEDS.keys() == HAZARDS.keys()


@pytest.mark.slow
@pytest.mark.parametrize("hazard", SEEDS)
def test_a_world_with_a_hazard_keeps_its_promises(hazard: str) -> None:
    seed, kind = SEEDS[hazard]
    never = [each for each in HAZARDS if each != hazard]
    outcome = play(draw(seed, always=[hazard], never=never))
    assert outcome.violations == {}
    assert outcome.errors == []
    assert kind is None or outcome.done[kind] > 0


def test_hazards_do_not_change_the_other_parts_of_a_plan() -> None:
    for seed in range(40):
        without = draw(seed, never=list(HAZARDS))
        never = ["elected masters", "expiring tokens", "quotas"]  # other nodes
        plan = draw(seed, always=["connection floods"], never=never)
        kinds = {"connection flood", "topic flood", "damage", "restore", "clock"}
        assert [each for each in plan.actions if each.kind not in kinds] == [
            each for each in without.actions if each.kind not in kinds
        ]
        assert plan.flows == without.flows
