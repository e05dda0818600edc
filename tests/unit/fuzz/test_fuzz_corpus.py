"""What fuzzers began with and found before, once more without one: ``make fuzz`` goes on."""

from __future__ import annotations

import json

import pytest

from tests.fuzz.targets import CORPUS, TARGETS, Target


@pytest.mark.parametrize("target", TARGETS.values(), ids=TARGETS)
def test_every_input_that_is_kept_is_read_or_refused(target: Target) -> None:
    kept = target.kept()
    assert kept
    for data in (*target.seeds(), *kept):
        target.run(data)


def test_the_notes_count_the_executions_of_every_target() -> None:
    counted = json.loads((CORPUS / "executions.json").read_text())
    assert list(counted) == sorted(TARGETS)
    assert all(executions > 0 for executions in counted.values())
