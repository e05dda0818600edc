"""Cost of a bulk backfill for the thin clients of another group at the same proxy.

Broker, proxy, a consumer and a bulk reader share the machine. The reader fetches the whole topic
repeatedly, as fast as the proxy allows, and discards the records; only the proxy's limit for bulk
readers beside clients holds it back. Three loads:

- ``full``: the consumer works through a backlog as fast as it can; the figure is its throughput;
- ``paced``: messages arrive at a fixed rate, far below the maximum; the figures are the times from
  a message's due time to its handler, median and 99th percentile;
- ``sparse``: the same with five messages per second; the figure is what the reader gets.

A round is one stretch without the reader (``alone``) and one with it (``beside``), in random order
and back to back in the same processes, so that a slow minute of the machine affects both; of the
load ``sparse`` also one of the reader without messages for the consumer (``reader``).
"""

from __future__ import annotations

import asyncio
import random
import statistics
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import orjson

from bench.preload import Backlog, Place
from bench.report import shown, spread, write_result
from bench.site import ProxyProcess, Worker, running_brokers
from proxy.errors import OrderlaneError
from proxy.settings.proxy_settings import LimitSettings
from testkit.processes import Child, Children, wait_until

LOADS, ARMS = ("full", "paced", "sparse"), ("alone", "beside")
#: Arms of the load ``sparse``.
SPARSE_ARMS = (*ARMS, "reader")
COLUMNS = (
    *("load", "arm", "messages/s", "of alone", "delay ms", "delay of alone"),
    *("delay p99 ms", "added p99 ms", "bulk MB/s", "of reader", "bulk messages/s", "proxy CPU"),
)
TOPIC, BULK, QUEUES, KEYS, BODY_BYTES = "bench", "bulk", 8, 4_000, 256
_MB = 1_000_000
#: Messages per second of the load ``sparse``.
_SPARSE_RATE = 5.0
#: Time after the last message of a client until the proxy reckons without one, and some more.
_FREE_S = 1.5
#: Least number of delays that have a 99th percentile.
_FEWEST = 100


