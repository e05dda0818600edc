"""``make attack`` carries out every row of SECURITY.md, and judges what it sees."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from testkit.processes import ROOT
from tests.attack.attacks import Attack, all_attacks, carry_out
from tests.attack.installation import Installation


def test_every_attack_of_the_document_is_carried_out() -> None:
    text = (ROOT / "SECURITY.md").read_text()
    rows = set(re.findall(r"^\| ([^|]+) \| [^|]+ \| `tests/", text, re.MULTILINE))
    shown = [row for each in all_attacks() for row in each.rows]
    assert len(rows) > 70
    assert rows - set(shown) == set()
    assert len(shown) == len(set(shown))


@pytest.mark.parametrize(
    ("error", "figure"),
    [
        (AssertionError("served\n+ more"), "AssertionError: served"),
        (ConnectionResetError(), "ConnectionResetError"),
        (TypeError("a mistake in the attack"), "TypeError: a mistake in the attack"),
    ],
)
def test_an_attack_that_fails_in_any_way_is_a_wrong_answer(
    tmp_path: Path, error: Exception, figure: str
) -> None:
    async def fails(_: Installation) -> str:
        raise error

    outcome = carry_out(Attack(("a",), "refused", fails), tmp_path)
    assert (outcome.correct, outcome.figure) == (False, figure)


def test_a_right_answer_has_its_figure(tmp_path: Path) -> None:
    outcome = carry_out(Attack(("a",), "refused", lambda _: "3 of 3 refused"), tmp_path)
    assert (outcome.correct, outcome.figure) == (True, "3 of 3 refused")
