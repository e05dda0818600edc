"""Cases ``latency`` and ``zipf``: delays under open loads, of all messages or by key of a skewed
distribution.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

from bench.frame.case import Arm, Case, Column, PeerArm, Plot, Point, Shape
from bench.frame.context import RunContext
from bench.frame.figures import Figures
from bench.load.shape import zipf_shares
from bench.load.stage import Loader, Stage, check_order, lapses, stage, timed
from bench.peers.open_load import OpenPeer, OpenWork, delays
from bench.peers.open_registry import OPEN_PEERS
from bench.site import ProxyProcess, wait_for_queues

_QUEUES, _KEYS = 8, 1_000
#: Connections of consumers, and of the sender.
_PULLERS, _LINKS = 16, 8
#: The skew: number of handlers, and work per message.
_HANDLERS, _WORK_MS, _LOAD = 16, 5.0, 0.7

Consumer = Callable[[Stage, ProxyProcess | None], Loader]


# ---- latency -------------------------------------------------------------------------------------


def _direct(place: Stage, _proxy: ProxyProcess | None) -> Loader:
    return place.puller(batch=32, warm_s=1)


def _lean(place: Stage, proxy: ProxyProcess | None) -> Loader:
    return place.puller(proxy, connections=_PULLERS, batch=32, warm_s=1)


def _client(place: Stage, proxy: ProxyProcess | None) -> Loader:
    assert proxy is not None
    return place.client(proxy, warm_s=1)


def _latency(consumer: Consumer, *, through_proxy: bool = True) -> Arm:
    def run(context: RunContext, point: Point) -> Figures:
        capacity = _capacity(context)
        rate = capacity * int(point) / 100
        with context.brokers(flush="async") as brokers, context.site(brokers) as site:
            place = stage(site)
            proxy = place.proxy({"groups": [place.group()]}) if through_proxy else None
            found = _flow(place, proxy, consumer, rate=rate, seconds=context.sizes["seconds"])
            if proxy is not None:
                context.judge(site)
            return {"rate": rate, "capacity": capacity, **found}

    return run


def _peer(peer: OpenPeer) -> PeerArm:
    def run(context: RunContext, point: Point) -> Figures:
        capacity = _capacity(context)
        rate = capacity * int(point) / 100
        work = OpenWork(rate, context.sizes["seconds"], _KEYS, _QUEUES, seed=context.seed)
        return {"rate": rate, "capacity": capacity, **delays(peer, context, work)}

    return PeerArm(lambda: peer.about, run)


def _capacity(context: RunContext) -> float:
    """Return the messages per second that pass a proxy while a sender sends at full speed.

    The first arm of a round measures it, so that all arms have the same load.
    """
    if context.earlier:
        return float(context.earlier[0]["capacity"])
    with context.brokers(flush="async") as brokers, context.site(brokers, "capacity") as site:
        place = stage(site)
        proxy = place.proxy({"groups": [place.group()]})
        puller = _lean(place, proxy)
        wait_for_queues([proxy], [_QUEUES])
        place.sender(keys=_KEYS, connections=_LINKS)
        puller.wait_for(1)
        time.sleep(1)
        return timed(lambda: puller.count, {}, seconds=2).figures()["per_s"]


def _flow(
    place: Stage,
    proxy: ProxyProcess | None,
    consumer: Consumer,
    *,
    rate: float,
    seconds: float,
    ordered: bool = True,
    **sender: Any,
) -> dict[str, float]:
    """Return the consumer's figures under a load of *rate* messages per second.

    Raises OrderViolated if messages *ordered* by key or queue arrived out of order.
    """
    loader = consumer(place, proxy)
    if proxy is not None:
        wait_for_queues([proxy], [_QUEUES])
    count = int(rate * seconds)
    sending = place.sender(
        keys=_KEYS, connections=_LINKS, rate=rate, count=count, seconds=seconds * 2 + 30, **sender
    )
    sent = sending.figures(within_s=seconds * 2 + 60)["sent"]
    ended_s = time.monotonic()
    loader.wait_for(sent)
    behind_s = time.monotonic() - ended_s
    found = loader.end()
    counted = {name: value for name, value in found.items() if name.endswith("_ms")}
    lapsed: dict[str, float] = {}
    if proxy is not None:
        proxy.child.terminate(within_s=60)
        lapsed = lapses(proxy)
    if ordered:
        check_order(found, lapsed=lapsed)
    counted |= lapsed
    return {**counted, "behind_s": behind_s, "faults": found["faults"] + found["repeated"]}


# ---- the skew ------------------------------------------------------------------------------------


def _skewed(order_key: str | None, *, hand_out: str = "oldest") -> Arm:
    def run(context: RunContext, point: Point) -> Figures:
        exponent = float(point)
        head = zipf_shares(_KEYS, exponent)[0]
        rate = _LOAD * min(_HANDLERS, 1 / head) / (_WORK_MS / 1000)

        def handlers(place: Stage, proxy: ProxyProcess | None) -> Loader:
            pace = {"batch": 1, "work_ms": _WORK_MS, "split": True, "warm_s": 1}
            return place.puller(proxy, connections=_HANDLERS, **pace)

        with (
            context.brokers(flush="async") as brokers,
            context.site(brokers, order_key=order_key) as site,
        ):
            place = stage(site)
            group = {**place.group(order_key=order_key), "hand_out": hand_out}
            proxy = place.proxy({"groups": [group]})
            seconds = context.sizes["seconds"]
            found = _flow(
                *(place, proxy, handlers),
                rate=rate,
                seconds=seconds,
                ordered=order_key is not None,
                exponent=exponent,
            )
            if order_key is None:
                del found["faults"]  # this arm promises no order
            context.judge(site)
            return {"rate": rate, "head": head * 100, **found}

    return run


_DELAYS = (
    Column("p50_ms", "p50 ms", digits=2),
    Column("p99_ms", "p99 ms", digits=2),
    Column("p999_ms", "p99.9 ms", digits=2),
)

CASES = (
    Case(
        name="latency",
        title="Latency",
        question="How long does a message take from its due time to its handler, and how much of"
        " that does the proxy add?",
        about="Messages are due at random instants with a mean rate, independent of earlier ones,"
        " and are sent in one request each; the delay counts from the due time. Loads are"
        " percentages of the throughput of a proxy in the same round with a sender at full"
        " speed. *direct*: a lean consumer with long polls at the broker itself; *proxy*: a"
        " lean consumer of a proxy, with 16 connections; *client*: the Python thin client at"
        " a proxy. *Added* is the difference to *direct*. Async flush, 8 queues, 1,000 keys,"
        " bodies of 256 bytes; sender, broker, proxy and consumer share two processors. Peers"
        " have consumers in Java with one thread per handler, 64 of them.",
        point="load %",
        points=(10, 50, 80),
        arms={
            "direct": _latency(_direct, through_proxy=False),
            "proxy": _latency(_lean),
            "client": _latency(_client),
        },
        columns=(
            Column("rate", "messages/s"),
            *_DELAYS,
            Column("p50_ms", "p50 added ms", digits=2, to="direct", minus=True),
            Column("p99_ms", "p99 added ms", digits=2, to="direct", minus=True),
            Column("p50_ms", "p50 of rocketmq-orderly", digits=2, to="rocketmq-orderly"),
            Column("p99_ms", "p99 of rocketmq-orderly", digits=2, to="rocketmq-orderly"),
            Column("lapses", "locks that lapsed"),
        ),
        short=Shape(rounds=3, sizes={"seconds": 3}, points=(50,), judged={"seconds": 2}),
        full=Shape(
            rounds=5,
            sizes={"seconds": 15},
            judged={"seconds": 5},
            peers=tuple(OPEN_PEERS),
            limit_s=600,
        ),
        peers={name: _peer(peer) for name, peer in OPEN_PEERS.items()},
        histories="apart",
        plots=(Plot(Column("p50_ms", "p50 ms")), Plot(Column("p99_ms", "p99 ms"))),
    ),
    Case(
        name="zipf",
        title="Skew",
        question="How long do other keys wait for the busiest one?",
        about=f"1,000 keys with Zipf's distribution, {_HANDLERS} handlers with {_WORK_MS:g} ms of"
        f" work a message, 8 queues. Messages are due at random instants, at {_LOAD:.0%} of"
        " the highest rate that order by key allows: the number of handlers, or 1 / share of"
        " the busiest key if that is less, divided by the work. The delay is from the due"
        " time to the handler, for the busiest key (*head*) and for all others (*rest*)."
        " *KEY* orders by key, *longest* the same with `hand_out: longest_chain`, *QID* by queue"
        " as RocketMQ's orderly consumers do, *unordered* not at all. *Behind* is the time from"
        " the last send until all messages were handled.",
        point="exponent",
        points=(0.8, 1.0, 1.2),
        arms={
            "KEY": _skewed("KEY"),
            "longest": _skewed("KEY", hand_out="longest_chain"),
            "QID": _skewed("QID"),
            "unordered": _skewed(None),
        },
        columns=(
            Column("rate", "messages/s"),
            Column("head", "head %", digits=1),
            *(
                Column(f"{part}_{name}_ms", f"{part} {title} ms", digits=1)
                for part in ("rest", "head")
                for name, title in (("p50", "p50"), ("p99", "p99"), ("p999", "p99.9"))
            ),
            Column("behind_s", "behind s", digits=2),
            Column("faults", "faults"),
            Column("lapses", "locks that lapsed"),
        ),
        short=Shape(rounds=3, sizes={"seconds": 3}, points=(1.0,)),
        full=Shape(rounds=5, sizes={"seconds": 20}),
        plots=(Plot(Column("rest_p99_ms", "rest p99 ms"), log_y=True),),
    ),
)
