"""Cases with handlers that take their time: ``keyed``, ``sweep`` (B2) and ``gps`` (B3)."""

from __future__ import annotations

from functools import partial

from bench.cases.consuming import consume, plain
from bench.frame.case import Case, Column, NotHere, Plot, Point, Shape
from bench.frame.context import RunContext
from bench.frame.peer import Figures, Work
from bench.ideal import ideal

_HANDLERS, _KEYS, _QUEUES = 64, 1_000, 8
#: The published scenario: one consumer thread for each of ten partitions, 50 ms a message.
_GPS_QUEUES, _GPS_MS, _GPS_KEYS = 10, 50.0, 100_000
_VANILLA_PER_S = _GPS_QUEUES * 1000 / _GPS_MS


def _work(context: RunContext, work_ms: Point) -> Work:
    return Work(
        messages=context.size("messages"),
        keys=_KEYS,
        queues=_QUEUES,
        work_ms=float(work_ms),
        concurrency=_HANDLERS,
        batch=2 * _HANDLERS,
        seed=context.seed,
    )


def _gps_work(context: RunContext, workers: Point) -> Work:
    messages = int(int(workers) * 1000 / _GPS_MS * context.size("seconds"))
    return Work(
        messages=messages,
        keys=min(_GPS_KEYS, messages // 4),
        queues=_GPS_QUEUES,
        work_ms=_GPS_MS,
        concurrency=int(workers),
        batch=2 * int(workers),
        seed=context.seed,
    )


def _python(context: RunContext, point: Point, *, gps: bool = False) -> Figures:
    work = (_gps_work if gps else _work)(context, point)
    return consume(context, work, plain(work))


def _ideal(context: RunContext, point: Point, *, gps: bool = False) -> Figures:
    work = (_gps_work if gps else _work)(context, point)
    if not work.work_ms:
        raise NotHere
    return ideal(work)


def _of_ceiling(
    context: RunContext, point: Point, figures: Figures, *, gps: bool = False
) -> Figures:
    """Beside what the handlers could do if no message ever waited for anything."""
    work = (_gps_work if gps else _work)(context, point)
    per_s = float(figures["per_s"])
    found = {**figures, "of_vanilla": per_s / _VANILLA_PER_S} if gps else dict(figures)
    if not work.work_ms:
        return found
    ceiling = min(work.concurrency, work.keys) * 1000 / work.work_ms
    steady = {"steady_of_ceiling": float(figures["steady_per_s"]) / ceiling}
    return {**found, "of_ceiling": per_s / ceiling, **steady}


_COLUMNS = (
    Column("per_s", "messages/s"),
    Column("of_ceiling", "of ceiling", 3),
    Column("steady_of_ceiling", "of ceiling, steady", 3),
)
_PEERS = tuple(
    Column("per_s", f"of {name}", 2, to=name) for name in ("rocketmq-orderly", "parallel-consumer")
)
_COST = (Column("proxy_us", "proxy CPU µs"), Column("client_us", "client CPU µs"))
_ABOUT = (
    f"{_KEYS:,} keys in {_QUEUES} queues, {_HANDLERS} handlers that sleep so long a message."
    " *Ceiling*: min(handlers, keys) / work. Messages a second are from the first handler to the"
    " last one's end, *steady* those between 20 and 90 % of the messages: near the end there are"
    " fewer keys left than handlers. *ideal*: the same messages in virtual time, where only work"
    " takes time, handed out by one who knows all and prefers the key that has most left."
)

CASES = (
    Case(
        name="keyed",
        title="Slow handlers",
        question="What does order by key bring, beside order by queue?",
        about=_ABOUT,
        point="work ms",
        points=(10, 20, 50),
        arms={"ideal": _ideal, "python": _python},
        columns=(*_COLUMNS, *_PEERS, *_COST),
        short=Shape(
            rounds=3,
            sizes={"messages": 4_000},
            points=(20,),
            peers=("rocketmq-orderly", "orderlane-java"),
        ),
        full=Shape(
            rounds=5,
            sizes={"messages": 4_000},
            peers=("rocketmq-orderly", "parallel-consumer", "orderlane-java"),
        ),
        work=_work,
        derived=_of_ceiling,
    ),
    Case(
        name="sweep",
        title="Work a message",
        question="How much of what handlers can do is left, from no work to 100 ms?",
        about=_ABOUT,
        point="work ms",
        points=(0, 0.1, 1, 10, 35, 50, 100),
        arms={"ideal": _ideal, "python": _python},
        columns=(*_COLUMNS, *_PEERS, *_COST),
        short=Shape(rounds=3, sizes={"messages": 4_000}, points=(0, 1, 10)),
        full=Shape(
            rounds=5,
            sizes={"messages": 25_000},
            peers=("parallel-consumer", "orderlane-java"),
            limit_s=400,
        ),
        work=_work,
        derived=_of_ceiling,
        plots=(
            Plot(Column("per_s", "messages/s"), log_y=True, bars=True),
            Plot(Column("of_ceiling", "of ceiling"), bars=True),
        ),
    ),
    Case(
        name="gps",
        title="Many handlers",
        question="Ten queues and 50 ms a message: how far do more handlers go?",
        about=f"Vanilla consumers, one thread a queue, do {_VANILLA_PER_S:.0f} a second. Keys: a"
        " quarter of the messages, 100,000 at most. *Ceiling* and *ideal* as above.",
        point="handlers",
        points=(10, 100, 1_000),
        arms={"ideal": partial(_ideal, gps=True), "python": partial(_python, gps=True)},
        columns=(*_COLUMNS, Column("of_vanilla", "x vanilla", 1), *_PEERS, *_COST),
        short=Shape(rounds=3, sizes={"seconds": 4}, points=(100, 1_000)),
        full=Shape(rounds=5, sizes={"seconds": 20}, peers=("parallel-consumer", "orderlane-java")),
        work=_gps_work,
        derived=partial(_of_ceiling, gps=True),
        plots=(Plot(Column("per_s", "messages/s"), log_x=True, log_y=True),),
    ),
)
