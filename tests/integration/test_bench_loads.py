"""An arm of a benchmark with lean loads, at a tiny size: what was sent is handled, and judged."""

from __future__ import annotations

from pathlib import Path

import pytest

from bench.cases.registry import CASES
from bench.frame.context import RunContext


@pytest.mark.slow
def test_keys_that_are_all_alive_are_handled_in_runs(tmp_path: Path) -> None:
    """One key: its messages come in runs, and the histories show nothing that must not be."""
    context = RunContext(tmp_path, seed=7, round=0, scale="short", sizes={"messages": 300})
    figures = CASES["keys"].arms["proxy"](context, 1)

    assert context.judged_events > 300 * 5
    assert float(figures["per_s"]) > 0
