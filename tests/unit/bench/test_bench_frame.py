"""The frame of the benchmarks: order of runs, stored results, tables."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
import time
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import orjson
import pytest

from bench import runner
from bench.cpu import cpu_s
from bench.document import chart, plots, table
from bench.frame.case import Case, Column, NotHere, Plot, Point, Shape
from bench.frame.checkpoint import Checkpoint, Run
from bench.frame.context import RunContext
from bench.frame.pace import codec_us
from bench.frame.plot import Chart, svg
from bench.frame.progress import Counter, stretch
from bench.frame.schedule import WARM_UP, Turn, schedule
from bench.frame.summary import failures, rows
from bench.runner import Plan, measure
from proxy.errors import OrderlaneError
from testkit.processes import wait_until
from tools.tables import ROOT


def fast(context: RunContext, point: Point) -> Mapping[str, float | str]:
    return {"per_s": 1000 * context.size("messages") + context.round, "settings": "best"}


def slow(_context: RunContext, point: Point) -> Mapping[str, float]:
    if point == 32:
        raise NotHere
    return {"per_s": 500.0}


def broken(_context: RunContext, _point: Point) -> Mapping[str, float]:
    raise ValueError("it fell\nover\n")


def stuck(_context: RunContext, _point: Point) -> Mapping[str, float]:
    time.sleep(30)
    return {}


CASE = Case(
    name="toy",
    title="Toy",
    question="Is it quick?",
    about="It is.",
    point="batch",
    points=(1, 32),
    arms={"slow": slow, "fast": fast, "broken": broken},
    columns=(Column("per_s", "messages/s"), Column("per_s", "of slow", 2, to="slow")),
    short=Shape(rounds=3, sizes={"messages": 2}),
    full=Shape(rounds=3, sizes={"messages": 2}),
    plots=(Plot(Column("per_s", "messages/s"), log_x=True),),
)


def silent(_sentence: str) -> None:
    """Discard progress messages."""


@pytest.fixture(autouse=True)
def _pace(monkeypatch: pytest.MonkeyPatch) -> None:
    """Runs of toys need not know the machine's speed, which takes 0.1 s to measure."""
    monkeypatch.setattr(runner, "codec_us", lambda: 1.0)


def measured(tmp_path: Path, plan: Plan, case: Case = CASE) -> dict[str, Any]:
    out = tmp_path / "toy-embedded.json"
    plan = replace(plan, scale="full")  # which has a warm-up
    result = measure(case, plan, out, command="orderlane bench toy", say=silent)
    assert orjson.loads(out.read_bytes()) == orjson.loads(orjson.dumps(result))
    return result


def test_arms_take_turns_in_every_round() -> None:
    arms = ["a", "b", "c"]
    turns = schedule(CASE, points=[1, 32], arms=arms, rounds=4, seed=3)
    assert turns == schedule(CASE, points=[1, 32], arms=arms, rounds=4, seed=3)
    warm_up, rounds = turns[:3], turns[3:]
    assert [(turn.arm, turn.round) for turn in warm_up] == [(arm, WARM_UP) for arm in arms]
    stretches = [rounds[start : start + 3] for start in range(0, len(rounds), 3)]
    for each in stretches:  # one point, one round, every arm
        assert sorted(turn.arm for turn in each) == arms
        assert len({(turn.point, turn.round) for turn in each}) == 1
    assert len({tuple(turn.arm for turn in each) for each in stretches}) > 1


def test_the_table_has_ratios_of_the_same_round_and_failures(tmp_path: Path) -> None:
    result = measured(tmp_path, Plan())
    shown = rows(CASE, result["runs"])

    assert [(row["batch"], row["arm"]) for row in shown] == [
        *(("1", "slow"), ("1", "fast"), ("1", "broken"), ("32", "fast"), ("32", "broken")),
    ]
    assert shown[1]["messages/s"] == "2,001 (2,000 to 2,002)"
    assert (shown[0]["of slow"], shown[1]["of slow"]) == ("1.00", "4.00 (4.00 to 4.00)")
    assert (shown[2]["messages/s"], shown[3]["of slow"]) == ("DNF", "")
    assert failures(result["runs"], "batch") == [
        "DNF, 4 of 4: batch 1, broken: ValueError: it fell over",
        "DNF, 3 of 3: batch 32, broken: ValueError: it fell over",
    ]
    assert "DNF, 4 of 4: batch 1, broken" in table(CASE, result)


