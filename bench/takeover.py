"""Shape B7, failover: how long do queues stand still when their proxy ends?

Two proxies share the queues, with a consumer at each and a running producer. One proxy is stopped
by SIGTERM, killed by ``kill -9``, or stopped by SIGSTOP and resumed later. The *gap* of each of its
queues is the time from the last delivery of the old owner to the first of the new one, from the
histories, which the checker must find clean.
"""

from __future__ import annotations

import random
import statistics
import tempfile
import time
from collections import defaultdict
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any

from bench import peer_takeover
from bench.preload import Backlog
from bench.report import shown, spread, write_result
from bench.site import (
    Brokers,
    ProxyProcess,
    Site,
    Worker,
    open_site,
    running_brokers,
    wait_for_queues,
)
from broker_core.clock import now_ns
from proxy.errors import OrderlaneError
from testkit.processes import wait_until

ENDS = ("SIGTERM", "SIGKILL", "SIGSTOP")
COLUMNS = (
    *("end", "gap s, worst queue", "gap s, median queue", "longest pause s"),
    *("again", "duplicates", "violations"),
)
_KEYS = 50


@dataclass(frozen=True, slots=True)
class Plan:
    """Options of the measurement.

    *stop_s*: length of SIGSTOP; *before_s*, *after_s*: time under load; *vs*: peers.
    """

    broker: str
    ends: tuple[str, ...] = ENDS
    rounds: int = 3
    queues: int = 8
    rate: float = 400.0
    work_ms: float = 3.0
    stop_s: float = 20.0
    before_s: float = 3.0
    after_s: float = 2.0
    spilled: int = 0
    seed: int = 7
    vs: tuple[str, ...] = ()

    @property
    def of_peers(self) -> peer_takeover.PeerPlan:
        """The same load for peers."""
        return peer_takeover.PeerPlan(
            self.queues,
            _KEYS,
            self.rate,
            self.work_ms,
            self.before_s,
            self.stop_s,
            self.seed,
        )


@dataclass(frozen=True, slots=True)
class Run:
    """One end of one proxy.

    *pause_s*: the longest time without a delivery in any queue, from the end of the proxy on;
    *again*: repeated deliveries, without those of stuck keys.
    """

    end: str
    round: int
    gap_worst_s: float
    gap_median_s: float
    pause_s: float
    owned_again_s: float
    again: int
    duplicates: int
    violations: int
    sent: int


def measure(plan: Plan, out: Path, *, command: str, say: Callable[[str], None]) -> list[Any]:
    """Run all rounds of *plan*, write the result to *out* and return the rows of the table."""
    chooser = random.Random(plan.seed)
    runs: list[Run] = []
    of_peers: list[peer_takeover.PeerRun] = []
    with (
        tempfile.TemporaryDirectory(prefix="orderlane-bench-") as temporary,
        running_brokers(plan.broker, Path(temporary) / "broker") as brokers,
    ):
        for number in range(plan.rounds):
            # Interleaved, so that a slow minute of the machine affects all alike.
            for end in chooser.sample(plan.ends, len(plan.ends)):
                run = _measure_one(plan, brokers, Path(temporary), end, number)
                runs.append(run)
                say(f"{end}: worst gap {run.gap_worst_s:.2f} s, {run.again} repeated messages")
                of_peers += [
                    peer_takeover.run(name, plan.of_peers, end=end, number=number, say=say)
                    for name in plan.vs
                ]
    summary = [_summary(end, [run for run in runs if run.end == end]) for end in plan.ends]
    summary += peer_takeover.summaries(of_peers)
    write_result(
        out,
        "takeover",
        command=command,
        options=asdict(plan),
        summary=summary,
        runs=[*(asdict(run) for run in runs), *(run.plain() for run in of_peers)],
    )
    return rows(summary)


