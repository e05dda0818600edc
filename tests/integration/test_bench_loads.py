"""An arm of a benchmark with lean loads, at a tiny size: what was sent is handled, and judged."""

from __future__ import annotations

from pathlib import Path

import pytest

from bench.cases.registry import CASES
from bench.frame.context import RunContext


@pytest.mark.slow
def test_keys_are_handled_in_runs(tmp_path: Path) -> None:
    """One key: its messages come in runs, and the histories show nothing that must not be."""
    context = RunContext(tmp_path, seed=7, round=0, scale="short", sizes={"messages": 300})
    figures = CASES["keys"].arms["proxy"](context, 1)

    assert context.judged_events > 300 * 5
    assert float(figures["per_s"]) > 0


@pytest.mark.slow
def test_the_load_of_a_round_is_what_was_measured_before(tmp_path: Path) -> None:
    """Half of what came through the proxy, whoever measured that."""
    earlier = [{"capacity": 400.0}]
    context = RunContext(
        tmp_path, seed=7, round=0, scale="short", sizes={"seconds": 2}, earlier=earlier
    )
    figures = CASES["latency"].arms["direct"](context, 50)

    assert (figures["rate"], figures["capacity"], figures["faults"]) == (200.0, 400.0, 0)
    assert float(figures["p50_ms"]) > 0
