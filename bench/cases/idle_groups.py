"""Case ``idlegroups``: the cost of consumer groups at rest, and of a drain with them."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import closing

from bench.cpu import CpuMeter
from bench.frame.case import Case, Column, Point, Shape
from bench.frame.context import RunContext
from bench.frame.figures import Figures
from bench.load.idle import allow_descriptors
from bench.load.stage import stage
from bench.site import ProxyProcess, wait_for_queues
from proxy.errors import OrderlaneError
from testkit.processes import wait_until
from thin_client import calls
from thin_client.connection import Connection
from thrift_idl import consumer

_QUEUES = 8
_DRAIN_WITHIN_S = 300.0


def _owned(context: RunContext, point: Point) -> Figures:
    """Own all queues of *groups* groups without clients; measure at rest, then drain."""
    groups, seconds = int(point), context.sizes["seconds"]
    allow_descriptors(1_000)
    with context.brokers() as brokers, context.site(brokers, queues=_QUEUES) as site:
        place = stage(site)
        names = [f"group-{number}" for number in range(groups)]
        topics = [{"name": site.name, "order_key": "KEY", "on_exhausted": "block"}]
        proxy = place.proxy(
            {
                "groups": [{"name": name, "topics": topics} for name in names],
                "ownership": {"leave_after_s": 36_000},
            },
            cold=True,
        )
        began_s = time.monotonic()
        _wake(proxy, names)
        wait_for_queues([proxy], [_QUEUES * groups])
        taken_s = time.monotonic() - began_s
        time.sleep(context.sizes["settle_s"])
        pids = {"proxy": proxy.child.process.pid, "broker": brokers.broker_pid}
        used = _cpu_percent(CpuMeter(pids), seconds)
        resident = proxy.usage().resident_bytes
        began_s = time.monotonic()
        proxy.child.process.terminate()
        wait_until(
            lambda: proxy.child.process.poll() is not None,
            within_s=_DRAIN_WITHIN_S,
            what="the proxy's end",
        )
        drain_s = time.monotonic() - began_s
        if code := proxy.child.process.returncode:
            raise OrderlaneError(f"the proxy ended with {code}: {proxy.child.err.strip()[-500:]}")
        return {
            "take_over_s": taken_s,
            "cpu_proxy": used["proxy"],
            "cpu_broker": used["broker"],
            "resident_mb": resident / 1e6,
            "drain_s": drain_s,
        }


def _wake(proxy: ProxyProcess, groups: list[str]) -> None:
    """Pull once for each of *groups*, so that the proxy acquires its queues."""
    with closing(Connection(proxy.destination, timeout_s=30)) as connection:
        for request in _pulls(groups):
            connection.call(calls.pull(request), timeout_s=30)


def _pulls(groups: list[str]) -> Iterator[consumer.PullRequest]:
    for name in groups:
        yield consumer.PullRequest(groupId=name, maxBatchSize=1, maxLingerTime=1, clientId="wake")


def _cpu_percent(meter: CpuMeter, seconds: float) -> dict[str, float]:
    """Return the use of one processor by each process, in percent, over the next *seconds*."""
    before, began_s = meter.read(), time.monotonic()
    time.sleep(seconds)
    after, took_s = meter.read(), time.monotonic() - began_s
    return {name: (after[name] - before[name]) / took_s * 100 for name in before}


CASES = (
    Case(
        name="idlegroups",
        title="Idle groups",
        question="What do consumer groups cost that have nothing to do?",
        about="One proxy and one broker with the given number of consumer groups, each of which"
        f" consumes the same topic of {_QUEUES} empty queues. The proxy owns all queues of all"
        " groups; no client is connected. CPU is in percent of one processor; *take-over* is the"
        " time until all queues are owned, *drain* the time from SIGTERM to the end of the proxy.",
        point="groups",
        points=(100, 1_000),
        arms={"owned": _owned},
        columns=(
            Column("cpu_proxy", "CPU % proxy", digits=2),
            Column("cpu_broker", "CPU % broker", digits=2),
            Column("resident_mb", "resident MB"),
            Column("take_over_s", "take-over s", digits=1),
            Column("drain_s", "drain s", digits=1),
        ),
        short=Shape(rounds=3, sizes={"seconds": 5, "settle_s": 3}, points=(100,)),
        full=Shape(rounds=5, sizes={"seconds": 30, "settle_s": 15}, limit_s=1_200),
        histories="none",
    ),
)
