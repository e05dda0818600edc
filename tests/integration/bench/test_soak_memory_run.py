"""A soak of some seconds with large messages: processes start, leave and end, all is handled."""

from __future__ import annotations

from pathlib import Path

import pytest

from bench.soak.memory import Plan, problems, run


@pytest.mark.slow
def test_large_messages_are_handled_within_the_limit_of_memory(tmp_path: Path) -> None:
    plan = Plan(
        seconds=15.0,
        every_s=0.5,
        backlog=40,
        consumers=2,
        restart_every_s=6.0,
        topics=600,
        max_topics=300,
    )
    outcome = run(plan, tmp_path / "soak", say=lambda _: None)

    assert problems(plan, outcome) == []
    assert outcome.restarts > 0
    assert outcome.clients["joins"] > 4
    assert {each.process for each in outcome.samples} == {"proxy-1", "proxy-2", "broker"}
