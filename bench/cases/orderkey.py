"""Case ``orderkey``: forecasts of ``orderlane order-key`` compared with the gateway's real
behavior.
"""

from __future__ import annotations

import asyncio

from bench.cases.consuming import ended
from bench.flights import sample_of_flights, store_flights
from bench.frame.case import Case, Column, Point, Shape
from bench.frame.context import OrderViolated, RunContext
from bench.frame.figures import Figures
from bench.frame.progress import Counter, stretch
from bench.handling_record import FIRST, LAST
from proxy.core.keys.kinds.registry import compile_order_key
from proxy.core.keys.topic_rules import TopicRules
from proxy.tuning.sample import Sample
from proxy.tuning.service_times import ServiceTimes
from proxy.tuning.simulator import Plan, play, service_ns

_HANDLERS, _QUEUES, _TOPIC = 64, 8, "bench"
#: Long enough that handlers are the bottleneck, not the two processors, which a simulation does not
#: model.
_SERVICE_MS = "p50=40,p99=200"
_CANDIDATES = ("$.tailnum", "$.flight", "$.dest", "$.carrier", "$.origin")


#: These keep few handlers busy, so fewer flights give a long enough run.
_OF_FEW_KEYS = ("$.carrier", "$.origin")


def _flights(context: RunContext, candidate: Point) -> int:
    return context.size("of_few_keys" if candidate in _OF_FEW_KEYS else "flights")


def _service(context: RunContext) -> ServiceTimes:
    return ServiceTimes.parse(_SERVICE_MS, seed=context.seed)


def _lint(context: RunContext, candidate: Point) -> Figures:
    sample = _sample(context, str(candidate))
    (figures,) = sample.report(source="flights", workers=_HANDLERS).candidates
    as_stored = figures.messages / figures.busiest_chain
    return {"ceiling": figures.max_speedup, "as_stored": min(_HANDLERS, as_stored)}


def _simulated(context: RunContext, candidate: Point) -> Figures:
    plan = Plan(_HANDLERS, _service(context), context.size("round_trip_us") * 1_000)
    sample = _sample(context, str(candidate))
    rules = TopicRules(compile_order_key(str(candidate)))
    played = play(sample, str(candidate), rules, plan)
    seconds = played.total_ns / 1e9
    return {
        "seconds": seconds,
        "per_s": played.messages / seconds,
        "busy": played.work_ns / played.total_ns,
        "faults": 0,
    }


def _sample(context: RunContext, candidate: str) -> Sample:
    flights = _flights(context, candidate)
    return sample_of_flights(str(flights), [candidate], queues=_QUEUES)


def _gateway(context: RunContext, candidate: Point) -> Figures:
    flights = _flights(context, candidate)
    with (
        context.brokers() as brokers,
        context.site(brokers, _TOPIC, queues=_QUEUES, order_key=f"'{candidate}'") as site,
    ):
        asyncio.run(store_flights(brokers.nameserver, _TOPIC, str(flights), queues=_QUEUES))
        proxy = site.start_proxy()
        site.wake(proxy)
        with Counter(site.children.folder / "count") as counter:
            child = site.children.start_module(
                *("bench.flight_consumer", "--proxy", proxy.thrift, "--group", site.name),
                *("--messages", flights, "--counter", "count", "--order-key", candidate),
                *("--service-ms", _SERVICE_MS, "--concurrency", _HANDLERS),
                *("--seed", context.seed, *site.history_options()),
            )
            part = stretch(
                lambda: counter.value,
                {"client": child.process.pid, "proxy": proxy.child.process.pid},
                flights,
                first=FIRST,
                last=LAST,
                alive=lambda: child.running and proxy.child.running,
            )
        said = ended(child)
        proxy.child.terminate(within_s=60)
        if said["faults"]:
            raise OrderViolated(f"{said['faults']} messages were early or repeated")
        named = str(candidate)
        work_ns = sum(map(sum, service_ns(_sample(context, named), _service(context), named)))
        return {**said, **part.cpu_us, "busy": work_ns / 1e9 / said["seconds"]}


CASES = (
    Case(
        name="orderkey",
        title="Order keys: simulation and gateway",
        question="Does the gateway take as long as orderlane order-key simulate predicts?",
        about=f"Real flights of 2013, sent by aircraft to {_QUEUES} queues, handled by {_HANDLERS}"
        f" handlers that sleep {_SERVICE_MS} ms a message (lognormal). *lint*: the ceiling of"
        " the speed-up by the hottest key's share, and by the longest chain as the messages"
        " are stored, for a key that is spread over queues. *simulated*: the ordering core"
        " in virtual time. *gateway*: broker, proxy and the Python client in processes; each"
        " message sleeps as long as in the simulation. Carriers and origins have few keys"
        " and therefore run with fewer messages: compare messages/s between candidates, not"
        " seconds.",
        point="order key",
        points=_CANDIDATES,
        arms={"lint": _lint, "gateway": _gateway, "simulated": _simulated},
        columns=(
            Column("seconds", "seconds", 2),
            Column("seconds", "of gateway", 3, to="gateway"),
            Column("per_s", "messages/s"),
            Column("busy", "handlers busy", 1),
            Column("ceiling", "ceiling", 1),
            Column("as_stored", "ceiling as stored", 1),
        ),
        short=Shape(
            rounds=3,
            sizes={"flights": 2_000, "of_few_keys": 1_000, "round_trip_us": 1_000},
            points=("$.tailnum", "$.dest", "$.carrier"),
        ),
        full=Shape(
            rounds=5, sizes={"flights": 12_000, "of_few_keys": 3_000, "round_trip_us": 1_000}
        ),
        histories="none",
    ),
)
