"""Arms with lean loads at a tiny size: all sent messages are handled, and judged."""

from __future__ import annotations

from pathlib import Path

import pytest

from bench.cases.registry import CASES
from bench.frame.context import RunContext


@pytest.mark.slow
def test_keys_are_handled_in_runs(tmp_path: Path) -> None:
    """One key: its messages arrive in runs, and the histories have no violations."""
    context = RunContext(tmp_path, seed=7, round=0, scale="short", sizes={"messages": 300})
    figures = CASES["keys"].arms["proxy"](context, 1)

    assert context.judged_events > 300 * 5
    assert float(figures["per_s"]) > 0


@pytest.mark.slow
def test_the_load_of_a_round_is_what_was_measured_before(tmp_path: Path) -> None:
    """Half of the capacity of the proxy, from an earlier run of the round."""
    earlier = [{"capacity": 400.0}]
    context = RunContext(
        tmp_path, seed=7, round=0, scale="short", sizes={"seconds": 2}, earlier=earlier
    )
    figures = CASES["latency"].arms["direct"](context, 50)

    assert (figures["rate"], figures["capacity"], figures["faults"]) == (200.0, 400.0, 0)
    assert float(figures["p50_ms"]) > 0


@pytest.mark.slow
def test_idle_connections_are_counted_and_none_is_lost(tmp_path: Path) -> None:
    """From more than one address; the proxy of the figures has all connections."""
    sizes = {"seconds": 1.2, "settle_s": 0}
    context = RunContext(tmp_path, seed=7, round=0, scale="short", sizes=sizes)
    figures = CASES["idle"].arms["silent"](context, 1_000)

    assert 0 < float(figures["grown_mb"]) < float(figures["resident_mb"])
    assert 0 < float(figures["cpu"]) < 100


@pytest.mark.slow
@pytest.mark.parametrize("arm", ["checkpoint", "no checkpoint"])
def test_a_killed_broker_serves_again_and_says_what_it_read(tmp_path: Path, arm: str) -> None:
    """With its checkpoint it indexes the messages after it again, without it all messages."""
    sizes = {"before_kill_s": 8}  # checkpoints are 5 s apart, and may be late
    context = RunContext(tmp_path, seed=7, round=0, scale="short", sizes=sizes)
    figures = CASES["restart"].arms[arm](context, 8)

    assert float(figures["served_s"]) > 0
    sent = 8 * 500 + 8_000_000 // 65_536
    if arm == "no checkpoint":
        assert float(figures["read_mb"]) >= 8
        assert float(figures["replayed"]) >= sent
    else:
        assert 0 < float(figures["replayed"]) < sent


@pytest.mark.slow
def test_all_groups_of_a_started_proxy_get_their_messages(tmp_path: Path) -> None:
    context = RunContext(tmp_path, seed=7, round=0, scale="short", sizes={"settle_s": 0})
    figures = CASES["start"].arms["after SIGTERM"](context, 3)

    assert 0 < float(figures["ready_s"]) < float(figures["first_s"]) <= float(figures["all_s"])
    assert figures["messages"] == 3 * 32