def test_settings_of_a_peer_that_change_with_the_point_say_so() -> None:
    """Settings that are the same at all points are listed once."""

    def run(point: int, settings: str) -> dict[str, Any]:
        return {"point": point, "arm": "peer", "round": 0, "figures": {"settings": settings}}

    def shown(*runs: dict[str, Any]) -> str:
        options = {"peers": {"peer": "another one"}}
        head = {"command": "c", "date": "d", "machine": "m"}
        return table(CASE, {**head, "options": options, "runs": runs}).rpartition("\n- ")[2]

    one, other = run(1, "threads 64, pull 32, wait 0"), run(32, "threads 64, pull 256, wait 0")
    assert shown(other, one) == (
        "*peer*: another one; settings: threads 64, wait 0; at batch 1: pull 32; at batch 32: pull"
        " 256"
    )
    assert shown(one) == "*peer*: another one; settings: threads 64, pull 32, wait 0"
    assert shown(run(1, "pull 1"), run(32, "pull 2")).endswith(
        "settings: at batch 1: pull 1; at batch 32: pull 2"
    )


def test_columns_compare_with_another_point_and_by_difference(tmp_path: Path) -> None:
    def rising(context: RunContext, point: Point) -> Mapping[str, float]:
        return {"ms": float(point) + 10 * context.round}

    columns = (
        Column("ms", "of 1", 1, at=1),
        Column("ms", "more than slow", 1, to="low", minus=True),
    )
    arms = {"low": rising, "high": lambda context, point: {"ms": 2 * rising(context, point)["ms"]}}
    case = Case(**{**_fields(CASE), "arms": arms, "columns": columns})
    shown = rows(case, measured(tmp_path, Plan(rounds=1), case)["runs"])

    assert [row["of 1"] for row in shown] == ["1.0", "1.0", "32.0", "32.0"]
    assert [row["more than slow"] for row in shown] == ["0.0", "1.0", "0.0", "32.0"]


def test_what_takes_too_long_did_not_finish(tmp_path: Path) -> None:
    shape = Shape(rounds=1, points=(1,), limit_s=0.05)
    case = Case(**{**_fields(CASE), "arms": {"stuck": stuck}, "full": shape})
    result = measured(tmp_path, Plan(), case)
    assert {run["error"] for run in result["runs"]} == {"did not finish within 0.05 s"}


@pytest.mark.slow
def test_a_case_goes_on_where_it_was_stopped(tmp_path: Path) -> None:
    """Failed runs are not repeated until they pass; another seed is another plan."""
    done: list[tuple[Point, int]] = []

    def counted(context: RunContext, point: Point) -> Mapping[str, float]:
        done.append((point, context.round))
        if len(done) == 2:
            raise ValueError("just once")
        return {"per_s": 1.0}

    case = Case(**{**_fields(CASE), "arms": {"counted": counted}})
    measured(tmp_path, Plan(rounds=2), case)
    assert len(done) == 1 + 2 * 2
    again = measured(tmp_path, Plan(rounds=2, resume=True), case)
    assert len(done) == 5
    assert [run["error"] for run in again["runs"] if "error" in run] == ["ValueError: just once"]
    measured(tmp_path, Plan(rounds=3, resume=True), case)
    assert {number for _, number in done[5:]} == {2}
    del done[:]
    measured(tmp_path, Plan(rounds=2, resume=True, seed=8), case)
    assert len(done) == 5


@pytest.mark.slow
def test_a_run_receives_earlier_figures_of_its_round_also_after_a_stop(tmp_path: Path) -> None:
    """So a figure that the first arm of a round measures for all survives the process."""
    measured_in: list[int] = []

    def shared(context: RunContext, _point: Point) -> Mapping[str, float]:
        if context.earlier:
            return {"load": float(context.earlier[0]["load"])}
        measured_in.append(context.round)
        return {"load": 100.0 * len(measured_in)}

    def stopped(_context: RunContext, point: Point) -> Mapping[str, float]:
        if not resumed and point == 32:
            raise KeyboardInterrupt
        raise ValueError("nothing found")

    resumed = False
    case = Case(**{**_fields(CASE), "arms": {"a": shared, "b": stopped, "c": shared}})
    with pytest.raises(KeyboardInterrupt):
        measured(tmp_path, Plan(rounds=2, seed=1), case)
    before, resumed = list(measured_in), True
    result = measured(tmp_path, Plan(rounds=2, seed=1, resume=True), case)

    assert 0 < len(before) < 3
    assert measured_in == [WARM_UP, 0, 1], "once in each round, with those before the stop"
    loads = {(run["round"], run["figures"]["load"]) for run in result["runs"] if "figures" in run}
    assert loads == {(WARM_UP, 100.0), (0, 200.0), (1, 300.0)}


@pytest.mark.slow
@pytest.mark.parametrize(("histories", "rounds"), [("always", {0}), ("apart", {WARM_UP, 0})])
def test_in_short_shapes_nothing_comes_first_but_runs_that_are_judged_apart(
    tmp_path: Path, histories: str, rounds: set[int]
) -> None:
    case = Case(**{**_fields(CASE), "histories": histories})
    result = measure(case, Plan(rounds=1), tmp_path / "a.json", command="", say=silent)
    assert {run["round"] for run in result["runs"]} == rounds