def rows(summary: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return the rows of the printed table, those of peers last."""
    finished = [each for each in summary if "error" not in each]
    failed = [each for each in summary if "error" in each]
    return [
        *map(_row, finished),
        *({COLUMNS[0]: f"{_end_of(each)}: {each['error']}"} for each in failed),
    ]


def _row(each: dict[str, Any]) -> dict[str, Any]:
    cells = (
        _end_of(each),
        shown(each["gap_worst_s"]),
        shown(each["gap_median_s"]),
        shown(each["pause_s"]),
        shown(each["again"], digits=0),
        shown(each["duplicates"], digits=0),
        each["violations"],
    )
    return dict(zip(COLUMNS, cells, strict=True))


def _end_of(each: dict[str, Any]) -> str:
    return f"{each['end']}, {each['system']}" if "system" in each else str(each["end"])


def _summary(end: str, runs: list[Run]) -> dict[str, Any]:
    return {
        "end": end,
        "gap_worst_s": spread([run.gap_worst_s for run in runs]),
        "gap_median_s": spread([run.gap_median_s for run in runs]),
        "pause_s": spread([run.pause_s for run in runs]),
        "owned_again_s": spread([run.owned_again_s for run in runs]),
        "again": spread([run.again for run in runs]),
        "duplicates": spread([run.duplicates for run in runs]),
        "violations": sum(run.violations for run in runs),
    }


def _measure_one(plan: Plan, brokers: Brokers, folder: Path, end: str, number: int) -> Run:
    name = f"{end.lower()}-{number}"
    with open_site(brokers, folder / name, name, queues=plan.queues, histories=True) as site:
        if plan.spilled:
            backlog = Backlog(plan.spilled, 0, 0, _KEYS, plan.seed, settled=False)
            site.preload(backlog)
        victim, survivor = site.start_proxy(), site.start_proxy()
        workers = _start_workers(plan, site, victim, survivor)
        producer = site.start_producer([survivor, victim], rate=plan.rate, keys=_KEYS)
        _wait_for_load(plan, workers)
        ended_ns = _end(plan, end, victim, survivor)
        _wait_for_progress(plan, workers)
        producer.terminate()
        sent = producer.ended_with["sent"]
        wait_until(
            lambda: sum(worker.counts()["others"] for worker in workers) >= sent,
            within_s=120,
            what="everything handled",
        )
        for worker in workers:
            worker.child.terminate()
        for proxy in (victim, survivor):
            if proxy.child.running:
                proxy.child.terminate(within_s=60)
        return _judge(site, victim, end=end, number=number, ended_ns=ended_ns, sent=sent)


def _start_workers(
    plan: Plan, site: Site, victim: ProxyProcess, survivor: ProxyProcess
) -> list[Worker]:
    options = ("--work-ms", plan.work_ms, "--concurrency", 64, "--fail")
    workers = [
        site.start_worker([victim, survivor], *options),
        site.start_worker([survivor, victim], *options),
    ]
    half = plan.queues // 2
    wait_for_queues([victim, survivor], [half, plan.queues - half])
    if plan.spilled:
        wait_until(
            lambda: all(
                queue["position"] >= queue["end"] for queue in victim.queues() + survivor.queues()
            ),
            within_s=300,
            what=f"{plan.spilled} messages read",
        )
    return workers


def _wait_for_load(plan: Plan, workers: list[Worker]) -> None:
    enough = plan.rate * plan.before_s
    wait_until(
        lambda: sum(worker.counts()["others"] for worker in workers) >= enough,
        within_s=60 + plan.before_s,
        what="the load under way",
    )


def _end(plan: Plan, end: str, victim: ProxyProcess, survivor: ProxyProcess) -> int:
    """End the proxy; return the time when the other owns all queues, or both share them again."""
    ended_ns = now_ns()
    if end == "SIGTERM":
        victim.child.process.terminate()
    elif end == "SIGKILL":
        victim.child.kill()
    elif end == "SIGSTOP":
        victim.child.pause()
        time.sleep(plan.stop_s)
        victim.child.resume()
        # Both have their share again, or one owns all: a proxy without clients owns no queues.
        wait_until(
            lambda: len(victim.queues()) + len(survivor.queues()) == plan.queues,
            within_s=150,
            what="all queues owned after the proxy woke up",
        )
        return ended_ns
    else:
        raise OrderlaneError(f"--end {end!r}: expected one of {', '.join(ENDS)}")
    wait_for_queues([survivor], [plan.queues])
    return ended_ns


def _wait_for_progress(plan: Plan, workers: list[Worker]) -> None:
    """Wait under load until each queue was served again."""
    before = sum(worker.counts()["others"] for worker in workers)
    time.sleep(plan.after_s)
    wait_until(
        lambda: sum(worker.counts()["others"] for worker in workers) > before,
        within_s=60,
        what="messages handled after the take-over",
    )


def _judge(
    site: Site, victim: ProxyProcess, *, end: str, number: int, ended_ns: int, sent: int
) -> Run:
    report = site.verdict()
    # Stuck keys are redelivered at their own times.
    deliveries = [each for each in site.events("deliver") if not Backlog.is_stuck(each["order"])]
    gaps = sorted(gaps_s(deliveries, victim.node, ended_ns=ended_ns))
    places = {(each["queue"], each["offset"]) for each in deliveries}
    taken = [each["t_ns"] for each in site.events("own+") if each["t_ns"] > ended_ns]
    return Run(
        end=end,
        round=number,
        gap_worst_s=round(gaps[-1], 3),
        gap_median_s=round(statistics.median(gaps), 3),
        pause_s=round(longest_pause_s(deliveries, ended_ns), 3),
        owned_again_s=round((min(taken) - ended_ns) / 1e9, 3),
        again=len(deliveries) - len(places),
        duplicates=report.counts.duplicates,
        violations=sum(each.count for each in report.violations.values()),
        sent=sent,
    )


def gaps_s(deliveries: list[dict[str, Any]], victim: str, *, ended_ns: int) -> Iterator[float]:
    """Return the seconds that each queue of *victim* stood still, from the deliveries of two
    periods.
    """
    lasts: dict[str, tuple[int, int]] = {}  # epoch and time of the period in which the proxy ended
    for each in deliveries:
        if each["node"] == victim and each["t_ns"] <= ended_ns:
            lasts[each["queue"]] = each["epoch"], each["t_ns"]
    for queue, (epoch, _) in lasts.items():
        of_queue = [each for each in deliveries if each["queue"] == queue]
        last_ns = max(each["t_ns"] for each in of_queue if each["epoch"] == epoch)
        first_ns = min((each["t_ns"] for each in of_queue if each["epoch"] > epoch), default=None)
        if first_ns is None:
            # A stopped proxy that was not replaced continues in the same period.
            times = sorted(each["t_ns"] for each in of_queue if each["epoch"] == epoch)
            yield max(later - earlier for earlier, later in pairwise(times)) / 1e9
        else:
            yield (first_ns - last_ns) / 1e9


def longest_pause_s(deliveries: list[dict[str, Any]], ended_ns: int) -> float:
    """Return the longest pause in seconds; longer than the gap if a queue stood still again, such
    as when a proxy resumed.
    """
    times: defaultdict[str, list[int]] = defaultdict(list)
    for each in deliveries:
        times[each["queue"]].append(each["t_ns"])
    pauses = (
        later - earlier
        for each in times.values()
        for earlier, later in pairwise(each)
        if later > ended_ns
    )
    return max(pauses, default=0) / 1e9
