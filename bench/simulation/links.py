"""A proxy's connections to brokers: its requests and heartbeats."""

from __future__ import annotations

import random
from collections import defaultdict
from collections.abc import Callable, Collection
from functools import partial
from typing import Any

from bench.simulation.brokers import Broker
from bench.simulation.events import SECOND, Events, Process, Resume, Turns, Wait
from bench.simulation.judge import Judge
from bench.simulation.model import Model
from bench.simulation.network import NO_ANSWER, Network
from broker_core.names import QueueName

_REQUEST_NS = 3 * SECOND


class Surroundings:
    """Shared by all proxies. *route*: the nameserver's current answer."""

    def __init__(
        self, model: Model, events: Events, judge: Judge, brokers: dict[str, Broker]
    ) -> None:
        self.model, self.events, self.judge, self.brokers = model, events, judge, brokers
        self.chance = random.Random(model.seed)
        self.network = Network(events, random.Random(model.seed + 1))
        self.route: list[QueueName] = []

    def publish(self, route: list[QueueName]) -> None:
        """Set the nameserver's answer."""
        self.route = route


class Links:
    """The connections of one process. While *cut_off* no data reach it or leave it."""

    def __init__(self, name: str, around: Surroundings) -> None:
        self.name = name
        self.dead = self.cut_off = self.closing = False
        self.heard: set[str] = set()
        self.connected: set[str] = set()
        #: One per broker, as in the proxy: a renewal must not overtake an unlock.
        self.turns: defaultdict[str, Turns] = defaultdict(Turns)
        self._around = around
        self._events = around.events
        self._beats_woken = self._beating = False
        self._busy_until_ns = 0

    def kill(self) -> None:
        """Kill the process."""
        self.dead = True

    def close(self) -> None:
        """Drain the process."""
        self.closing = True

    def cut(self, *, off: bool) -> None:
        """Cut or restore its connections."""
        self.cut_off = off

    def beats(self) -> Process:
        """Send heartbeats while the process lives."""
        lock = self._around.model.lock
        heartbeat_ns = int(min(10.0, lock.broker_lock_expiry_s / 3) * SECOND)
        while not self.dead and not self.closing:
            yield self._events.sleep(heartbeat_ns)
            if not self.dead and not self.closing:
                yield from self.beat()

    def beat(self, *, unheard_only: bool = False) -> Process:
        """Send a heartbeat to all brokers, or only to those still without one."""
        yield self._events.all_of(
            self._beat_at(each)
            for each in self._around.brokers.values()
            if not (unheard_only and each.name in self.heard)
        )

    def _beat_at(self, broker: Broker) -> Process:
        answer = yield self.ask(
            broker,
            "heartbeat",
            partial(broker.heartbeat, self.name),
            cost_ns=self._around.model.costs.heartbeat_ns,
        )
        if answer is NO_ANSWER:
            self.heard.discard(broker.name)
        else:
            self.heard.add(broker.name)

    # ---- helpers --------------------------------------------------------------------------------

    def ask_locks(self, broker: Broker, queues: Collection[QueueName]) -> Wait:
        """Request locks, or renew them."""
        costs = self._around.model.costs
        return self.ask(
            broker,
            "lock",
            partial(broker.lock, self.name, list(queues)),
            cost_ns=costs.lock_ns + costs.locked_queue_ns * (len(queues) - 1),
            timeout_ns=int(self._around.model.lock.request_timeout_s * SECOND),
        )

    def ask(
        self,
        broker: Broker,
        kind: str,
        do: Callable[[], tuple[Any, int]],
        *,
        times: int = 1,
        cost_ns: int | None = None,
        timeout_ns: int = _REQUEST_NS,
    ) -> Wait:
        """Send a request; see ``Network.ask``."""
        ask = self._around.network.ask(
            self,
            broker.server,
            kind,
            cost_ns=self._around.model.costs.request_ns if cost_ns is None else cost_ns,
            timeout_ns=timeout_ns,
            do=do,
            times=times,
        )

        def begin(resume: Resume) -> None:
            ask(lambda answer: answered(resume, answer))

        def answered(resume: Resume, answer: Any) -> None:
            if answer is not NO_ANSWER and broker.name not in self.connected:
                self.connected.add(broker.name)
                self._connected_anew()
            resume(answer)

        return begin

    def _connected_anew(self) -> None:
        """Handle a new connection: its broker may have forgotten this member, so all get a
        heartbeat.
        """
        self.heard.clear()
        self._beats_woken = True
        if not self._beating:
            self._beating = True
            self._events.start(self._beat_again())

    def _beat_again(self) -> Process:
        """Repeat heartbeats after new connections, once for several."""
        while self._beats_woken and not (self.dead or self.closing):
            self._beats_woken = False
            yield from self.beat()
        self._beating = False

    def work(self, cost_ns: int) -> Wait:
        """Occupy the processor for this time."""
        now_ns = self._events.now_ns
        self._busy_until_ns = max(self._busy_until_ns, now_ns) + cost_ns
        return self._events.sleep(self._busy_until_ns - now_ns)
