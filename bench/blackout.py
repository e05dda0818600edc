"""Shape B5, blackout: how much do stuck keys cost the other keys?

In each queue one key gets stuck: its first message is delivered and never acked. The key has 10 %
of the traffic, and ahead of the traffic are ``stuck`` messages of such keys alone, which the proxy
has to read through. All messages are stored before the consumer starts, so throughput is limited by
the proxy and not by a producer. Three interleaved arms:

- ``free``: the traffic, without a stuck key;
- ``stuck``: the same traffic, one stuck key per queue;
- ``deep``: as ``stuck``, behind the backlog of stuck messages.

Throughput is that of the other keys between their first and last tenth. A *blackout* is a second or
more in which none of them is handled. At the end the keys are released, and the consumer, which
receives all messages, counts early and repeated messages per key.
"""

from __future__ import annotations

import random
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any

from bench.preload import Backlog
from bench.report import shown, spread, write_result
from bench.site import Brokers, ProxyProcess, Site, Usage, Worker, open_site, running_brokers
from broker_core.clock import now_ns

ARMS = ("free", "stuck", "deep")
COLUMNS = (
    *("arm", "others/s", "of free", "CPU µs each", "blackout s", "memory MB", "read past s"),
    *("released in order", "faults"),
)
_BLACKOUT_S = 1.0
_MB = 1_000_000


@dataclass(frozen=True, slots=True)
class Plan:
    """Options of the measurement.

    *give_up_s*: seconds without progress after which an arm counts as stuck.
    """

    broker: str
    arms: tuple[str, ...] = ARMS
    stuck: int = 100_000
    traffic: int = 100_000
    share: float = 0.1
    keys: int = 1_000
    queues: int = 4
    rounds: int = 3
    release_s: float = 20.0
    give_up_s: float = 20.0
    histories: bool = False
    seed: int = 7


@dataclass(frozen=True, slots=True)
class Run:
    """The result of one arm.

    *finished*: all messages of other keys arrived. *cpu_us*: processor time of the proxy per
    message of the other keys, independent of other load on the machine. Memory: its peak above its
    start. *read_past_s*: seconds until the first of the other messages was handled.
    """

    arm: str
    round: int
    finished: bool
    others_per_s: float
    cpu_us: float
    blackout_s: float
    memory_mb: float
    read_past_s: float
    released: int
    stuck: int
    faults: int
    violations: int | None


def measure(plan: Plan, out: Path, *, command: str, say: Callable[[str], None]) -> list[Any]:
    """Run all rounds of *plan*, write the result to *out* and return the rows of the table."""
    chooser = random.Random(plan.seed)
    runs: list[Run] = []
    for number in range(plan.rounds):
        for arm in chooser.sample(plan.arms, len(plan.arms)):
            run = _measure_one(plan, arm, number)
            runs.append(run)
            say(
                f"{arm}: {run.others_per_s:,.0f} others/s, blackout {run.blackout_s:.1f} s,"
                f" memory {run.memory_mb:.0f} MB, {run.released} released in order"
            )
    summary = summaries(plan, runs)
    write_result(
        out,
        "blackout",
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
            "arm": each["arm"],
            "others/s": shown(each["others_per_s"], digits=0),
            "of free": "" if each["ratio"] is None else shown(each["ratio"]),
            "CPU µs each": shown(each["cpu_us"], digits=0),
            "blackout s": shown_blackout(each),
            "memory MB": shown(each["memory_mb"], digits=0),
            "read past s": shown(each["read_past_s"]),
            "released in order": shown(each["released"], digits=0),
            "faults": each["faults"],
        }
        for each in summary
    ]


def shown_blackout(summary: dict[str, Any]) -> str:
    if not summary["finished"]:
        return "for good"
    longest = summary["blackout_s"]["max"]
    return "none" if longest < _BLACKOUT_S else f"{longest:.1f}"


def summaries(plan: Plan, runs: list[Run]) -> list[dict[str, Any]]:
    free = {run.round: run.others_per_s for run in runs if run.arm == "free"}
    found = []
    for arm in plan.arms:
        of_arm = [run for run in runs if run.arm == arm]
        found.append(
            {
                "arm": arm,
                "finished": all(run.finished for run in of_arm),
                "others_per_s": spread([run.others_per_s for run in of_arm], digits=0),
                "cpu_us": spread([run.cpu_us for run in of_arm], digits=1),
                "ratio": _ratio(of_arm, free),
                "blackout_s": spread([run.blackout_s for run in of_arm]),
                "memory_mb": spread([run.memory_mb for run in of_arm], digits=0),
                "read_past_s": spread([run.read_past_s for run in of_arm]),
                "released": spread([run.released for run in of_arm], digits=0),
                "faults": sum(run.faults for run in of_arm),
                "violations": sum(run.violations or 0 for run in of_arm),
            }
        )
    return found


def _ratio(runs: list[Run], free: dict[int, float]) -> dict[str, float] | None:
    """Return the ratio to the free arm of the same round; None for the free arm itself, or without
    it.
    """
    if not free or runs[0].arm == "free":
        return None
    return spread([run.others_per_s / free[run.round] for run in runs])


