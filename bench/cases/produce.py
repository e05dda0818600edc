"""Case ``produce``: sends to an embedded broker, through a proxy, and to Apache RocketMQ's broker,
by one sender.
"""

from __future__ import annotations

import re
import time
from collections.abc import Mapping

from bench.frame.case import Arm, Case, Column, NotHere, Plot, Point, Shape
from bench.frame.context import RunContext
from bench.frame.figures import Figures
from bench.load.stage import Stage, stage, timed
from bench.site import EMBEDDED
from testkit.rocketmq import VERSIONS

_KEYS = 10_000
_POINT = re.compile(r"(\w+), (\d+) x (\d+)")


def _arm(kind: str, *, through_proxy: bool = False) -> Arm:
    def run(context: RunContext, point: Point) -> Figures:
        flush, connections, batch = _parts(point)
        if context.broker != EMBEDDED:
            raise NotHere
        with (
            context.brokers(kind, flush=flush) as brokers,
            context.site(brokers) as site,
        ):
            place = stage(site)
            options = {"keys": _KEYS, "connections": connections, "batch": batch}
            return _measured(context, place, options, through_proxy=through_proxy)

    return run


def _measured(
    context: RunContext, place: Stage, options: Mapping[str, object], *, through_proxy: bool
) -> Figures:
    proxy = place.proxy({"groups": [place.group()]}) if through_proxy else None
    sender = place.sender(proxy, **options)
    sender.wait_for(1)
    time.sleep(context.sizes["warm_s"])
    processes = {"broker": place.site.brokers.broker_pid, "client": sender.pid}
    if proxy is not None:
        processes["proxy"] = proxy.child.process.pid
    found = timed(lambda: sender.count, processes, seconds=context.sizes["seconds"])
    answers = sender.end()
    place.check_log(answers["sent"])
    return {
        **found.figures(),
        **{name: answers[name] for name in ("answer_p50_ms", "answer_p99_ms")},
    }


def _parts(point: Point) -> tuple[str, int, int]:
    """Return flush mode, connections and batch of a point."""
    found = _POINT.fullmatch(str(point))
    assert found is not None
    return found[1], int(found[2]), int(found[3])


POINTS = tuple(
    f"{flush}, {connections} x {batch}"
    for flush in ("sync", "async")
    for connections in (1, 64)
    for batch in (1, 32)
)

CASES = (
    Case(
        name="produce",
        title="Sends",
        question="How many messages a second does the broker store, compared with Apache"
        " RocketMQ's?",
        about="A lean sender whose connections each wait for the answer before the next send;"
        " *sync, 64 x 32*: with sync flush, 64 connections, 32 messages of one queue a"
        " request. *broker*: the embedded broker, by RocketMQ's protocol; *proxy*: through a"
        f" proxy in front of it, by Thrift; *rocketmq*: Apache RocketMQ {VERSIONS[0]} with"
        " the same flush, its own files and threads. Bodies of 256 bytes, 8 queues, 10,000"
        " keys. Confirmed messages are read back after each run: all of them have to be"
        " there, once and in order of their keys.",
        point="flush, connections x batch",
        points=POINTS,
        arms={
            "broker": _arm(EMBEDDED),
            "proxy": _arm(EMBEDDED, through_proxy=True),
            "rocketmq": _arm(VERSIONS[0]),
        },
        columns=(
            Column("per_s", "messages/s"),
            Column("per_s", "of rocketmq", digits=2, to="rocketmq"),
            Column("answer_p50_ms", "answer p50 ms", digits=2),
            Column("answer_p99_ms", "answer p99 ms", digits=2),
            Column("broker_us", "broker CPU µs each", digits=1),
            Column("proxy_us", "proxy CPU µs each", digits=1),
            Column("client_us", "sender CPU µs each", digits=1),
        ),
        short=Shape(
            rounds=3,
            sizes={"warm_s": 2, "seconds": 2},
            points=("sync, 64 x 1",),
        ),
        full=Shape(rounds=5, sizes={"warm_s": 8, "seconds": 5}),
        histories="none",
        plots=(Plot(Column("per_s", "messages/s"), log_y=True, bars=True),),
    ),
)
