"""Cost of a bulk backfill for the thin clients of another group at the same proxy.

Broker, proxy, a consumer and a bulk reader share the machine. The reader fetches the whole topic
repeatedly, as fast as the proxy allows, and discards the records; only the proxy's limit for bulk
readers beside clients holds it back. Two loads:

- ``full``: the consumer works through a backlog as fast as it can; the figure is its throughput;
- ``paced``: messages arrive at a fixed rate, far below the maximum; the figure is the time from a
  message's due time to its handler.

A round is one stretch without the reader (``alone``) and one with it (``beside``), in random order
and back to back in the same processes, so that a slow minute of the machine affects both.
"""

from __future__ import annotations

import asyncio
import random
import statistics
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import orjson

from bench.preload import Backlog, Place
from bench.report import shown, spread, write_result
from bench.site import ProxyProcess, Worker, running_brokers
from proxy.errors import OrderlaneError
from testkit.processes import Child, Children, wait_until

LOADS, ARMS = ("full", "paced"), ("alone", "beside")
COLUMNS = (
    *("load", "arm", "messages/s", "of alone", "delay ms", "delay of alone"),
    *("bulk MB/s", "bulk messages/s", "proxy CPU"),
)
TOPIC, BULK, QUEUES, KEYS, BODY_BYTES = "bench", "bulk", 8, 4_000, 256
_MB = 1_000_000


@dataclass(frozen=True, slots=True)
class Plan:
    """Options of the measurement.

    *limit*: bytes per second of bulk readers beside clients, 0 for no limit, None for the proxy's
    default; *stretch_s*: length of one arm, after *settle_s*.
    """

    broker: str
    loads: tuple[str, ...] = LOADS
    rounds: int = 5
    messages: int = 300_000
    rate: float = 1_000.0
    stretch_s: float = 2.0
    settle_s: float = 0.5
    limit: int | None = None
    seed: int = 7


@dataclass(frozen=True, slots=True)
class Run:
    """One stretch of one arm. *delay_ms* is a median, of the paced load only."""

    load: str
    arm: str
    round: int
    per_s: float
    delay_ms: float | None
    bulk_mb_per_s: float
    bulk_per_s: float
    proxy_cpu: float


def measure(plan: Plan, out: Path, *, command: str, say: Callable[[str], None]) -> list[Any]:
    """Run all rounds of *plan*, write the result to *out* and return the rows of the table."""
    runs: list[Run] = []
    with _site(plan) as site:
        for load in plan.loads:
            for run in site.full() if load == "full" else site.paced():
                runs.append(run)
                delay = "" if run.delay_ms is None else f", {run.delay_ms:.2f} ms each"
                say(
                    f"{load}, {run.arm}: {run.per_s:,.0f} messages/s{delay};"
                    f" bulk {run.bulk_mb_per_s:.0f} MB/s"
                )
    summary = summaries(plan, runs)
    write_result(
        out,
        "bulk",
        command=command,
        options=asdict(plan),
        summary=summary,
        runs=[asdict(run) for run in runs],
    )
    return rows(summary)


# ---- figures -------------------------------------------------------------------------------------


