"""Case ``starts``: time from a proxy's start until all its groups receive their messages."""

from __future__ import annotations

import time
from collections.abc import Sequence
from contextlib import closing
from functools import partial
from typing import Any

from bench.cpu import cpu_s
from bench.frame.case import Case, Column, Point, Shape
from bench.frame.context import RunContext
from bench.frame.figures import Figures
from bench.load.idle import allow_descriptors
from bench.load.links import Links
from bench.load.proxy_pulls import Pace, ProxyPuller
from bench.load.stage import Stage, lapses, stage
from bench.site import ProxyProcess
from proxy.errors import OrderlaneError
from proxy.history.record import NullHistory
from thrift_idl import consumer

_QUEUES = 4
#: Enough for each queue to have some.
_MESSAGES = 32
#: A start that takes longer counts as failed.
_LIMIT_S = 280.0
_ENDS = ("SIGTERM", "SIGKILL")


class _Arrivals:
    """First messages per group and queue, with their times.

    Groups are identified by connection, since they read the same messages.
    """

    def __init__(self, groups: int, *, began_s: float) -> None:
        self.first_s = self.last_s = 0.0
        self.messages = 0
        self._began_s = began_s
        self._missing = groups * _QUEUES
        self._expected = groups * _MESSAGES
        self._had: set[tuple[str, str]] = set()

    @property
    def stopped(self) -> bool:
        """Return whether every group received messages of all queues; leased messages would delay
        the end.
        """
        done = self._missing == 0 and self.messages >= self._expected
        return done or time.monotonic() > self._began_s + _LIMIT_S

    def had(self, group: str, queue: str, messages: int) -> None:
        """Note that *group* received messages of *queue*."""
        self.messages += messages
        if (group, queue) not in self._had:
            self._had.add((group, queue))
            self._missing -= 1
            self.last_s = time.monotonic() - self._began_s
            self.first_s = self.first_s or self.last_s

    def complete(self) -> None:
        """Raise OrderlaneError unless every group received messages of all queues."""
        if self._missing:
            raise OrderlaneError(
                f"{self._missing} queues of groups delivered no message within {_LIMIT_S:g} s"
            )

    def take_all(self, messages: Sequence[consumer.Message], now_ns: int) -> None:
        """Do nothing: ``had`` counts."""

    def publish(self) -> None:
        """Do nothing: no process watches the count."""


class _Puller(ProxyPuller):
    """A puller that reports which group's messages arrived."""

    def __init__(self, links: Links, arrivals: _Arrivals) -> None:
        super().__init__(links, arrivals, Pace(batch=32), NullHistory())
        self._arrivals = arrivals

    def _take(self, loop: Any, batch: Any) -> None:
        super()._take(loop, batch)
        queue = batch.context.qid.partition("#")[0]
        self._arrivals.had(loop.group, queue, len(batch.messages))


def _first(context: RunContext, point: Point) -> Figures:
    """Start a proxy on a topic that was never read."""
    names = _names(point)
    with context.brokers() as brokers, context.site(brokers, queues=_QUEUES) as site:
        place = stage(site)
        _store(place)
        figures, _ = _started(place, names)
        return figures


def _again(context: RunContext, point: Point, *, end: str) -> Figures:
    """Start a proxy after another one that read all messages and ended in the given way."""
    names = _names(point)
    with context.brokers() as brokers, context.site(brokers, queues=_QUEUES) as site:
        place = stage(site)
        _store(place)
        _, former = _started(place, names, cold=False)
        # Wait until the first proxy's work is recorded and committed; the next one would otherwise
        # repeat it.
        time.sleep(context.sizes["settle_s"])
        if end == "SIGKILL":
            former.child.kill()
        else:
            former.child.terminate(within_s=120)
        _store(place)
        figures, _ = _started(place, names)
        return figures


def _store(place: Stage) -> None:
    """Store the same number of messages in each queue."""
    batch = _MESSAGES // _QUEUES
    place.preload(_MESSAGES, keys=_MESSAGES, connections=_QUEUES, batch=batch)


def _started(
    place: Stage, names: Sequence[str], *, cold: bool = True
) -> tuple[dict[str, float], ProxyProcess]:
    """Start a proxy and pull for all groups as soon as it listens, until all received messages of
    all queues.
    """
    groups = [place.group(name) for name in names]
    began_s = time.monotonic()
    proxy = place.proxy({"groups": groups}, cold=cold)
    ready_s = time.monotonic() - began_s
    arrivals = _Arrivals(len(names), began_s=began_s)
    with closing(Links()) as links:
        _Puller(links, arrivals).run(proxy.thrift, names, connections=len(names))
    arrivals.complete()
    found = {
        "ready_s": ready_s,
        "first_s": arrivals.first_s,
        "all_s": arrivals.last_s,
        "proxy_cpu_s": cpu_s(proxy.child.process.pid),
        "messages": arrivals.messages,
        **lapses(proxy),
    }
    return found, proxy


def _names(point: Point) -> list[str]:
    allow_descriptors(2 * int(point))
    return [f"bench-{number}" for number in range(int(point))]


CASES = (
    Case(
        name="start",
        title="Start of a proxy",
        question="How long does a proxy take from its start until all its groups have messages?",
        about=f"The given number of groups on the same {_QUEUES} queues, with {_MESSAGES} messages"
        " waiting for each; a lean consumer connects for every group as soon as the proxy"
        " listens. *first start*: the topic has not been read before; *after SIGTERM*,"
        " *after SIGKILL*: another proxy with the same groups had all queues and ended that"
        " way, right before the start. After a kill its locks hold for 10 s. Measured from"
        " the start of the process, including Python's imports: *ready* until it listens,"
        " *first* until the first group has a message, *all* until each group has had"
        " messages of each queue, and so owns them all.",
        point="groups",
        points=(1, 20, 100, 1_000),
        arms={
            "first start": _first,
            **{f"after {end}": partial(_again, end=end) for end in _ENDS},
        },
        columns=(
            Column("ready_s", "ready s", digits=2),
            Column("first_s", "first s", digits=2),
            Column("all_s", "all s", digits=2),
            Column("proxy_cpu_s", "proxy CPU s", digits=1),
            Column("lapses", "locks that lapsed"),
        ),
        short=Shape(rounds=3, sizes={"settle_s": 2}, points=(20,)),
        full=Shape(rounds=5, sizes={"settle_s": 10}, limit_s=600),
        histories="none",
    ),
)
