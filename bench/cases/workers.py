"""Case ``workers``: a backlog at a proxy of one process and of several."""

from __future__ import annotations

from bench.frame.case import Arm, Case, Column, Plot, Point, Shape
from bench.frame.context import RunContext
from bench.frame.figures import Figures
from bench.frame.progress import stretch
from bench.load.stage import check_order, lapses, stage

_KEYS, _CONNECTIONS, _CLIENTS = 10_000, 16, 2


def _arm(batch: int) -> Arm:
    def run(context: RunContext, point: Point) -> Figures:
        messages = context.size("messages") // (4 if batch == 1 else 1)
        with context.brokers() as brokers, context.site(brokers) as site:
            place = stage(site)
            place.preload(messages, keys=_KEYS)
            proxy = place.proxy({"groups": [place.group()]}, workers=int(point))
            # A single puller process would limit two workers.
            pullers = [
                place.puller(proxy, connections=_CONNECTIONS, batch=batch) for _ in range(_CLIENTS)
            ]
            processes = {
                "proxy": proxy.child.process.pid,
                "broker": brokers.broker_pid,
                **{f"client{number}": each.pid for number, each in enumerate(pullers)},
            }
            found = stretch(
                lambda: sum(each.count for each in pullers),
                processes,
                messages,
                first=0.3,
                alive=lambda: all(each.alive() for each in pullers),
            )
            said = [each.end() for each in pullers]
            proxy.child.terminate(within_s=60)
            for each in said:
                check_order(each, shared=True, lapsed=lapses(proxy))
            context.judge(site)
            figures = found.figures()
            clients = sum(figures.pop(f"client{number}_us") for number in range(_CLIENTS))
            return {**figures, "client_us": clients}

    return run


CASES = (
    Case(
        name="workers",
        title="Workers",
        question="What does a second worker bring?",
        about="A backlog in 8 queues, 10,000 keys, at `orderlane proxy --workers N`; two lean"
        f" consumers with {_CONNECTIONS} connections each, which pull 256 messages or one at"
        " a time. Broker, workers and consumers share the machine's processors: with two"
        " processors, a second worker only gets the rest.",
        point="workers",
        points=(1, 2),
        arms={"batch 256": _arm(256), "batch 1": _arm(1)},
        columns=(
            Column("per_s", "messages/s"),
            Column("per_s", "of one worker", digits=2, at=1),
            Column("proxy_us", "proxy CPU µs each", digits=1),
            Column("broker_us", "broker CPU µs each", digits=1),
            Column("client_us", "consumers' CPU µs each", digits=1),
        ),
        short=Shape(rounds=3, sizes={"messages": 24_000}, judged={"messages": 4_000}),
        full=Shape(rounds=5, sizes={"messages": 1_000_000}, judged={"messages": 20_000}),
        histories="apart",
        plots=(Plot(Column("per_s", "messages/s"), bars=True),),
    ),
)
