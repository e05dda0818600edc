"""Case ``tuning``: a run, and what ``order-key simulate --service-ms observed`` predicts for it."""

from __future__ import annotations

import asyncio
import time
import urllib.request
from collections import defaultdict
from random import Random
from typing import Any

import orjson

from bench.cases.consuming import ended
from bench.flights import Queued, queued_flights, sample_of_queued, store_queued
from bench.frame.case import Case, Column, Point, Shape
from bench.frame.context import OrderViolated, RunContext
from bench.frame.figures import Figures
from bench.frame.progress import Counter, stretch
from bench.handling_record import FIRST, LAST
from broker_core.remoting.key_hash import java_hash
from proxy.core.keys.kinds.registry import compile_order_key
from proxy.core.keys.topic_rules import TopicRules
from proxy.tuning.handling import Handling
from proxy.tuning.simulator import play

_HANDLERS, _QUEUES, _TOPIC, _KEY = 32, 8, "bench", "KEY"
_ZIPF, _CUSTOMERS = 1.2, 1_000
#: Median and 99th percentile of handling times, ms, by data.
_TIMES = ("1", "p50=4,p99=40", "p50=40,p99=400")
_POINTS = tuple(f"{data} {times}" for data in ("zipf", "flights") for times in _TIMES)


def _zipf(messages: int, seed: int) -> Queued:
    """Return orders of customers, each in one queue; the hottest has a quarter of them."""
    chance = Random(seed)
    weights = [1 / rank**_ZIPF for rank in range(1, _CUSTOMERS + 1)]
    queued: defaultdict[int, list[tuple[str | None, bytes]]] = defaultdict(list)
    for rank in chance.choices(range(_CUSTOMERS), weights, k=messages):
        key = f"customer-{rank}"
        queued[abs(java_hash(key)) % _QUEUES].append((key, b"{}"))
    return dict(sorted(queued.items()))


def _data(context: RunContext, name: str) -> Queued:
    if name == "zipf":
        return _zipf(context.size("orders"), context.seed)
    return queued_flights(str(context.size("flights")), _QUEUES)


class _Observed:
    """The handling times that a group's clients report: a proxy forgets clients that have left."""

    def __init__(self, http: str, group: str) -> None:
        self.answer: dict[str, Any] = {"messages": -1}
        self._url = f"http://{http}/api/groups/{group}/handling"
        self._next_s = 0.0

    def look(self) -> None:
        """Ask the proxy, at most ten times a second; keep the answer about most messages."""
        if time.monotonic() < self._next_s:
            return
        self._next_s = time.monotonic() + 0.1
        with urllib.request.urlopen(self._url, timeout=30) as answer:
            found = orjson.loads(answer.read())
        if found["messages"] >= self.answer["messages"]:
            self.answer = found


def _gateway(context: RunContext, point: Point) -> Figures:
    name, times = str(point).split(" ")
    queued = _data(context, name)
    messages = sum(map(len, queued.values()))
    with (
        context.brokers() as brokers,
        context.site(brokers, _TOPIC, queues=_QUEUES, order_key=_KEY) as site,
    ):
        asyncio.run(store_queued(brokers.nameserver, _TOPIC, queued))
        proxy = site.start_proxy()
        site.wake(proxy)
        observed = _Observed(proxy.http, site.name)

        def alive() -> bool:
            observed.look()
            return child.running and proxy.child.running

        with Counter(site.children.folder / "count") as counter:
            child = site.children.start_module(
                *("bench.flight_consumer", "--proxy", proxy.thrift, "--group", site.name),
                *("--messages", messages, "--counter", "count", "--order-key", _KEY),
                *("--service-ms", times, "--concurrency", _HANDLERS),
                *("--seed", context.seed, *site.history_options()),
            )
            part = stretch(
                lambda: counter.value,
                {"client": child.process.pid, "proxy": proxy.child.process.pid},
                messages,
                first=FIRST,
                last=LAST,
                alive=alive,
            )
        said = ended(child)
        proxy.child.terminate(within_s=60)
    if said["faults"]:
        raise OrderViolated(f"{said['faults']} messages were early or repeated")
    plan = Handling.merged([observed.answer]).plan(
        None, None, round_trip_ns=None, seed=context.seed
    )
    rules = TopicRules(compile_order_key(_KEY))
    played = play(sample_of_queued(queued, [_KEY]), _KEY, rules, plan)
    predicted_s = played.total_ns / 1e9
    return {
        **said,
        **part.cpu_us,
        "predicted_s": predicted_s,
        "of_run": predicted_s / said["seconds"],
        "mean_ms": observed.answer["mean_ms"],
        "round_trip_ms": observed.answer["round_trip_ms"],
    }


CASES = (
    Case(
        name="tuning",
        title="Order keys: observed times and gateway",
        question="Does a run take as long as orderlane order-key simulate --service-ms observed"
        " predicts?",
        about=f"A backlog in {_QUEUES} queues, ordered by KEY and handled by the Python client with"
        f" {_HANDLERS} handlers that sleep as long as the point says, ms (lognormal). *zipf*:"
        f" orders of {_CUSTOMERS:,} customers, by Zipf's law with s = {_ZIPF}. *flights*: real"
        " flights of 2013, by aircraft. *predicted*: the simulation with what the client reported"
        " during the run.",
        point="data",
        points=_POINTS,
        arms={"gateway": _gateway},
        columns=(
            Column("seconds", "seconds", 2),
            Column("predicted_s", "predicted", 2),
            Column("of_run", "of the run", 3),
            Column("mean_ms", "handling, ms", 2),
            Column("round_trip_ms", "round trip, ms", 2),
        ),
        short=Shape(
            rounds=3,
            sizes={"orders": 2_000, "flights": 27_004},
            points=("zipf p50=4,p99=40", "flights 1"),
        ),
        full=Shape(rounds=5, sizes={"orders": 10_000, "flights": 27_004}),
        histories="none",
    ),
)
