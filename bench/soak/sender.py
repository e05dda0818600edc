"""The sender of a soak: ``python -m bench.soak.sender``.

Each connection sends a batch through the proxy when the previous one is answered, and pauses while
more than ``--backlog`` messages are unhandled by one of the consumers (``--handled``, files with
their counts). A batch that is refused, in whole or in part, is sent again with the same message
ids. Ends after ``--count`` messages, ``--seconds`` or SIGTERM, with one line of JSON.
"""

from __future__ import annotations

import os
import signal
import time
from pathlib import Path
from typing import Annotated

import typer

from bench.frame.progress import Counter
from bench.load.links import Link, Links
from bench.load.requests import ProxySends
from bench.soak.keys import ChurningKeys
from broker_core.clock import now_ns
from proxy.cli.output import print_json

_LOOK_S = 0.02
#: Delay before a refused batch is sent again.
_AGAIN_NS = 500_000_000


class _Sender:
    """Sends while the backlog permits. ``resent``: messages sent again, which may be stored
    twice.
    """

    def __init__(
        self,
        topic: str,
        links: Links,
        *,
        counter: Counter,
        handled: list[Counter],
        backlog: int,
    ) -> None:
        self.stopped = False
        self.sent = self.resent = 0
        self._sends = ProxySends(topic)
        self._links = links
        self._counter = counter
        self._handled = handled
        self._backlog = backlog
        self._prefix = f"{os.getpid():08X}"
        self._under_way: dict[int, tuple[Link, bytes, int]] = {}  # by connection: the last request
        self._again: list[tuple[int, int]] = []  # time and connection

    def stop(self, *_: object) -> None:
        """Send nothing new; requests in progress finish."""
        self.stopped = True

    def run(self, keys: dict[int, ChurningKeys], links: list[Link], batch: int, most: int) -> None:
        """Run until everything is sent and answered."""
        ready = list(links)
        while True:
            while ready and not self._over(most) and self._has_room():
                link = ready.pop()
                self._send(link, keys[link.number], min(batch, most - self.sent))
            if self._under_way:
                ready += self._receive()
            elif self._over(most):
                return
            else:
                time.sleep(_LOOK_S)

    def _over(self, most: int) -> bool:
        return self.stopped or self.sent >= most

    def _has_room(self) -> bool:
        return self.sent < min(counter.value for counter in self._handled) + self._backlog

    def _send(self, link: Link, keys: ChurningKeys, count: int) -> None:
        numbers = range(self.sent, self.sent + count)
        ids = [f"{self._prefix}{number:024X}" for number in numbers]
        frame = self._sends.frame(link.number, 0, keys.next(count, now_ns()), ids)
        self.sent += count
        self._under_way[link.number] = link, frame, count
        self._links.send(link, frame)

    def _receive(self) -> list[Link]:
        """Receive answers; return the connections whose batches are stored."""
        while self._again and self._again[0][0] <= now_ns():
            link, frame, count = self._under_way[self._again.pop(0)[1]]
            self.resent += count
            self._links.send(link, frame)
        stored = []
        for link in self._links.wait(_LOOK_S):
            for answer in link.frames():
                try:
                    self._sends.check(answer)
                except (
                    RuntimeError
                ):  # the machine stalled a process for longer than a send may take
                    self._again.append((now_ns() + _AGAIN_NS, link.number))
                    continue
                self._counter.show(self._counter.value + self._under_way.pop(link.number)[2])
                stored.append(link)
        return stored


def main(
    address: Annotated[str, typer.Option(help="host:port of a proxy")],
    topic: Annotated[str, typer.Option()],
    counter: Annotated[Path, typer.Option(help="file of its message count")],
    handled: Annotated[list[Path], typer.Option(help="files of the consumers' message counts")],
    alive: Annotated[int, typer.Option(help="number of live keys")] = 5_000,
    body_bytes: Annotated[int, typer.Option()] = 256,
    connections: Annotated[int, typer.Option()] = 8,
    batch: Annotated[int, typer.Option()] = 64,
    backlog: Annotated[int, typer.Option()] = 20_000,
    count: Annotated[int, typer.Option()] = 10**12,
    seconds: Annotated[float, typer.Option()] = 3_600.0,
    seed: Annotated[int, typer.Option()] = 7,
) -> None:
    """Send until the end."""
    links = Links()
    opened = [links.connect(address) for _ in range(connections)]
    keys = {
        link.number: ChurningKeys(
            alive=alive // connections,
            number=link.number,
            connections=connections,
            body_bytes=body_bytes,
            seed=seed,
        )
        for link in opened
    }
    sender = _Sender(
        *(topic, links),
        counter=Counter(counter),
        handled=[Counter(path) for path in handled],
        backlog=backlog,
    )
    signal.signal(signal.SIGTERM, sender.stop)
    signal.signal(signal.SIGALRM, sender.stop)
    signal.setitimer(signal.ITIMER_REAL, seconds)
    sender.run(keys, opened, batch, count)
    begun = sum(each.keys for each in keys.values())
    print_json({"sent": sender.sent, "resent": sender.resent, "keys": begun})


if __name__ == "__main__":
    typer.run(main)
