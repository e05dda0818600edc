"""Speed of Spark reading a topic, compared with sources that have the same rows in memory.

Nameserver, broker and proxy are processes on the same processors as Spark with ``local[2]``; the
topic's messages are stored before. Three interleaved arms, all into Spark's sink ``noop``:

- ``orderlane``: the topic, from its first message to its end;
- ``tuples``: a plain Python data source that yields equally many rows as tuples;
- ``arrow``: one that yields them as prepared Arrow batches.

The clock covers the query from its planning to its end. A warm-up round counts the rows of each
arm.
"""

from __future__ import annotations

import random
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from bench.preload import Backlog
from bench.report import shown, spread, write_result
from bench.site import ProxyProcess, open_site, running_brokers
from proxy.errors import OrderlaneError
from testkit.spark_site import spark_session

OURS, TUPLES, ARROW = "orderlane", "tuples", "arrow"
ARMS = (OURS, TUPLES, ARROW)
COLUMNS = ("source", "rows/s", "of tuples", "of arrow", "proxy CPU µs each")
_TOPIC = "spark"
_KEYS = 4_000


@dataclass(frozen=True, slots=True)
class Plan:
    """Options of the measurement: *rows* in *queues* queues, each of them a task."""

    broker: str
    rows: int = 1_000_000
    body_bytes: int = 256
    queues: int = 2
    rounds: int = 5
    seed: int = 7


@dataclass(frozen=True, slots=True)
class Run:
    """The result of one arm."""

    arm: str
    round: int
    per_s: float
    proxy_us: float


def measure(plan: Plan, out: Path, *, command: str, say: Callable[[str], None]) -> list[Any]:
    """Run all rounds of *plan*, write the result to *out* and return the rows of the table."""
    chooser = random.Random(plan.seed)
    runs: list[Run] = []
    with (
        tempfile.TemporaryDirectory(prefix="orderlane-bench-") as temporary,
        _stored(plan, Path(temporary), say) as proxy,
        spark_session(Path(temporary)) as spark,
    ):
        frames = _frames(plan, spark, proxy)
        for arm, frame in frames.items():
            _check(plan, arm, frame())
        for number in range(plan.rounds):
            for arm in chooser.sample(ARMS, len(ARMS)):
                runs.append(_measure_one(plan, arm, number, frame=frames[arm], proxy=proxy))
                say(f"{arm}: {runs[-1].per_s:,.0f} rows/s")
    summary = summaries(runs)
    write_result(
        out,
        "spark",
        command=command,
        options=asdict(plan),
        summary=summary,
        runs=[asdict(run) for run in runs],
    )
    return rows(summary)


def rows(summary: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return the rows of the printed table."""
    return [
        {
            "source": each["arm"],
            "rows/s": shown(each["per_s"], digits=0),
            "of tuples": shown(each["of_tuples"]),
            "of arrow": shown(each["of_arrow"]),
            "proxy CPU µs each": shown(each["proxy_us"]) if each["arm"] == OURS else "",
        }
        for each in summary
    ]


def summaries(runs: list[Run]) -> list[dict[str, Any]]:
    """Return one entry per arm; ratios are to the other arm's run of the same round."""
    per_s = {(run.arm, run.round): run.per_s for run in runs}
    return [
        {
            "arm": arm,
            "per_s": spread([run.per_s for run in own], digits=0),
            "of_tuples": spread([run.per_s / per_s[TUPLES, run.round] for run in own]),
            "of_arrow": spread([run.per_s / per_s[ARROW, run.round] for run in own]),
            "proxy_us": spread([run.proxy_us for run in own]),
        }
        for arm in ARMS
        if (own := [run for run in runs if run.arm == arm])
    ]


def _measure_one(
    plan: Plan, arm: str, number: int, *, frame: Callable[[], Any], proxy: ProxyProcess
) -> Run:
    loaded = frame()
    before_s = proxy.usage().cpu_s
    began = time.perf_counter()
    loaded.write.format("noop").mode("overwrite").save()
    took_s = time.perf_counter() - began
    cpu_s = proxy.usage().cpu_s - before_s
    return Run(
        arm, number, per_s=round(plan.rows / took_s), proxy_us=round(cpu_s / plan.rows * 1e6, 3)
    )


def _check(plan: Plan, arm: str, frame: Any) -> None:
    """Check that each row is present with its body. Raises OrderlaneError."""
    (found,) = frame.selectExpr(
        "count(*)", "count(distinct qid, offset)", "sum(length(value))"
    ).collect()
    wanted = (plan.rows, plan.rows, plan.rows * plan.body_bytes)
    if tuple(found) != wanted:
        raise OrderlaneError(
            f"bench spark: {arm} returned {tuple(found)} as rows, distinct rows and body bytes:"
            f" {wanted} are stored"
        )


def _frames(plan: Plan, spark: Any, proxy: ProxyProcess) -> dict[str, Callable[[], Any]]:
    """Return a loader for each arm."""
    from bench.spark_sources import ArrowSource, TupleSource

    memory = {"rows": plan.rows, "partitions": plan.queues, "bytes": plan.body_bytes}
    for source in (TupleSource, ArrowSource):
        spark.dataSource.register(source)
    topic = {"servers": proxy.thrift, "group": _TOPIC, "subscribe": _TOPIC}
    return {
        OURS: lambda: spark.read.format("orderlane").options(**topic).load(),
        TUPLES: lambda: spark.read.format(TupleSource.name()).options(**memory).load(),
        ARROW: lambda: spark.read.format(ArrowSource.name()).options(**memory).load(),
    }


@contextmanager
def _stored(plan: Plan, folder: Path, say: Callable[[str], None]) -> Iterator[ProxyProcess]:
    """Start a proxy and store all messages of the topic."""
    backlog = Backlog(0, plan.rows, 0.0, _KEYS, plan.seed, body_bytes=plan.body_bytes)
    with (
        running_brokers(plan.broker, folder / "broker", flush="async") as brokers,
        open_site(brokers, folder / "site", _TOPIC, queues=plan.queues, histories=False) as site,
    ):
        took_s = site.preload(backlog)
        say(f"{plan.rows:,} messages stored in {took_s:.0f} s")
        yield site.start_proxy()
