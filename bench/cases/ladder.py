"""Case ``ladder`` (B1): the number of keys, from a single key to one key per message."""

from __future__ import annotations

from bench.cases.consuming import consume, plain
from bench.frame.case import Case, Column, NotHere, Plot, Point, Shape
from bench.frame.context import OrderViolated, RunContext
from bench.frame.figures import Figures
from bench.frame.peer import Work
from bench.ideal import ideal
from testkit.processes import Children

_QID, _UNORDERED = "QID", "unordered"
_WORKERS, _MOST_MS, _LIMIT_S = 16, 5.0, 200.0


def _work(context: RunContext, point: Point) -> Work:
    """Return the work; order by queue, or no order, always has the largest number of keys."""
    keys = point if isinstance(point, int) else 10_000
    return Work(
        messages=context.size("messages"),
        keys=keys,
        queues=1,
        work_ms=_MOST_MS,
        least_work_ms=0.0,
        concurrency=_WORKERS,
        batch=2 * _WORKERS,
        seed=context.seed,
    )


def _peer_work(context: RunContext, point: Point) -> Work:
    if not isinstance(point, int):
        raise NotHere  # a peer has one order, given by its name
    return _work(context, point)


def _order_key(point: Point) -> str | None:
    return {_QID: "QID", _UNORDERED: None}.get(str(point), "KEY")


def _socket(context: RunContext, point: Point) -> Figures:
    work = _work(context, point)
    return consume(context, work, plain(work), order_key=_order_key(point))


def _core(context: RunContext, point: Point) -> Figures:
    work, order_key = _work(context, point), _order_key(point)
    options = {
        "messages": work.messages,
        "keys": work.keys,
        "work-ms": work.work_ms,
        "least-work-ms": work.least_work_ms,
        "workers": work.concurrency,
        "seed": work.seed,
        "counter": "count",
        **({} if order_key is None else {"order-key": order_key}),
    }
    words = [word for name, value in options.items() for word in (f"--{name}", value)]
    with Children(context.folder, context.starter) as children:
        child = children.start_module("bench.in_process", *words)
        code = child.wait(within_s=_LIMIT_S)
        assert code == 0, f"the core ended with {code}: {child.err[-1000:]}"
        said: Figures = child.ended_with
    if said["faults"] and order_key is not None:
        raise OrderViolated(f"{said['faults']} messages were early or repeated")
    return said


def _ideal(context: RunContext, point: Point) -> Figures:
    return ideal(_work(context, point), order_key=_order_key(point))


def _times_ideal(context: RunContext, point: Point, figures: Figures) -> Figures:
    """Return the run time as a multiple of the ideal: the work alone on the usable workers."""
    workers = 1 if point == _QID else min(_WORKERS, point if isinstance(point, int) else _WORKERS)
    ideal_s = context.size("messages") * _MOST_MS / 2 / 1000 / workers
    return {**figures, "ideal_s": ideal_s, "of_ideal": float(figures["seconds"]) / ideal_s}


_KEYS = (1, 2, 5, 10, 20, 50, 100, 1_000, 10_000)

CASES = (
    Case(
        name="ladder",
        title="Keys and workers",
        question="How close to the ideal do 16 workers come on 1 to 10,000 keys?",
        about="One queue; the work on a message is uniformly distributed from 0 to 5 ms and"
        " derived from its key and number, so that it is the same for all arms. *QID*:"
        " ordered by queue, one message after the other; *unordered*: in no order. *Ideal"
        " s*: messages x 2.5 ms / min(keys, workers); the arm *ideal* delivers the same"
        " messages in virtual time, where only work takes time, and prefers keys with most"
        " messages left; *core* is only the proxy's ordering code, with messages in memory"
        " and workers in one process; *socket* is a broker, a proxy and the Python client."
        " *Seconds* are from the start of the first handler to the end of the last.",
        point="keys",
        points=(*_KEYS, _QID, _UNORDERED),
        arms={"ideal": _ideal, "core": _core, "socket": _socket},
        columns=(
            Column("seconds", "seconds", 2),
            Column("ideal_s", "ideal s", 2),
            Column("of_ideal", "x ideal", 2),
            Column("seconds", "of parallel-consumer", 2, to="parallel-consumer"),
            Column("proxy_us", "proxy CPU µs", 0),
        ),
        short=Shape(rounds=3, sizes={"messages": 1_000}, points=(1, 20, 1_000)),
        full=Shape(rounds=5, sizes={"messages": 10_000}, peers=("parallel-consumer",)),
        work=_peer_work,
        derived=_times_ideal,
        plots=(Plot(Column("seconds", "seconds"), log_y=True, bars=True),),
    ),
)