@dataclass(frozen=True, slots=True)
class Plan:
    """Options of the measurement.

    *limit*: bytes per second of bulk readers beside clients, 0 for no limit, None for the proxy's
    default; *stretch_s*: length of one arm, after *settle_s*; *sparse_s*: the same of the load
    ``sparse``, long enough for a hundred messages.
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
    sparse_s: float = 22.0


@dataclass(frozen=True, slots=True)
class Run:
    """One stretch of one arm. *delay_ms* is a median, and *delay_p99_ms* the 99th percentile of
    enough delays; the full load has none.
    """

    load: str
    arm: str
    round: int
    per_s: float
    delay_ms: float | None
    delay_p99_ms: float | None
    bulk_mb_per_s: float
    bulk_per_s: float
    proxy_cpu: float


def measure(plan: Plan, out: Path, *, command: str, say: Callable[[str], None]) -> list[Any]:
    """Run all rounds of *plan*, write the result to *out* and return the rows of the table."""
    runs: list[Run] = []
    with _site(plan) as site:
        for load in plan.loads:
            for run in site.runs(load):
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
        options={**asdict(plan), "bound_ms": LimitSettings().bulk_added_delay_ms},
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
                    _shown(each.get("delay_p99_ms")),
                    _shown(each.get("added_p99_ms")),
                    shown(each["bulk_mb_per_s"], digits=1),
                    _shown(each.get("bulk_ratio")),
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
    """Return one entry per arm and load; ratios and differences are to the arm ``alone`` of the
    same round, and what the reader gets is compared with the arm ``reader``.
    """
    return [
        _summary(load, arm, [run for run in runs if run.load == load])
        for load in plan.loads
        for arm in _arms(load)
    ]


def percentile_ms(delays_us: Sequence[int], share: float) -> float | None:
    """Return the percentile *share* of *delays_us*, in milliseconds; None if there are too few."""
    if len(delays_us) < _FEWEST:
        return None
    return round(sorted(delays_us)[int(share * (len(delays_us) - 1))] / 1000, 3)


def _arms(load: str) -> Sequence[str]:
    return SPARSE_ARMS if load == "sparse" else ARMS


def _summary(load: str, arm: str, runs: Sequence[Run]) -> dict[str, Any]:
    alone = {run.round: run for run in runs if run.arm == "alone"}
    reader = {run.round: run for run in runs if run.arm == "reader"}
    of_arm = [run for run in runs if run.arm == arm]
    beside = arm == "beside"
    pairs = [(run, alone[run.round]) for run in of_arm if beside]
    return {
        "load": load,
        "arm": arm,
        "per_s": spread([run.per_s for run in of_arm], digits=0),
        "per_s_ratio": _spread(run.per_s / max(base.per_s, 1) for run, base in pairs),
        "delay_ms": _spread(run.delay_ms for run in of_arm),
        "delay_ratio": _spread(
            run.delay_ms / base.delay_ms if run.delay_ms and base.delay_ms else None
            for run, base in pairs
        ),
        "delay_p99_ms": _spread(run.delay_p99_ms for run in of_arm),
        "added_p99_ms": _spread(
            None
            if run.delay_p99_ms is None or base.delay_p99_ms is None
            else run.delay_p99_ms - base.delay_p99_ms
            for run, base in pairs
        ),
        "bulk_mb_per_s": spread([run.bulk_mb_per_s for run in of_arm], digits=1),
        "bulk_ratio": _spread(
            run.bulk_mb_per_s / max(reader[run.round].bulk_mb_per_s, 0.1)
            for run in of_arm
            if beside and run.round in reader
        ),
        "bulk_per_s": spread([run.bulk_per_s for run in of_arm], digits=0),
        "proxy_cpu": spread([run.proxy_cpu for run in of_arm]),
    }


def _spread(values: Iterable[float | None]) -> dict[str, float] | None:
    """Return the spread of the *values* that exist; None if there are none."""
    there = [value for value in values if value is not None]
    return spread(there) if there else None


# ---- processes -----------------------------------------------------------------------------------


@dataclass(slots=True)
class _Site:
    plan: Plan
    children: Children
    proxy: ProxyProcess
    reader: Child
    chooser: random.Random

    def runs(self, load: str) -> Iterator[Run]:
        """Measure all rounds of *load*."""
        if load == "full":
            return self._full()
        return self._paced(load, _SPARSE_RATE if load == "sparse" else self.plan.rate)

    def _full(self) -> Iterator[Run]:
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

    def _paced(self, load: str, rate: float) -> Iterator[Run]:
        """Measure a load of *rate* with one consumer and one producer for all rounds."""
        worker = self._worker(load, "--delays")
        producer = self.children.start_module(
            "bench.paced_producer",
            *("--proxy", self.proxy.thrift, "--topic", TOPIC, "--rate", rate),
        )
        _wait_for(worker, rate)
        for number in range(self.plan.rounds):
            yield from self._round(load, number, worker, producer)
        producer.terminate()
        worker.child.terminate(within_s=60)

    def _worker(self, group: str, *more: object) -> Worker:
        where = ("--proxy", self.proxy.thrift, "--group", group, "--concurrency", 128)
        return Worker(self.children.start_module("bench.worker", *where, *more))

    def _round(
        self, load: str, number: int, worker: Worker, producer: Child | None = None
    ) -> Iterator[Run]:
        arms = _arms(load)
        for arm in self.chooser.sample(arms, len(arms)):
            if arm == "reader" and producer is not None:
                producer.pause()
                time.sleep(_FREE_S)
            if arm != "alone":
                self.reader.resume()
                _wait_for_lines(self.reader, 1)
            yield self._stretch(load, arm, number, worker)
            self.reader.pause()
            if arm == "reader" and producer is not None:
                producer.resume()
                # What became due meanwhile is late because of this.
                time.sleep(_FREE_S)

    def _stretch(self, load: str, arm: str, number: int, worker: Worker) -> Run:
        time.sleep(self.plan.settle_s)
        usage, read = self.proxy.usage(), orjson.loads(self.reader.out[-1])
        samples = len(worker.samples())
        time.sleep(self.plan.sparse_s if load == "sparse" else self.plan.stretch_s)
        if arm != "alone":
            _wait_for_lines(self.reader, 1)
        _wait_for_lines(worker.child, 1)
        used, read_then = self.proxy.usage(), orjson.loads(self.reader.out[-1])
        stretch = worker.samples()[samples - 1 :]
        seconds = stretch[-1]["t_s"] - stretch[0]["t_s"]
        delays = [each for line in stretch[1:] for each in line.get("delays_us", ())]
        bulk_s = max(read_then["t_s"] - read["t_s"], 1e-3)  # the same line, if the reader is paused
        return Run(
            load=load,
            arm=arm,
            round=number,
            per_s=round((stretch[-1]["others"] - stretch[0]["others"]) / seconds),
            delay_ms=round(statistics.median(delays) / 1000, 3) if delays else None,
            delay_p99_ms=percentile_ms(delays, 0.99),
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
    late = [name for name in LOADS if name != "full"]
    groups += [{"name": name, "topics": topics, "start_from": "latest"} for name in late]
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
