"""Case ``history``: throughput of the history checker."""

from __future__ import annotations

from bench.frame.case import Case, Column, Point, Shape
from bench.frame.context import RunContext
from bench.frame.figures import Figures
from testkit.processes import Children

_LIMIT_S = 240.0


def _checker(context: RunContext, messages: Point) -> Figures:
    """Run the checker in a separate process, because its peak memory is a figure."""
    with Children(context.folder) as children:
        child = children.start_module("bench.bench_history", messages)
        code = child.wait(within_s=_LIMIT_S)
        assert code == 0, f"the checker ended with {code}: {child.err[-1000:]}"
        said: Figures = child.ended_with
    return said


CASES = (
    Case(
        name="history",
        title="Checker of histories",
        question="How fast is the checker of histories?",
        about="Synthetic histories: 8 queues, 4,000 keys, 7 events a message, all in order.",
        point="messages",
        points=(50_000, 500_000),
        arms={"checker": _checker},
        columns=(Column("events_per_s", "events/s"), Column("peak_mib", "peak memory MiB")),
        short=Shape(rounds=3, points=(50_000,)),
        full=Shape(rounds=5),
        histories="none",
    ),
)
