"""Replay the fuzzers' seed inputs and earlier findings; ``make fuzz`` searches for new ones."""

from __future__ import annotations

import json

import pytest

from tests.fuzz.targets import CORPUS, TARGETS, Target


@pytest.mark.parametrize("target", TARGETS.values(), ids=TARGETS)
def test_every_corpus_input_is_read_or_refused(target: Target) -> None:
    kept = target.kept()
    assert kept
    for data in (*target.seeds(), *kept):
        target.run(data)


def test_the_notes_count_the_executions_of_every_target() -> None:
    counted = json.loads((CORPUS / "executions.json").read_text())
    assert list(counted) == sorted(TARGETS)
    assert all(executions > 0 for executions in counted.values())