def rows(summary: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return the rows of the printed table."""
    return [
        dict(
            zip(
                COLUMNS,
                (
                    each["load"],
                    each["arm"],
                    shown(each["per_s"], digits=0),
                    _shown(each["per_s_ratio"]),
                    _shown(each["delay_ms"]),
                    _shown(each["delay_ratio"]),
                    shown(each["bulk_mb_per_s"], digits=1),
                    shown(each["bulk_per_s"], digits=0),
                    shown(each["proxy_cpu"]),
                ),
                strict=True,
            )
        )
        for each in summary
    ]


def _shown(figures: dict[str, float] | None) -> str:
    return "" if figures is None else shown(figures)


def summaries(plan: Plan, runs: Sequence[Run]) -> list[dict[str, Any]]:
    """Return one entry per arm and load; ratios are to the arm ``alone`` of the same round."""
    return [
        _summary(load, arm, [run for run in runs if run.load == load])
        for load in plan.loads
        for arm in ARMS
    ]


def _summary(load: str, arm: str, runs: Sequence[Run]) -> dict[str, Any]:
    alone = {run.round: run for run in runs if run.arm == "alone"}
    of_arm = [run for run in runs if run.arm == arm]
    beside = arm != "alone"
    delays = [run.delay_ms for run in of_arm if run.delay_ms is not None]
    delay_ratios = [
        run.delay_ms / alone_ms
        for run in of_arm
        if run.delay_ms is not None and (alone_ms := alone[run.round].delay_ms)
    ]
    return {
        "load": load,
        "arm": arm,
        "per_s": spread([run.per_s for run in of_arm], digits=0),
        "per_s_ratio": spread([run.per_s / max(alone[run.round].per_s, 1) for run in of_arm])
        if beside
        else None,
        "delay_ms": spread(delays) if delays else None,
        "delay_ratio": spread(delay_ratios) if delay_ratios and beside else None,
        "bulk_mb_per_s": spread([run.bulk_mb_per_s for run in of_arm], digits=1),
        "bulk_per_s": spread([run.bulk_per_s for run in of_arm], digits=0),
        "proxy_cpu": spread([run.proxy_cpu for run in of_arm]),
    }


# ---- processes -----------------------------------------------------------------------------------


@dataclass(slots=True)
class _Site:
    plan: Plan
    children: Children
    proxy: ProxyProcess
    reader: Child
    chooser: random.Random

    def full(self) -> Iterator[Run]:
        """Measure the full load; each round reads the backlog in a group of its own."""
        for number in range(self.plan.rounds):
            worker = self._worker(_group(number))
            _wait_for(worker, self.plan.messages / 20)
            yield from self._round("full", number, worker)
            handled = worker.counts()["others"]
            worker.child.terminate(within_s=60)
            if handled >= self.plan.messages:
                raise OrderlaneError(
                    f"all {handled} messages were handled before round {number + 1} ended: give"
                    " more by --messages, or a shorter --stretch-s"
                )

    def paced(self) -> Iterator[Run]:
        """Measure the paced load, with one consumer and one producer for all rounds."""
        worker = self._worker("paced", "--delays")
        producer = self.children.start_module(
            "bench.paced_producer",
            *("--proxy", self.proxy.thrift, "--topic", TOPIC, "--rate", self.plan.rate),
        )
        _wait_for(worker, self.plan.rate)
        for number in range(self.plan.rounds):
            yield from self._round("paced", number, worker)
        producer.terminate()
        worker.child.terminate(within_s=60)

    def _worker(self, group: str, *more: object) -> Worker:
        where = ("--proxy", self.proxy.thrift, "--group", group, "--concurrency", 128)
        return Worker(self.children.start_module("bench.worker", *where, *more))

    def _round(self, load: str, number: int, worker: Worker) -> Iterator[Run]:
        for arm in self.chooser.sample(ARMS, len(ARMS)):
            if arm == "beside":
                self.reader.resume()
                _wait_for_lines(self.reader, 1)
            time.sleep(self.plan.settle_s)
            usage, read = self.proxy.usage(), orjson.loads(self.reader.out[-1])
            samples = len(worker.samples())
            time.sleep(self.plan.stretch_s)
            if arm == "beside":
                _wait_for_lines(self.reader, 1)
            _wait_for_lines(worker.child, 1)
            used, read_then = self.proxy.usage(), orjson.loads(self.reader.out[-1])
            self.reader.pause()
            stretch = worker.samples()[samples - 1 :]
            seconds = stretch[-1]["t_s"] - stretch[0]["t_s"]
            delays = [each for line in stretch[1:] for each in line.get("delays_us", ())]
            bulk_s = max(
                read_then["t_s"] - read["t_s"], 1e-3
            )  # the same line, if the reader is paused
            yield Run(
                load=load,
                arm=arm,
                round=number,
                per_s=round((stretch[-1]["others"] - stretch[0]["others"]) / seconds),
                delay_ms=round(statistics.median(delays) / 1000, 3) if delays else None,
                bulk_mb_per_s=round((read_then["bytes"] - read["bytes"]) / bulk_s / _MB, 1),
                bulk_per_s=round((read_then["messages"] - read["messages"]) / bulk_s),
                proxy_cpu=round((used.cpu_s - usage.cpu_s) / (used.t_s - usage.t_s), 3),
            )


def _wait_for(worker: Worker, messages: float) -> None:
    wait_until(
        lambda: worker.counts()["others"] > messages, within_s=120, what="a consumer under way"
    )


def _wait_for_lines(child: Child, more: int) -> None:
    enough = len(child.out) + more
    wait_until(lambda: len(child.out) >= enough, within_s=60, what="a line of figures")


@contextmanager
def _site(plan: Plan) -> Iterator[_Site]:
    with (
        tempfile.TemporaryDirectory(prefix="orderlane-bench-") as name,
        running_brokers(plan.broker, Path(name) / "broker", flush="async") as brokers,
        Children(Path(name) / "proxy") as children,
    ):
        brokers.create_topic(TOPIC, queues=QUEUES)
        backlog = Backlog(0, plan.messages, 0.0, KEYS, plan.seed, body_bytes=BODY_BYTES)
        asyncio.run(backlog.store(Place(brokers.nameserver, TOPIC, QUEUES), history=None))
        settings = _settings(plan, expiry_s=brokers.lock_expiry_s)
        (children.folder / "settings.yaml").write_bytes(orjson.dumps(settings))  # JSON is YAML
        child = children.start(
            *("proxy", "--settings", "settings.yaml", "--nameserver", brokers.nameserver),
            *("--thrift-port", 0, "--http-port", 0),
        )
        ready = child.ready()
        proxy = ProxyProcess(child, ready["thrift"], ready["http"])
        where = ("--proxy", proxy.thrift, "--group", BULK, "--topic", TOPIC)
        reader = children.start_module("bench.bulk_reader", *where)
        reader.wait_for(1)
        reader.pause()
        yield _Site(plan, children, proxy, reader, random.Random(plan.seed))


def _settings(plan: Plan, *, expiry_s: float) -> dict[str, Any]:
    topics = [{"name": TOPIC, "order_key": "KEY"}]
    names = [BULK, *map(_group, range(plan.rounds))]
    groups: list[dict[str, Any]] = [{"name": name, "topics": topics} for name in names]
    groups.append({"name": "paced", "topics": topics, "start_from": "latest"})
    limits = {}
    if plan.limit is not None:
        limits["bulk_bytes_per_s_beside_clients"] = plan.limit or None
    return {
        "groups": groups,
        "limits": limits,
        "lock": {"broker_lock_expiry_s": expiry_s},
        "ownership": {"leave_after_s": 1},
    }


def _group(number: int) -> str:
    return f"full-{number}"
