"""Requests between proxies and brokers: delays, timeouts, busy and stopped brokers."""

from __future__ import annotations

import random
from collections import Counter, defaultdict
from collections.abc import Callable
from typing import Any, Protocol

from bench.simulation.events import MS, Events, Resume, Wait

#: No answer: the broker is stopped, too slow, or unreachable.
NO_ANSWER = object()


class Peer(Protocol):
    """A client of brokers. While *cut_off* no data arrive at either end."""

    cut_off: bool


class Server:
    """The processor of one broker: one request after the other."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.up = True
        #: Requests by kind and second.
        self.asked: defaultdict[str, Counter[int]] = defaultdict(Counter)
        self._busy_until_ns = 0

    def stop(self) -> None:
        """Stop answering."""
        self.up = False

    def start(self) -> None:
        """Answer again."""
        self.up = True

    def count(self, kind: str, now_ns: int, times: int = 1) -> None:
        """Count requests of that kind."""
        self.asked[kind][now_ns // 1_000_000_000] += times

    def busy(self, cost_ns: int, now_ns: int) -> int:
        """Occupy the processor; return the time until it is done."""
        self._busy_until_ns = max(self._busy_until_ns, now_ns) + cost_ns
        return self._busy_until_ns - now_ns


class Network:
    """A network with delays of a minimum and a random part, sometimes a long one."""

    def __init__(self, events: Events, chance: random.Random) -> None:
        self._events = events
        self._chance = chance

    def delay_ns(self) -> int:
        """Return the delay in one direction."""
        chance = self._chance.random()
        if chance < 0.001:
            return int((20 + 80_000 * chance) * MS)
        return int((0.1 + 0.3 * chance) * MS)

    def ask(
        self,
        who: Peer,
        server: Server,
        kind: str,
        *,
        cost_ns: int,
        timeout_ns: int,
        do: Callable[[], tuple[Any, int]],
        times: int = 1,
    ) -> Wait:
        """Wait for the answer to a request, or NO_ANSWER.

        The broker calls *do*, which returns the answer and the disk time; *times*: the number of
        requests that it represents.
        """
        return lambda resume: self._send(who, server, kind, cost_ns, timeout_ns, do, times, resume)

    def _send(
        self,
        who: Peer,
        server: Server,
        kind: str,
        cost_ns: int,
        timeout_ns: int,
        do: Callable[[], tuple[Any, int]],
        times: int,
        resume: Resume,
    ) -> None:
        events = self._events
        deadline_ns = events.now_ns + timeout_ns

        def arrive() -> None:
            if not server.up:
                events.after(self.delay_ns(), resume, NO_ANSWER)
                return
            server.count(kind, events.now_ns, times)
            events.after(server.busy(cost_ns * times, events.now_ns), work)

        def work() -> None:
            if not server.up:
                events.after(self.delay_ns(), resume, NO_ANSWER)
                return
            answer, kept_ns = do()
            arrives_ns = events.now_ns + kept_ns + self.delay_ns()
            if who.cut_off or arrives_ns > deadline_ns:
                events.after(max(0, deadline_ns - events.now_ns), resume, NO_ANSWER)
            else:
                events.after(arrives_ns - events.now_ns, resume, answer)

        if who.cut_off:
            events.after(timeout_ns, resume, NO_ANSWER)
        else:
            events.after(self.delay_ns(), arrive)
