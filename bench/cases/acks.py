"""Case B6: acks sent with the next pull, compared with acks in separate calls."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from bench.frame.case import Arm, Case, Column, Plot, Point, Shape
from bench.frame.context import RunContext
from bench.frame.figures import Figures
from bench.frame.progress import stretch
from bench.load.delays import Delays
from bench.load.stage import Loader, Stage, check_order, lapses, stage
from bench.site import ProxyProcess, Site, wait_for_queues
from broker_core.clock import now_ns

_QUEUES, _KEYS, _CONNECTIONS = 8, 10_000, 16


def _consumer(arm: str, place: Stage, proxy: ProxyProcess, batch: int, **more: Any) -> Loader:
    if arm == "client":
        handlers = max(1, batch // 2)
        return place.client(proxy, concurrency=handlers, prefetch=batch - handlers, **more)
    settle = arm == "own call"
    return place.puller(proxy, connections=_CONNECTIONS, batch=batch, settle=settle, **more)


def _arm(name: str) -> Arm:
    def run(context: RunContext, point: Point) -> Figures:
        batch = int(point)
        with context.brokers(flush="async") as brokers:
            with replace(context, histories=False).site(brokers, "drain") as site:
                drained = _drain(context, name, stage(site), batch)
            with context.site(brokers, "delays") as site:
                return {**drained, **_delays(context, name, stage(site), batch)}

    return run


def _drain(context: RunContext, arm: str, place: Stage, batch: int) -> dict[str, float]:
    """Drain a backlog as fast as possible."""
    messages = context.size("messages") // (4 if batch == 1 else 1)
    place.preload(messages, keys=_KEYS)
    proxy = place.proxy({"groups": [place.group()]})
    consumer = _consumer(arm, place, proxy, batch, count=messages)
    processes = {"proxy": proxy.child.process.pid, "client": consumer.pid}
    found = stretch(
        lambda: consumer.count, processes, messages, alive=lambda: consumer.child.running
    )
    calls = consumer.figures()
    check_order(calls, lapsed=lapses(proxy))
    made = calls.get("pulls", 0) + calls.get("settles", 0)
    return {**found.figures(), "calls": made / messages}


def _delays(context: RunContext, arm: str, place: Stage, batch: int) -> dict[str, float]:
    """Return the delays from a handler's end to the proxy's ack, from the histories of both."""
    proxy = place.proxy({"groups": [place.group()]})
    consumer = _consumer(arm, place, proxy, batch)
    wait_for_queues([proxy], [_QUEUES])
    sent = 0
    times = []
    for rate in (context.sizes["idle_rate"], context.sizes["load_rate"]):
        count = int(rate * context.sizes["seconds"])
        sender = place.sender(keys=_KEYS, connections=4, rate=rate, count=count)
        sent += sender.figures(within_s=60)["sent"]
        consumer.wait_for(sent)
        times.append(now_ns())
    consumer.end()
    proxy.child.terminate(within_s=60)
    context.judge(place.site)
    if not context.histories:
        return {}
    return _by_histories(place.site, idle_until_ns=times[0])


def _by_histories(site: Site, *, idle_until_ns: int) -> dict[str, float]:
    ends = {_lease(each): each["t_ns"] for each in site.events("handle_end")}
    idle, load = Delays(), Delays()
    for each in site.events("ack_ok"):
        ended_ns = ends.get(_lease(each))
        if ended_ns is not None:
            (idle if ended_ns <= idle_until_ns else load).add(ended_ns, each["t_ns"])
    return {**idle.figures("idle_"), **load.figures("load_")}


def _lease(event: Mapping[str, Any]) -> tuple[str, int]:
    return event["queue"], event["lease"]


CASES = (
    Case(
        name="acks",
        title="Acks",
        question="What does an ack cost, and how soon does it take effect?",
        about="*next pull*: a lean consumer whose acks ride on its next pull; *own call*: the"
        " same consumer with a separate `settle` before it pulls again; *client*: the Python"
        " thin client, which waits a little for the next pull and sends acks separately if a"
        f" key waits. {_CONNECTIONS} connections that pull a batch each, or one client with"
        " room for a batch. Throughput is measured on a backlog without histories; the"
        " delay, from the end of a handler to the proxy's ack, on histories of both, at 20"
        " messages a second (*idle*) and at 1,000 (*load*). *Calls*: pulls and settles for"
        " each message.",
        point="batch",
        points=(1, 4, 16, 64),
        arms={name: _arm(name) for name in ("next pull", "own call", "client")},
        columns=(
            Column("per_s", "messages/s"),
            Column("per_s", "of own call", digits=2, to="own call"),
            Column("calls", "calls each", digits=3),
            Column("proxy_us", "proxy CPU µs each", digits=1),
            Column("client_us", "client CPU µs each", digits=1),
            Column("idle_p99_ms", "ack p99 ms, idle", digits=2),
            Column("load_p99_ms", "ack p99 ms, load", digits=2),
        ),
        short=Shape(
            rounds=3,
            sizes={"messages": 12_000, "idle_rate": 20, "load_rate": 1_000, "seconds": 1.5},
            points=(16,),
        ),
        full=Shape(
            rounds=5,
            sizes={"messages": 300_000, "idle_rate": 20, "load_rate": 1_000, "seconds": 8},
        ),
        plots=(Plot(Column("per_s", "messages/s"), log_x=True),),
    ),
)
