"""Case ``looking``: what open pages of the console cost a proxy, and the clients beside them."""

from __future__ import annotations

import time
from functools import partial

from bench.cpu import CpuMeter
from bench.frame.case import Case, Column, Point, Shape
from bench.frame.context import RunContext
from bench.frame.figures import Figures
from bench.load.idle import allow_descriptors
from bench.load.pages import PAGES
from bench.load.stage import Stage, check_order, lapses, stage
from bench.site import ProxyProcess, wait_for_queues
from proxy.errors import OrderlaneError
from testkit.processes import Child

_QUEUES, _KEYS, _CONNECTIONS = 10, 1_000, 16


def _looking(context: RunContext, point: Point, *, watched: bool) -> Figures:
    """Own ten queues of each of *groups* groups; one of them gets messages at a steady rate."""
    groups, seconds = int(point), context.sizes["seconds"]
    rate = context.sizes["rate"]
    allow_descriptors(1_000)
    with (
        context.brokers(flush="async") as brokers,
        context.site(brokers, "quiet", queues=_QUEUES) as quiet,
        context.site(brokers, queues=_QUEUES) as site,
    ):
        place = stage(site)
        others = [stage(quiet).group(f"group-{number}") for number in range(1, groups)]
        proxy = place.proxy(
            {"groups": [place.group(), *others], "ownership": {"leave_after_s": 36_000}}
        )
        quiet_puller = stage(quiet).puller(
            proxy, group=",".join(each["name"] for each in others), connections=len(others)
        )
        puller = place.puller(proxy, connections=_CONNECTIONS, warm_s=context.sizes["settle_s"] + 1)
        wait_for_queues([proxy], [_QUEUES * groups])
        pages = _opened(place, proxy) if watched else None
        spread_s = seconds + context.sizes["settle_s"]
        sending = place.sender(
            keys=_KEYS, connections=4, rate=rate, count=int(rate * spread_s), seconds=spread_s + 30
        )
        puller.wait_for(1)
        time.sleep(context.sizes["settle_s"])
        meter = CpuMeter({"proxy": proxy.child.process.pid, "broker": brokers.broker_pid})
        before, began_s = meter.read(), time.monotonic()
        time.sleep(seconds)
        spent, took_s = meter.read(), time.monotonic() - began_s
        sent = sending.figures(within_s=spread_s + 60)["sent"]
        puller.wait_for(sent)
        answers = {} if pages is None else _answers(pages)
        said = puller.end()
        quiet_puller.end()
        proxy.child.terminate(within_s=120)
        lapsed = lapses(proxy)
        check_order(said, lapsed=lapsed)
        context.judge(site)
        delays = {name: value for name, value in said.items() if name.endswith("_ms")}
        cpu = {f"{name}_cpu": (spent[name] - before[name]) / took_s * 100 for name in before}
        return {**cpu, **delays, **answers, **lapsed}


def _opened(place: Stage, proxy: ProxyProcess) -> Child:
    pages = place.site.children.start_module(
        *("bench.load.pages", "--address", proxy.http),
        *("--group", place.site.name, "--topic", place.site.name),
    )
    pages.ready(within_s=120)
    return pages


def _answers(pages: Child) -> dict[str, float]:
    """Close the pages and return their figures. Raises OrderlaneError if a request failed."""
    pages.terminate()
    said = pages.ended_with
    if said["errors"]:
        raise OrderlaneError(f"requests of pages failed: {said['errors']}")
    return {name: float(value) for name, value in said.items() if name != "errors"}


CASES = (
    Case(
        name="looking",
        title="Looking",
        question="What do open pages of the console cost?",
        about=f"A proxy owns {_QUEUES} queues of each of its groups. One group has"
        " messages at a steady rate, due at random instants, all others wait for some."
        f" *watched*: {len(PAGES)} pages of the console are open, each with the requests that its"
        " script makes; *alone*: none is. Processor time is in percent of one processor, a delay"
        " is the time from a message's due time to its handler; *added* is the difference to"
        " *alone* in the same round.",
        point="groups",
        points=(10, 100),
        arms={
            "alone": partial(_looking, watched=False),
            "watched": partial(_looking, watched=True),
        },
        columns=(
            Column("proxy_cpu", "proxy CPU %", digits=1),
            Column("proxy_cpu", "added CPU %", digits=1, to="alone", minus=True),
            Column("broker_cpu", "broker CPU %", digits=1),
            Column("p50_ms", "p50 ms", digits=2),
            Column("p99_ms", "p99 ms", digits=2),
            Column("p99_ms", "added p99 ms", digits=2, to="alone", minus=True),
            Column("answers", "answers"),
            Column("answer_p50_ms", "answer p50 ms", digits=1),
            Column("answer_max_ms", "longest answer ms", digits=0),
            Column("received_mb", "received MB", digits=1),
            Column("lapses", "locks that lapsed"),
        ),
        short=Shape(
            rounds=3,
            sizes={"seconds": 10, "settle_s": 2, "rate": 200},
            points=(100,),
            judged={"seconds": 3},
        ),
        full=Shape(
            rounds=5,
            sizes={"seconds": 30, "settle_s": 5, "rate": 500},
            judged={"seconds": 5},
            limit_s=600,
        ),
        histories="apart",
    ),
)
