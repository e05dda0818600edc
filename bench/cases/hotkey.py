"""Case ``hotkey``: all messages have one key, or one of ten."""

from __future__ import annotations

from functools import partial

from bench.cases.consuming import consume, lean, plain
from bench.frame.case import Case, Column, Plot, Point, Shape
from bench.frame.context import RunContext
from bench.frame.figures import Figures
from bench.frame.peer import Work

_RUN, _BATCH = 256, 256


def _work(context: RunContext, keys: Point, *, runs: bool = True) -> Work:
    """Return the work; without runs each message costs a round trip, so fewer messages suffice."""
    share = 1 if runs else 10 if keys == 1 else 4
    return Work(
        messages=context.size("messages") // share,
        keys=int(keys),
        batch=_BATCH,
        seed=context.seed,
    )


def _python(context: RunContext, keys: Point, *, runs: bool) -> Figures:
    work = _work(context, keys, runs=runs)
    client = plain(work, max_run=_RUN if runs else 1, prefetch=_RUN)
    return consume(context, work, client)


def _lean(context: RunContext, keys: Point, *, runs: bool) -> Figures:
    work = _work(context, keys, runs=runs)
    return consume(context, work, lean(batch=_BATCH, max_run=_RUN if runs else 1))


CASES = (
    Case(
        name="hotkey",
        title="Hot keys",
        question="What do ordered runs bring if few keys have all messages?",
        about="Handlers do nothing. *alone*: one message of a key at a time, so each is a round"
        f" trip; *runs*: up to {_RUN} of a key at a time (`max_run`), handled one after the"
        " other. *python* is the Python client, *lean* a client that only pulls and acks.",
        point="keys",
        points=(1, 10),
        arms={
            "python-alone": partial(_python, runs=False),
            "python-runs": partial(_python, runs=True),
            "lean-alone": partial(_lean, runs=False),
            "lean-runs": partial(_lean, runs=True),
        },
        columns=(
            Column("steady_per_s", "messages/s"),
            Column("steady_per_s", "of python-alone", 1, to="python-alone"),
            Column("steady_per_s", "of rocketmq-orderly", 2, to="rocketmq-orderly"),
            Column("proxy_us", "proxy CPU µs", 1),
            Column("client_us", "client CPU µs", 1),
        ),
        short=Shape(rounds=3, sizes={"messages": 20_000}, judged={"messages": 2_000}, points=(1,)),
        full=Shape(
            rounds=5,
            sizes={"messages": 200_000},
            judged={"messages": 20_000},
            peers=("rocketmq-orderly", "parallel-consumer"),
        ),
        work=_work,
        histories="apart",
        plots=(Plot(Column("steady_per_s", "messages/s"), log_y=True, bars=True),),
    ),
)
