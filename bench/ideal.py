"""Upper bound for handlers if only the work took time: a backlog in virtual time.

The scheduler knows all messages and prefers the key with the most work left. If keys differ in
size, even this bound is below handlers / work.
"""

from __future__ import annotations

import heapq
from collections import deque
from collections.abc import Iterator
from itertools import zip_longest

from bench.frame.figures import Figures
from bench.frame.peer import Work
from bench.handling_record import FIRST, LAST
from bench.peers.backlog import backlog_of
from bench.slow_work import SlowWork


def ideal(work: Work, *, order_key: str | None = "KEY") -> Figures:
    """Return figures as from a consumer. *order_key*: KEY, QID or None."""
    least_ms = work.work_ms if work.least_work_ms is None else work.least_work_ms
    lasts = SlowWork(work.seed, least_ms, work.work_ms)
    ended = sorted(_ends(_chains(work, lasts, order_key), work.concurrency))
    count = len(ended)
    first, last = max(1, int(count * FIRST)), int(count * LAST)
    steady_s = ended[last - 1] - ended[first - 1]
    return {
        "per_s": count / ended[-1],
        "seconds": ended[-1],
        "steady_per_s": (last - first) / steady_s,
        "faults": 0,
    }


def _chains(work: Work, lasts: SlowWork, order_key: str | None) -> list[deque[float]]:
    """Return the work of each message by chain; chains in the order of their first messages."""
    backlog = backlog_of(work)
    queues = [_places(list(backlog.bodies(each, work.queues)), each) for each in range(work.queues)]
    chains: dict[object, deque[float]] = {}
    for row in zip_longest(*queues):
        for place, key, body in filter(None, row):
            name = {"KEY": key, "QID": place[0]}.get(order_key or "", place)
            chains.setdefault(name, deque()).append(lasts.seconds(body))
    return list(chains.values())


def _places(
    bodies: list[tuple[str, bytes]], queue_id: int
) -> Iterator[tuple[tuple[int, int], str, bytes]]:
    for offset, (key, body) in enumerate(bodies):
        yield (queue_id, offset), key, body


def _ends(chains: list[deque[float]], handlers: int) -> Iterator[float]:
    """Return the end time of each message."""
    ready = [(-len(chain), number, chain) for number, chain in enumerate(chains)]
    heapq.heapify(ready)
    working: list[tuple[float, int, deque[float]]] = []
    now = 0.0
    while ready or working:
        while ready and len(working) < handlers:
            _, number, chain = heapq.heappop(ready)
            heapq.heappush(working, (now + chain.popleft(), number, chain))
        now, number, chain = heapq.heappop(working)
        yield now
        if chain:
            heapq.heappush(ready, (-len(chain), number, chain))
