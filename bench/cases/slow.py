"""Cases with slow handlers: ``keyed``, ``sweep`` (B2) and ``gps`` (B3)."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import partial

from bench.cases.consuming import consume, plain
from bench.frame.case import Arm, Case, Column, NotHere, Plot, Point, Shape
from bench.frame.context import RunContext
from bench.frame.figures import Figures
from bench.frame.peer import Work
from bench.ideal import ideal

_HANDLERS, _KEYS, _QUEUES = 64, 1_000, 8
_QUICK_MS = 5.0
#: Prefetched messages of a client: what its handlers do in this time, up to a limit.
_AHEAD_MS, _AHEAD = 10.0, 448
#: The published scenario: one consumer thread for each of ten partitions, 50 ms per message.
_GPS_QUEUES, _GPS_MS, _GPS_KEYS = 10, 50.0, 100_000
_VANILLA_PER_S = _GPS_QUEUES * 1000 / _GPS_MS

WorkOf = Callable[[RunContext, Point], Work]


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


def _sweep_work(context: RunContext, work_ms: Point) -> Work:
    """Return the work of a point.

    Short work needs more messages for a stable rate, and more prefetch, so that a client does not
    ask for few messages at a time.
    """
    quick = float(work_ms) <= _QUICK_MS
    work = _work(context, work_ms)
    ahead = min(_AHEAD, int(_HANDLERS * _AHEAD_MS / float(work_ms))) if float(work_ms) else _AHEAD
    return replace(
        work,
        messages=context.size("quick_messages" if quick else "messages"),
        batch=_HANDLERS + max(_HANDLERS, ahead),
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


def _python(
    context: RunContext, point: Point, *, work_of: WorkOf = _work, hand_out: str = "oldest"
) -> Figures:
    work = work_of(context, point)
    return consume(context, work, plain(work), hand_out=hand_out)


def _longest(*, work_of: WorkOf = _work) -> Arm:
    return partial(_python, work_of=work_of, hand_out="longest_chain")


def _ideal(context: RunContext, point: Point, *, work_of: WorkOf = _work) -> Figures:
    work = work_of(context, point)
    if not work.work_ms:
        raise NotHere
    return ideal(work)


def _of_ceiling(
    context: RunContext, point: Point, figures: Figures, *, work_of: WorkOf = _work
) -> Figures:
    """Return the ratio to handlers that never wait."""
    work = work_of(context, point)
    if not work.work_ms:
        return figures
    ceiling = min(work.concurrency, work.keys) * 1000 / work.work_ms
    return {
        **figures,
        "of_ceiling": float(figures["per_s"]) / ceiling,
        "steady_of_ceiling": float(figures["steady_per_s"]) / ceiling,
    }


def _of_vanilla(context: RunContext, point: Point, figures: Figures) -> Figures:
    """Return the ratio to consumers with one thread per queue, too."""
    found = _of_ceiling(context, point, figures, work_of=_gps_work)
    return {**found, "of_vanilla": float(figures["per_s"]) / _VANILLA_PER_S}


_COLUMNS = (
    Column("per_s", "messages/s"),
    Column("of_ceiling", "of ceiling", 3),
    Column("steady_of_ceiling", "of ceiling, steady", 3),
)
_PEERS = tuple(
    Column("per_s", f"of {name}", 2, to=name)
    for name in ("rocketmq-orderly", "parallel-consumer", "rocketmq-proxy", "pulsar-key-shared")
)
_COST = (Column("proxy_us", "proxy CPU µs"), Column("client_us", "client CPU µs"))
_ABOUT = (
    f"{_KEYS:,} keys in {_QUEUES} queues, {_HANDLERS} handlers that sleep for the given time per"
    " message. *Ceiling*: min(handlers, keys) / work. Messages a second are measured from the start"
    " of the first handler to the end of the last, *steady* between 20 and 90 % of the messages,"
    " because near the end fewer keys are left than handlers. *ideal*: the same messages in virtual"
    " time, where only work takes time, delivered by a scheduler that knows all messages and"
    " prefers the key with most left. *longest-chain*: *python* in a group with `hand_out:"
    " longest_chain`."
)

CASES = (
    Case(
        name="keyed",
        title="Slow handlers",
        question="What does order by key bring, compared with order by queue?",
        about=_ABOUT,
        point="work ms",
        points=(10, 20, 50),
        arms={"ideal": _ideal, "python": _python, "longest-chain": _longest()},
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
            peers=(
                *("rocketmq-orderly", "rocketmq-proxy", "pulsar-key-shared"),
                *("parallel-consumer", "orderlane-java"),
            ),
        ),
        work=_work,
        derived=_of_ceiling,
    ),
    Case(
        name="sweep",
        title="Work a message",
        question="How close to the ceiling of its handlers does it get, from no work to 100 ms?",
        about=_ABOUT,
        point="work ms",
        points=(0, 0.1, 1, 2, 5, 10, 35, 50, 100),
        arms={
            "ideal": partial(_ideal, work_of=_sweep_work),
            "python": partial(_python, work_of=_sweep_work),
            "longest-chain": _longest(work_of=_sweep_work),
        },
        columns=(*_COLUMNS, *_PEERS, *_COST),
        short=Shape(
            rounds=3,
            sizes={"messages": 4_000, "quick_messages": 20_000},
            points=(0, 1, 10),
            judged={"messages": 1_000, "quick_messages": 1_000},
        ),
        full=Shape(
            rounds=5,
            sizes={"messages": 25_000, "quick_messages": 100_000},
            judged={"messages": 4_000, "quick_messages": 4_000},
            peers=("rocketmq-proxy", "pulsar-key-shared", "parallel-consumer", "orderlane-java"),
            limit_s=400,
        ),
        work=_sweep_work,
        derived=partial(_of_ceiling, work_of=_sweep_work),
        histories="apart",
        plots=(
            Plot(Column("per_s", "messages/s"), log_y=True, bars=True),
            Plot(Column("of_ceiling", "of ceiling"), bars=True),
        ),
    ),
    Case(
        name="gps",
        title="Many handlers",
        question="Ten queues and 50 ms a message: how much do more handlers bring?",
        about=f"Vanilla consumers, with one thread per queue, handle {_VANILLA_PER_S:.0f} a"
        " second. Keys: a quarter of the messages, at most 100,000. *Ceiling* and *ideal* as"
        " above.",
        point="handlers",
        points=(10, 100, 1_000),
        arms={
            "ideal": partial(_ideal, work_of=_gps_work),
            "python": partial(_python, work_of=_gps_work),
        },
        columns=(*_COLUMNS, Column("of_vanilla", "x vanilla", 1), *_PEERS, *_COST),
        short=Shape(rounds=3, sizes={"seconds": 3}, points=(100,)),
        full=Shape(rounds=5, sizes={"seconds": 20}, peers=("parallel-consumer", "orderlane-java")),
        work=_gps_work,
        derived=_of_vanilla,
        plots=(Plot(Column("per_s", "messages/s"), log_x=True, log_y=True),),
    ),
)
