"""Spark with orderlane, compared with Spark's own source and sink for Apache Kafka in the same run.

Both topics have the same rows in the same queues. Nameserver, broker and proxy, the node of Kafka
(KRaft, without syncing each write, as our broker here) and Spark with ``local[2]`` share the
processors; Java has its defaults, with all optimization, after rounds to warm up. The operations:

- ``read``: the whole topic into Spark's sink ``noop``, also from the same Arrow batches in memory;
- ``stream``: the same as micro-batches, until no messages are left;
- ``filtered``: the last tenth of each queue, by its offset; rows/s count all rows of the topic;
- ``write``: rows in Spark's memory into a new topic, also by the batches of the Python client, in
  two processes;
- ``archive``: a stream into Parquet files by day, also the same rows as plain Parquet from memory.

In each round the arms of an operation run in random order, one after the other.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from bench.report import shown, spread, write_result
from bench.spark_comparison import CLIENT, KAFKA, MEMORY, OPERATIONS, OURS, Plan, Run

COLUMNS = ("operation", "arm", "rows/s", "of kafka", "of memory", "gateway CPU µs", "bound", "met")


@dataclass(frozen=True, slots=True)
class Bound:
    """The least ratio of an *arm*'s rows per second to those of the arm *to* in the same round."""

    operation: str
    arm: str
    to: str
    at_least: float


BOUNDS = (
    Bound("read", OURS, MEMORY, 0.8),
    Bound("write", OURS, KAFKA, 0.8),
    Bound("write", CLIENT, KAFKA, 0.8),
    Bound("archive", OURS, MEMORY, 0.6),
)


def measure(plan: Plan, out: Path, *, command: str, say: Callable[[str], None]) -> list[Any]:
    """Run all rounds of *plan*, write the result to *out* after each, and return the rows of the
    table.
    """
    from bench.spark_arms import running_arms

    chooser = random.Random(plan.seed)
    runs: list[Run] = []
    with running_arms(plan, say) as arms:
        for number in range(-plan.warm_ups, plan.rounds):
            for operation in plan.operations:
                of_operation = OPERATIONS[operation]
                for arm in chooser.sample(of_operation, len(of_operation)):
                    run = arms.run(operation, arm, number)
                    say(f"{operation}, {arm}: {run.per_s:,.0f} rows/s")
                    if number >= 0:
                        runs.append(run)
            if runs:
                _write(plan, out, command, runs, arms.versions)
    return rows(summaries(runs))


def _write(
    plan: Plan, out: Path, command: str, runs: Sequence[Run], versions: Mapping[str, str]
) -> None:
    write_result(
        out,
        "kafka-spark",
        command=command,
        options={**asdict(plan), "versions": versions, "bounds": [asdict(each) for each in BOUNDS]},
        summary=summaries(runs),
        runs=[asdict(run) for run in runs],
    )


def summaries(runs: Sequence[Run]) -> list[dict[str, Any]]:
    """Return one entry per operation and arm; ratios are to the other arm's run of the same round.

    ``met`` tells whether the median is within the bound.
    """
    per_s = {(run.operation, run.arm, run.round): run.per_s for run in runs}

    def ratio(own: Sequence[Run], to: str) -> dict[str, float] | None:
        found = [
            run.per_s / other
            for run in own
            if run.arm != to and (other := per_s.get((run.operation, to, run.round)))
        ]
        return spread(found) if found else None

    summary = []
    for operation, arms in OPERATIONS.items():
        for arm in arms:
            own = [run for run in runs if (run.operation, run.arm) == (operation, arm)]
            if own:
                ratios = {to: ratio(own, to) for to in (KAFKA, MEMORY)}
                summary.append(_summary(own, ratios))
    return summary


def _summary(own: Sequence[Run], ratios: Mapping[str, dict[str, float] | None]) -> dict[str, Any]:
    operation, arm = own[0].operation, own[0].arm
    found = [each for each in BOUNDS if (each.operation, each.arm) == (operation, arm)]
    bound = found[0] if found else None
    measured = ratios[bound.to] if bound else None
    used = [run.server_us for run in own if run.server_us is not None]
    return {
        "operation": operation,
        "arm": arm,
        "per_s": spread([run.per_s for run in own], digits=0),
        "of_kafka": ratios[KAFKA],
        "of_memory": ratios[MEMORY],
        "server_us": spread(used) if used else None,
        "bound": None if bound is None else f"{bound.at_least:g} of {bound.to}",
        "met": None if bound is None or not measured else measured["median"] >= bound.at_least,
    }


def rows(summary: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """Return the rows of the printed table."""
    words = {None: "", True: "yes", False: "no"}
    return [
        {
            "operation": each["operation"],
            "arm": each["arm"],
            "rows/s": shown(each["per_s"], digits=0),
            "of kafka": _shown(each["of_kafka"]),
            "of memory": _shown(each["of_memory"]),
            "gateway CPU µs": _shown(each["server_us"]),
            "bound": each["bound"] or "",
            "met": words[each["met"]],
        }
        for each in summary
    ]


def _shown(figures: Mapping[str, float] | None) -> str:
    return "" if figures is None else shown(figures)