def test_a_torn_line_is_a_run_that_did_not_end(tmp_path: Path) -> None:
    path = tmp_path / "runs.jsonl"
    kept = Checkpoint(path, of="a", resume=False)
    for number in range(2):
        kept.add(Run(1, "x", number, 0.1, {"per_s": 1.0}))
    path.write_bytes(path.read_bytes()[:-5])
    again = Checkpoint(path, of="a", resume=True)
    found = [again.find(Turn(1, "x", number, judged=False)) for number in range(2)]
    assert [each is not None for each in found] == [True, False]


@pytest.mark.parametrize(
    ("plan", "reason"),
    [
        (Plan(arms=("quick",)), "--arm 'quick': expected one of slow, fast, broken"),
        (Plan(points=("7",)), "--point '7': expected one of 1, 32"),
        (Plan(vs=("kafka",)), "orderlane bench toy takes no --vs: it has no peers"),
    ],
)
def test_what_a_case_does_not_have_is_refused(tmp_path: Path, plan: Plan, reason: str) -> None:
    with pytest.raises(OrderlaneError) as refused:
        measured(tmp_path, plan)
    assert str(refused.value) == reason


def test_a_point_is_found_by_its_text(tmp_path: Path) -> None:
    result = measured(tmp_path, Plan(points=("32",), arms=("fast",), rounds=1))
    assert [run["point"] for run in result["runs"]] == [32, 32]


def test_a_stretch_is_without_its_beginning_and_end(tmp_path: Path) -> None:
    with Counter(tmp_path / "count") as written, Counter(tmp_path / "count") as read:

        def look() -> int:
            written.show(written.value + 1)
            return read.value

        found = stretch(look, {"own": 1}, 10, first=0.2, last=0.9)
    assert found.messages == 7
    assert found.figures()["per_s"] == pytest.approx(7 / found.seconds)
    assert set(found.cpu_us) == {"own_us", "chain_us"}


def test_processor_time_counts_work() -> None:
    """Far below the 10 ms in which the system's tables count."""
    pid = os.getpid()
    for _ in range(20):
        before_s, own_s = cpu_s(pid), time.process_time()
        sum(range(10_000))
        took_s = time.process_time() - own_s
        found_s = cpu_s(pid) - before_s
        assert took_s <= found_s
    assert found_s < 0.01, "it was nothing else"
    assert cpu_s(2**22 + 1) == 0.0  # no such process


def test_processor_time_is_that_of_threads_and_children_that_ended_as_well() -> None:
    """A child counts while it lives, and after it was waited for."""

    def burn() -> None:
        end_s = time.thread_time() + 0.03
        while time.thread_time() < end_s:
            sum(range(1000))

    before_s = cpu_s(os.getpid())
    thread = threading.Thread(target=burn)
    thread.start()
    thread.join()
    assert cpu_s(os.getpid()) - before_s >= 0.03

    before_s = cpu_s(os.getpid())
    with subprocess.Popen([sys.executable, "-c", "while True: pass"]) as child:
        wait_until(lambda: cpu_s(child.pid) > 0.05, within_s=10, what="a child at work")
        assert cpu_s(os.getpid()) - before_s > 0.05
        child.kill()
    assert cpu_s(os.getpid()) - before_s > 0.03, "in steps of 10 ms by now"


@pytest.mark.slow
def test_a_chart_is_a_document_with_all_its_series(tmp_path: Path) -> None:
    result = measured(tmp_path, Plan())
    made = chart(CASE, CASE.plots[0], result)
    assert made.series == {"slow": [500.0, None], "fast": [2001.0, 2001.0]}
    root = ElementTree.fromstring(svg(made))
    words = {text.text for text in root.iter("{http://www.w3.org/2000/svg}text")}
    assert {"slow", "fast", "batch", "messages/s", "1", "32"} <= words


@pytest.mark.parametrize("log", [False, True])
@pytest.mark.parametrize("bars", [False, True])
def test_charts_of_one_point_words_and_nothing_can_be_drawn(log: bool, bars: bool) -> None:
    for points, values in (((5,), (2.0,)), (("a", "b"), (1.0, None)), ((0, 1, 10), (0.0, 3, 9e6))):
        made = Chart("t", "x", "y", points, {"arm": values}, log_x=log, log_y=log, bars=bars)
        ElementTree.fromstring(svg(made))
    ElementTree.fromstring(svg(Chart("t", "x", "y", (1,), {"arm": (None,)}, bars=bars)))


def test_plots_made_from_results_are_fresh() -> None:
    """If this fails: python -m tools.tables."""
    fresh = plots()
    assert {path: path.read_text() for path in fresh if path.exists()} == fresh
    assert sorted(ROOT.glob("docs/plots/*.svg")) == sorted(fresh)


def _fields(case: Case) -> dict[str, Any]:
    return {name: getattr(case, name) for name in Case.__dataclass_fields__}


def test_the_pace_of_the_machine_is_a_step_of_the_codec() -> None:
    assert 0 < codec_us() < 1000
