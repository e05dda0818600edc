"""The cases of ``orderlane bench`` at a tiny size: they run, are judged, and write a result."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import orjson
import pytest

from bench import blackout, bulk, takeover
from bench.cases.registry import CASES
from bench.frame.context import RunContext
from bench.site import EMBEDDED
from proxy.cli import bench as bench_command
from tests.support.command_line import CommandLine, command_line


@pytest.fixture
def cli(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> Iterator[CommandLine]:
    with command_line(monkeypatch, capsys) as cli:
        yield cli


def silent(_sentence: str) -> None:
    """Discard progress messages."""


def result_at(path: Path) -> dict[str, Any]:
    result: dict[str, Any] = orjson.loads(path.read_bytes())
    assert result["command"] == "orderlane bench"
    assert "Python" in result["machine"]
    return result


@pytest.mark.slow
def test_take_over(tmp_path: Path) -> None:
    plan = takeover.Plan(
        EMBEDDED, ("SIGTERM",), rounds=1, queues=2, rate=200, before_s=0.2, after_s=0.2
    )
    path = tmp_path / "takeover.json"
    (row,) = takeover.measure(plan, path, command="orderlane bench", say=silent)
    (run,) = result_at(path)["runs"]

    assert (run["duplicates"], run["again"], run["violations"]) == (0, 0, 0)
    assert 0 < run["gap_median_s"] <= run["gap_worst_s"] <= run["pause_s"]
    assert set(row) == set(takeover.COLUMNS)


@pytest.mark.slow
def test_blackout(tmp_path: Path) -> None:
    """One arm, with histories: others are delivered past stuck messages, then those in order."""
    plan = blackout.Plan(EMBEDDED, ("deep",), 200, 400, rounds=1, queues=2, histories=True)
    path = tmp_path / "blackout.json"
    (row,) = blackout.measure(plan, path, command="orderlane bench", say=silent)
    (run,) = result_at(path)["runs"]

    assert (run["finished"], run["faults"], run["violations"]) == (True, 0, 0)
    assert run["released"] == run["stuck"] > 200
    assert set(row) == set(blackout.COLUMNS)


@pytest.mark.slow
def test_bulk(tmp_path: Path) -> None:
    """One round: clients receive arriving messages while the reader reads."""
    plan = bulk.Plan(
        *(EMBEDDED, ("paced", "sparse"), 1),
        messages=2000,
        rate=200,
        stretch_s=1.2,
        settle_s=0,
        sparse_s=1.2,
    )
    path = tmp_path / "bulk.json"
    rows = bulk.measure(plan, path, command="orderlane bench", say=silent)
    result = result_at(path)
    runs = {(run["load"], run["arm"]): run for run in result["runs"]}

    assert result["options"]["bound_ms"] > 0
    for load in plan.loads:
        assert runs[load, "alone"]["bulk_per_s"] == 0 < runs[load, "beside"]["bulk_per_s"]
        assert all(runs[load, arm]["delay_ms"] > 0 for arm in bulk.ARMS)
    assert runs["paced", "beside"]["delay_p99_ms"] >= runs["paced", "beside"]["delay_ms"]
    assert runs["sparse", "reader"]["per_s"] == 0 < runs["sparse", "reader"]["bulk_per_s"]
    assert [set(row) for row in rows] == [set(bulk.COLUMNS)] * 5


@pytest.mark.slow
@pytest.mark.parametrize(
    ("case", "arm", "point"), [("drain", "lean", 256), ("keyed", "python", 10)]
)
def test_a_backlog_is_consumed_and_judged(tmp_path: Path, case: str, arm: str, point: int) -> None:
    sizes = {"messages": 400, "keys": 40}
    context = RunContext(tmp_path, seed=1, round=0, scale="short", sizes=sizes)
    figures = CASES[case].arms[arm](context, point)

    assert context.judged_events > 400 * 5
    assert figures["faults"] == 0
    assert {"per_s", "steady_per_s", "proxy_us", "broker_us", "chain_us"} <= set(figures)


@pytest.mark.parametrize(
    ("arguments", "reason"),
    [
        (
            ("takeover", "--end", "SIGHUP"),
            "--end 'SIGHUP': expected one of SIGTERM, SIGKILL, SIGSTOP",
        ),
        (("bulk", "--load", "none"), "--load 'none': expected one of full, paced, sparse"),
        (("spark", "--vs", "pulsar"), "--vs 'pulsar': expected kafka"),
        (
            ("spark", "--operation", "read"),
            "--operation and --source-version belong to --vs kafka: set it too",
        ),
        (("blackout", "--broker", "3.2"), "--broker '3.2': expected one of embedded, 5.3.3, 4.9.7"),
    ],
)
def test_what_cannot_be_measured_is_refused(
    cli: CommandLine, arguments: tuple[str, ...], reason: str
) -> None:
    assert cli.problem("bench", *arguments) == reason


def test_without_its_source_tree_there_is_nothing_to_run(
    cli: CommandLine, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(bench_command, "app", bench_command.command_of(tmp_path))
    assert "needs a source tree" in cli.problem("bench", "takeover")
