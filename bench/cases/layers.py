"""Case ``layers``: the layers of a pull, from the ordering core to the socket."""

from __future__ import annotations

import asyncio
import gc
from collections.abc import Sequence

from bench.frame.case import Case, Column, Point, Shape
from bench.frame.context import RunContext
from bench.frame.figures import Figures
from bench.frame.pace import codec_us
from bench.layers import costs
from bench.layers.costs import CONNECTIONS, CallCount, Meter
from bench.layers.stage import Stage, backlog
from bench.load.links import Links
from bench.load.proxy_pulls import Pace, ProxyPuller
from proxy.cli.garbage import look_at_young_objects_only
from proxy.history.record import NullHistory
from testkit.lanes import GROUP
from testkit.processes import Children
from thrift_idl import consumer

_COUNTED_ROUNDS = 4
#: Layers in the order of a request, from the outside.
LAYERS = ("system", "loop", "thrift", "service", "lane", "core", "reading")
_LAYERS_IN_WORDS = {
    "system": "system calls",
    "loop": "port, event loop",
    "thrift": "Thrift",
    "service": "service",
    "lane": "lane",
    "core": "core",
    "reading": "reading",
}


def _proxy(context: RunContext, point: Point) -> Figures:
    batch, messages = int(point), context.size("messages")
    each, calls = asyncio.run(_in_memory(messages, batch)), asyncio.run(_calls(batch))
    served = _served(context, batch)
    own = {
        "reading": each["reading"],
        "core": each["core"],
        "lane": each["lane"] - each["core"],
        "service": each["service"] - each["lane"],
        "thrift": each["thrift"],
        "loop": served["user"] - each["thrift"] - each["service"],
        "system": served["system"],
    }
    return {**own, "sum": sum(own.values()), "calls": calls}


async def _in_memory(messages: int, batch: int) -> dict[str, float]:
    """Return the steps a message of each layer, with those below it."""
    records = backlog(messages)
    rounds = messages // (batch * CONNECTIONS)
    thresholds = gc.get_threshold()
    look_at_young_objects_only()  # as a proxy does
    try:
        stage, meter, pace = Stage(), Meter(), _Pace()
        per_part = costs.reading(stage, records, meter)
        stage.close()
        found = {"reading": pace.steps(meter.median / per_part / 1e3)}
        for layer in (costs.core, costs.lane, costs.service, costs.thrift):
            stage, meter, pace = Stage(turns=False), Meter(), _Pace()
            stage.read(records)
            layer(stage, batch, rounds, meter)
            stage.close()
            found[layer.__name__] = pace.steps(meter.median / (batch * CONNECTIONS) / 1e3)
    finally:
        gc.set_threshold(*thresholds)
        gc.unfreeze()
    return found


async def _calls(batch: int) -> float:
    """Return the calls of Python functions a message, from the port on."""
    stage = Stage(turns=False)
    stage.read(backlog(batch * CONNECTIONS * _COUNTED_ROUNDS))
    with CallCount() as calls:
        meter = Meter(calls)
        costs.port(stage, batch, _COUNTED_ROUNDS, meter)
    stage.close()
    return meter.median / (batch * CONNECTIONS)


def _served(context: RunContext, batch: int) -> dict[str, float]:
    """Return user and system time a message, in steps, of a process that serves clients over
    sockets.
    """
    messages = context.size("messages")
    with Children(context.folder / "served", context.starter) as children:
        child = children.start_module("bench.layers.served", "--messages", messages)
        address = child.ready()["address"]
        pace = _Pace()
        puller = ProxyPuller(Links(), _Counted(messages), Pace(batch=batch), NullHistory())
        puller.run(address, [GROUP], connections=CONNECTIONS)
        child.terminate()
        used = child.ended_with
    return {name: pace.steps(used[f"{name}_s"] / messages * 1e6) for name in ("user", "system")}


class _Pace:
    """The reference step before and after a measurement: the machine's speed changes within a
    run.
    """

    def __init__(self) -> None:
        self._before_us = codec_us()

    def steps(self, us: float) -> float:
        """Return *us* in steps."""
        return us * 2 / (self._before_us + codec_us())


class _Counted:
    """Counts messages, and stops at *most*."""

    def __init__(self, most: int) -> None:
        self._left = most

    @property
    def stopped(self) -> bool:
        return self._left <= 0

    def take_all(self, messages: Sequence[consumer.Message], _now_ns: int) -> None:
        self._left -= len(messages)

    def publish(self) -> None:
        pass


CASES = (
    Case(
        name="layers",
        title="Layers",
        question="Where does the time of a message go between the socket and the ordering core?",
        about="Processor time of each layer, in steps of the codec. The same backlog is drained in"
        " one process through more and more of the path: *core*: settle and lease; *lane*: demand,"
        " counters, timers; *service*: the request is interpreted, its verdicts applied, the answer"
        " composed; *Thrift*: decoding and encoding. *system calls*: of a process with uvloop and"
        " the same port, which 16 connections pull from; *port, event loop*: the rest of its time:"
        " frames, limits, replies. *reading*: decoding of the broker's answer, order key, chain."
        " *calls*: of Python functions, from the port on, the same on every machine. All queues"
        " are owned, all messages in memory, and no pull waits. Records, commits and locks are not"
        " part of it.",
        point="batch",
        points=(1, 32, 256),
        arms={"proxy": _proxy},
        columns=(
            *(Column(name, _LAYERS_IN_WORDS[name], 1) for name in LAYERS),
            Column("sum", "sum", 1),
            Column("calls", "calls", 1),
        ),
        short=Shape(rounds=3, sizes={"messages": 32_000}, points=(1, 256)),
        full=Shape(rounds=5, sizes={"messages": 256_000}),
        histories="none",
    ),
)
