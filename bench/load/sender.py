"""A lean sender as a separate process: ``python -m bench.load.sender``.

Without ``--rate`` each connection sends the next batch when the previous one is answered. With it
messages are due at random instants with that mean rate, independent of earlier answers, and are
sent one per request; bodies contain the due time. Messages of a key use one connection. Ends after
``--count`` messages, ``--seconds`` or SIGTERM, with one line of JSON.
"""

from __future__ import annotations

import os
import signal
from collections.abc import Callable
from contextlib import closing
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Any

import typer

from bench.frame.progress import Counter
from bench.load.delays import Delays
from bench.load.links import Link, Links
from bench.load.requests import BrokerSends, Keyed, ProxySends, Sends
from bench.load.shape import Arrivals, Batches, Shape, key_name
from broker_core.clock import now_ns
from proxy.cli.output import print_json
from proxy.cli.serving import open_history
from proxy.history.record import History

_LOOK_S = 0.2
_AT_ONCE = 64


@dataclass(slots=True)
class Sender:
    """Sends requests and receives their answers; the caller decides when."""

    topic: str
    sends: Sends
    links: Links
    history: History
    counter: Counter | None
    delays: Delays = field(default_factory=Delays)
    sent: int = 0
    answered: int = 0
    stopped: bool = False
    _prefix: str = field(default_factory=lambda: f"{os.getpid():08X}")
    _requests: int = 0
    #: By request number: its due time, number of messages, and events.
    _under_way: dict[int, tuple[int, int, list[dict[str, Any]]]] = field(default_factory=dict)

    def send(self, link: Link, queue: int, messages: list[Keyed], due_ns: int) -> None:
        """Send one request."""
        numbers = range(self.sent, self.sent + len(messages))
        ids = [f"{self._prefix}{number:024X}" for number in numbers]
        about: list[dict[str, Any]] = []
        if self.history.enabled:
            about = [
                {"msg": each, "topic": self.topic, "key": key_name(key)}
                for each, (key, _) in zip(ids, messages, strict=True)
            ]
            self.history.write_many("send", about)
        self.sent += len(messages)
        self._requests += 1
        self._under_way[self._requests] = due_ns, len(messages), about
        self.links.send(link, self.sends.frame(self._requests, queue, messages, ids))

    def receive(self, wait_s: float) -> list[Link]:
        """Receive answers; return their connections."""
        found = []
        for link in self.links.wait(wait_s):
            for frame in link.frames():
                due_ns, count, about = self._under_way.pop(self.sends.check(frame))
                self.answered += count
                self.delays.add(due_ns, now_ns())
                if about:
                    self.history.write_many("send_ok", about)
                found.append(link)
        if found and self.counter is not None:
            self.counter.show(self.answered)
        return found

    def closed_loop(self, shape: Shape, connections: list[Link], batch: int, most: int) -> None:
        """Send in closed loops: each connection waits for its answers."""
        of_link = {
            link.number: Batches(shape, number=link.number, connections=len(connections))
            for link in connections
        }
        ready = [link for link in connections if of_link[link.number]]
        while ready or self.answered < self.sent:
            for link in ready:
                if self.stopped or self.sent >= most:
                    break
                due_ns = now_ns()
                queue, messages = of_link[link.number].next(min(batch, most - self.sent), due_ns)
                self.send(link, queue, messages, due_ns)
            ready = self.receive(_LOOK_S)

    def open_loop(self, shape: Shape, connections: list[Link], rate: float, most: int) -> None:
        """Send in an open loop, without waiting for answers."""
        arrivals = Arrivals(shape, rate=rate, began_ns=now_ns())
        bodies = Batches(shape, number=0, connections=1)
        due_ns, key = arrivals.next()
        while not self.stopped and self.sent < most:
            for _ in range(_AT_ONCE):
                if due_ns > now_ns() or self.sent >= most:
                    break
                link = connections[key % len(connections)]
                body = bodies.body(key, due_ns)
                self.send(link, key % shape.queues, [(key, body)], due_ns)
                due_ns, key = arrivals.next()
            self.receive(min(_LOOK_S, max(0.0, (due_ns - now_ns()) / 1e9)))
        while self.answered < self.sent:
            self.receive(_LOOK_S)


def main(
    address: Annotated[str, typer.Option(help="host:port of a broker or a proxy")],
    topic: Annotated[str, typer.Option()],
    queues: Annotated[int, typer.Option()] = 8,
    keys: Annotated[int, typer.Option()] = 1_000,
    exponent: Annotated[float, typer.Option()] = 0.0,
    body_bytes: Annotated[int, typer.Option()] = 256,
    connections: Annotated[int, typer.Option()] = 1,
    batch: Annotated[int, typer.Option()] = 1,
    rate: Annotated[float, typer.Option()] = 0.0,
    seconds: Annotated[float, typer.Option()] = 3_600.0,
    count: Annotated[int, typer.Option()] = 10**12,
    warm_s: Annotated[float, typer.Option()] = 0.0,
    seed: Annotated[int, typer.Option()] = 7,
    proxy: Annotated[bool, typer.Option("--proxy")] = False,
    grouped: Annotated[bool, typer.Option("--grouped")] = False,
    counter: Annotated[Path | None, typer.Option()] = None,
    history: Annotated[Path | None, typer.Option()] = None,
) -> None:
    """Send until the end."""
    shape = Shape(queues, keys, body_bytes, exponent, seed)
    links = Links()
    opened = [links.connect(address) for _ in range(connections)]
    sends = ProxySends(topic) if proxy else BrokerSends(topic, grouped=grouped)
    with closing(open_history(history, "sender")) as writer:
        sender = Sender(
            topic, sends, links, writer, Counter(counter) if counter is not None else None
        )
        _stop_on_signals(sender, seconds)
        began_ns = now_ns()
        sender.delays = Delays(from_ns=began_ns + int(warm_s * 1e9))
        if rate:
            sender.open_loop(shape, opened, rate, count)
        else:
            sender.closed_loop(shape, opened, batch, count)
        took_s = (now_ns() - began_ns) / 1e9
    print_json({"sent": sender.sent, "seconds": took_s, **sender.delays.figures("answer_")})


def _stop_on_signals(sender: Sender, seconds: float) -> None:
    def stop(*_: object) -> None:
        sender.stopped = True

    handler: Callable[..., None] = stop
    signal.signal(signal.SIGTERM, handler)
    signal.signal(signal.SIGALRM, handler)
    signal.setitimer(signal.ITIMER_REAL, seconds)


if __name__ == "__main__":
    typer.run(main)
