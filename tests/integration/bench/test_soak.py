"""A soak of some seconds: processes start, messages flow, are counted and judged, all end."""

from __future__ import annotations

from pathlib import Path

import pytest

from bench.soak.judge import problems_of_messages
from bench.soak.run import FAILING, STEADY, Plan, run


@pytest.mark.slow
def test_all_messages_come_in_order_and_processes_are_looked_at(tmp_path: Path) -> None:
    """The requested number, to both groups, with failing handlers in one of them."""
    plan = Plan(
        *(60.0, 4_000),
        every_s=0.2,
        keys_alive=40,
        backlog=1_000,
        connections=2,
        segment_bytes=8 << 20,
        log_bytes=8 << 20,
        flush="async",
    )
    outcome = run(plan, tmp_path / "soak", say=lambda _: None)

    assert problems_of_messages(outcome.seen) == []
    assert outcome.seen.sent == 4_000
    assert outcome.seen.consumers[STEADY]["retried"] == 0
    assert outcome.seen.consumers[FAILING]["retried"] > 0
    assert outcome.keys > 40
    assert outcome.visits > 0
    assert set(outcome.samples) == {
        *("broker", "proxy", "nameserver", "sender"),
        *(STEADY, FAILING),
    }
    for samples in outcome.samples.values():
        assert all(each.resident_mb >= each.anonymous_mb > 1 for each in samples)
