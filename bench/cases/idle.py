"""Case ``idle``: cost of idle connected clients for a proxy."""

from __future__ import annotations

import time
from functools import partial

from bench.cpu import CpuMeter
from bench.frame.case import Case, Column, Point, Shape
from bench.frame.context import RunContext
from bench.frame.figures import Figures
from bench.load.idle import allow_descriptors
from bench.load.stage import Stage, stage
from bench.site import ProxyProcess, wait_for_queues
from proxy.errors import OrderlaneError
from testkit.processes import Child

#: A proxy returns freed memory to the system every ten seconds.
_SETTLED_S = 12
_WAIT_S = 30.0


def _idle(context: RunContext, point: Point, *, waiting: bool) -> Figures:
    """Hold *connections* idle connections for *seconds*; with *waiting* each has a pull open."""
    wait_s = context.sizes["wait_s"] if waiting else 0.0
    connections, seconds = int(point), context.sizes["seconds"]
    allow_descriptors(connections)  # the proxy inherits the limit of this process
    with context.brokers() as brokers, context.site(brokers) as site:
        place = stage(site)
        # The queues are owned throughout, as in a group with working clients.
        settings = {"groups": [place.group()], "ownership": {"leave_after_s": 3_600}}
        proxy = place.proxy(settings, cold=True)
        site.wake(proxy)
        wait_for_queues([proxy], [site.queues])
        time.sleep(context.sizes["settle_s"])
        before = proxy.usage().resident_bytes
        alone = _cpu_percent(proxy, seconds)
        clients = _connected(place, proxy, connections, wait_s)
        time.sleep(context.sizes["settle_s"])
        busy = _cpu_percent(proxy, seconds)
        resident = proxy.usage().resident_bytes
        clients.terminate()
        if lost := clients.ended_with["lost"]:
            raise OrderlaneError(f"the proxy closed {lost} of {connections} idle connections")
        return {
            "resident_mb": resident / 1e6,
            "grown_mb": (resident - before) / 1e6,
            "each_kb": (resident - before) / connections / 1e3,
            "cpu": busy,
            "cpu_alone": alone,
            "answered": clients.ended_with["answered"],
        }


def _connected(place: Stage, proxy: ProxyProcess, connections: int, wait_s: float) -> Child:
    clients = place.site.children.start_module(
        *("bench.load.idle", "--address", proxy.thrift, "--connections", connections),
        *("--group", place.site.name, "--wait-s", wait_s),
    )
    clients.ready(within_s=120)
    clients.wait_for(2, within_s=120 + wait_s)
    return clients


def _cpu_percent(proxy: ProxyProcess, seconds: float) -> float:
    """Return the use of one processor, in percent, over the next *seconds*."""
    meter = CpuMeter({"proxy": proxy.child.process.pid})
    before, began_s = meter.read()["proxy"], time.monotonic()
    time.sleep(seconds)
    return (meter.read()["proxy"] - before) / (time.monotonic() - began_s) * 100


CASES = (
    Case(
        name="idle",
        title="Idle connections",
        question="What does a connected but idle client cost?",
        about="One proxy with default settings and a group on eight empty queues, which it owns"
        " all the time; the given number of connections, from several addresses. *silent*:"
        " the connections are only open; *waiting*: each repeats a pull that waits"
        f" {_WAIT_S:g} s for a message, like clients of a group without messages. Resident"
        f" memory is measured at least {_SETTLED_S} s after the last connection; CPU is that"
        " of the proxy alone, in percent of one processor; *without* is the same proxy"
        " before the first connection.",
        point="connections",
        points=(1_000, 10_000),
        arms={
            "silent": partial(_idle, waiting=False),
            "waiting": partial(_idle, waiting=True),
        },
        columns=(
            Column("resident_mb", "resident MB"),
            Column("grown_mb", "grown MB", digits=1),
            Column("each_kb", "KB each", digits=1),
            Column("cpu", "CPU %", digits=2),
            Column("cpu_alone", "CPU % without", digits=2),
            Column("answered", "pulls answered"),
        ),
        short=Shape(rounds=3, sizes={"seconds": 3, "settle_s": 2, "wait_s": 5}, points=(1_000,)),
        full=Shape(
            rounds=5, sizes={"seconds": 60, "settle_s": _SETTLED_S, "wait_s": _WAIT_S}, limit_s=600
        ),
        histories="none",
    ),
)
