"""The time in which the driver of a Spark query plans its reads of many queues.

Spark itself does not run: its driver calls the methods of a reader in a process of Python, as this
case does. Nameserver, broker and proxy are processes on the same machine; each queue has one
message. The arms:

- ``ranges``: one request for the positions of all queues, and its answer decoded;
- ``batch``: the tasks of a batch;
- ``first``: the start of a new stream;
- ``next``: the end of the next micro-batch of a stream, and its tasks;
- ``report``: the report of a finished micro-batch, which sets the committed offset of each queue;
- ``times``: the tasks of a batch that begins at a time, which brokers look up queue by queue.

The seconds are those that the driver waits, with what Spark passes on as text or pickled. Those of
the gateway are processor time of proxy and broker.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from bench.report import shown, spread, write_result

ARMS = ("ranges", "batch", "first", "next", "report", "times")
COLUMNS = (
    *("planning", "queues", "tasks", "seconds", "driver CPU s", "proxy CPU s", "broker CPU s"),
    "within",
)
#: Bounds for 10,000 queues, in seconds: the driver's, and the gateway's. They are those of planning
#: by offsets.
DRIVER_S, GATEWAY_S = 2.0, 1.0
_WITHOUT_BOUND = frozenset({"report", "times"})


@dataclass(frozen=True, slots=True)
class Plan:
    """Options of the measurement."""

    broker: str
    queues: int = 10_000
    rounds: int = 5
    arms: tuple[str, ...] = ARMS
    seed: int = 7


@dataclass(frozen=True, slots=True)
class Run:
    """One planning."""

    arm: str
    round: int
    tasks: int
    seconds: float
    driver_s: float
    proxy_s: float
    broker_s: float

    @property
    def gateway_s(self) -> float:
        """Processor time of proxy and broker."""
        return self.proxy_s + self.broker_s


def measure(plan: Plan, out: Path, *, command: str, say: Callable[[str], None]) -> list[Any]:
    """Run all rounds of *plan*, write the result to *out* and return the rows of the table."""
    from bench.spark_planner import running_planner

    chooser = random.Random(plan.seed)
    runs: list[Run] = []
    with running_planner(plan.broker, plan.queues, say) as planner:
        for arm in plan.arms:
            planner.run(arm)  # to warm up
        for number in range(plan.rounds):
            for arm in chooser.sample(plan.arms, len(plan.arms)):
                found = planner.run(arm)
                times = (found.seconds, found.driver_s, found.proxy_s, found.broker_s)
                runs.append(Run(arm, number, found.tasks, *(round(each, 4) for each in times)))
                say(f"{arm}: {runs[-1].seconds:.3f} s, the gateway {runs[-1].gateway_s:.3f} s")
    summary = summaries(plan, runs)
    write_result(
        out,
        "planning",
        command=command,
        options={**asdict(plan), "driver_bound_s": DRIVER_S, "gateway_bound_s": GATEWAY_S},
        summary=summary,
        runs=[asdict(run) for run in runs],
    )
    return rows(summary)


def summaries(plan: Plan, runs: Sequence[Run]) -> list[dict[str, Any]]:
    """Return one entry per arm. ``within``: whether the medians are within the bounds; None for an
    arm without bounds.
    """
    return [
        _summary(arm, plan.queues, [run for run in runs if run.arm == arm]) for arm in plan.arms
    ]


def _summary(arm: str, queues: int, runs: Sequence[Run]) -> dict[str, Any]:
    seconds = spread([run.seconds for run in runs])
    gateway = spread([run.gateway_s for run in runs])
    within = seconds["median"] <= DRIVER_S and gateway["median"] <= GATEWAY_S
    return {
        "arm": arm,
        "queues": queues,
        "tasks": max(run.tasks for run in runs),
        "seconds": seconds,
        "gateway_s": gateway,
        "driver_s": spread([run.driver_s for run in runs]),
        "proxy_s": spread([run.proxy_s for run in runs]),
        "broker_s": spread([run.broker_s for run in runs]),
        "within": None if arm in _WITHOUT_BOUND else within,
    }


def rows(summary: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return the rows of the printed table."""
    words = {None: "", True: "yes", False: "no"}
    return [
        {
            "planning": each["arm"],
            "queues": f"{each['queues']:,}",
            "tasks": each["tasks"],
            "seconds": shown(each["seconds"], digits=3),
            "driver CPU s": shown(each["driver_s"], digits=3),
            "proxy CPU s": shown(each["proxy_s"], digits=3),
            "broker CPU s": shown(each["broker_s"], digits=3),
            "within": words[each["within"]],
        }
        for each in summary
    ]