def _measure_one(plan: Plan, arm: str, number: int) -> Run:
    """Run one arm with a broker of its own, so that data of earlier arms takes no page cache."""
    name = f"{arm}-{number}"
    deep = plan.stuck if arm == "deep" else 0
    backlog = Backlog(deep, plan.traffic, plan.share, plan.keys, plan.seed)
    with (
        tempfile.TemporaryDirectory(prefix="orderlane-bench-") as temporary,
        running_brokers(plan.broker, Path(temporary) / "broker", flush="async") as brokers,
        _open(plan, brokers, Path(temporary) / name, name) as site,
    ):
        site.preload(backlog)
        return _consume(plan, site, backlog, arm, number)


def _open(plan: Plan, brokers: Brokers, folder: Path, name: str) -> Any:
    return open_site(brokers, folder, name, queues=plan.queues, histories=plan.histories)


def _consume(plan: Plan, site: Site, backlog: Backlog, arm: str, number: int) -> Run:
    proxy = site.start_proxy()
    sent = backlog.sent
    stuck = sum(count for key, count in sent.items() if backlog.is_stuck(key))
    others = sum(sent.values()) - stuck
    with _watched(proxy) as usages:
        began_s = now_ns() / 1e9
        options = ("--exact", "--concurrency", 128)
        worker = site.start_worker([proxy], *options, *(("--released",) if arm == "free" else ()))
        finished = _wait_for_others(plan, worker, others)
        before = worker.counts()
        if arm != "free":
            worker.release()
        released = _wait_for_stuck(plan, worker, stuck)
    samples = worker.samples()
    worker.child.terminate(within_s=60)
    faults = worker.counts()["faults"] + worker.counts()["repeated"]
    proxy.child.terminate(within_s=60)
    violations = None
    if plan.histories:
        violations = sum(each.count for each in site.verdict().violations.values())
    window = [each for each in samples if each["t_s"] <= before["t_s"]]
    span = Span.of(window, others)
    return Run(
        arm=arm,
        round=number,
        finished=finished,
        others_per_s=round(span.messages / span.seconds) if span else 0,
        cpu_us=round(cpu_s(usages, span) * 1e6 / span.messages, 1) if span else 0.0,
        blackout_s=round(longest_pause_s(window), 3),
        memory_mb=round(growth_bytes(usages) / _MB, 1),
        read_past_s=round(_first_s(window) - began_s, 3),
        released=released,
        stuck=stuck,
        faults=faults,
        violations=violations,
    )


# ---- waiting -------------------------------------------------------------------------------------


def _wait_for_others(plan: Plan, worker: Worker, others: int) -> bool:
    """Wait until all messages of other keys are handled; return False if progress stops for too
    long.
    """
    handled, since_s = -1, time.monotonic()
    while handled < others:
        now = worker.counts()["others"]
        if now != handled:
            handled, since_s = now, time.monotonic()
        elif time.monotonic() - since_s > plan.give_up_s:
            return False
        time.sleep(0.1)
    return True


def _wait_for_stuck(plan: Plan, worker: Worker, stuck: int) -> int:
    """Return the number of messages of stuck keys that arrived in time."""
    deadline_s = time.monotonic() + plan.release_s
    while worker.counts()["stuck"] < stuck and time.monotonic() < deadline_s:
        time.sleep(0.1)
    return int(worker.counts()["stuck"])


@contextmanager
def _watched(proxy: ProxyProcess) -> Iterator[list[Usage]]:
    """Sample the proxy's usage ten times a second, first before any load."""
    usages = [proxy.usage()]
    ended = threading.Event()

    def watch() -> None:
        while not ended.wait(0.1):
            usages.append(proxy.usage())

    watching = threading.Thread(target=watch, name="watch", daemon=True)
    watching.start()
    try:
        yield usages
    finally:
        ended.set()
        watching.join()


# ---- figures -------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Span:
    """The stretch from a tenth to nine tenths of the others' messages."""

    begin_s: float
    end_s: float
    messages: int

    @property
    def seconds(self) -> float:
        return self.end_s - self.begin_s

    @classmethod
    def of(cls, samples: list[dict[str, Any]], others: int) -> Span | None:
        """Return the stretch; None if the run did not get that far."""
        inside = [each for each in samples if others * 0.1 <= each["others"] <= others * 0.9]
        if len(inside) < 2 or inside[0]["others"] == inside[-1]["others"]:
            return None
        first, last = inside[0], inside[-1]
        return cls(first["t_s"], last["t_s"], last["others"] - first["others"])


def cpu_s(usages: list[Usage], span: Span) -> float:
    inside = [each for each in usages if span.begin_s <= each.t_s <= span.end_s]
    if len(inside) < 2:
        return 0.0
    share = span.seconds / (inside[-1].t_s - inside[0].t_s)
    return (inside[-1].cpu_s - inside[0].cpu_s) * share


def growth_bytes(usages: list[Usage]) -> int:
    return max(each.resident_bytes for each in usages) - usages[0].resident_bytes


def longest_pause_s(samples: list[dict[str, Any]]) -> float:
    """Return the longest time between two handled messages of other keys."""
    times = [
        later["t_s"] for earlier, later in pairwise(samples) if later["others"] > earlier["others"]
    ]
    return max((later - earlier for earlier, later in pairwise(times)), default=0.0)


def _first_s(samples: list[dict[str, Any]]) -> float:
    return next((float(each["t_s"]) for each in samples if each["others"]), samples[-1]["t_s"])
