"""The client of a simulation: what it holds, and which of that goes to a handler. Pure.

As ``thin_client.leases`` has it: one message of a key at a time, also where the key stands in
several queues; what waits for nothing but a handler goes in the order in which it came.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Collection
from typing import Generic, TypeVar

from proxy.core.keys.order_key import QUEUE_CHAIN
from proxy.core.leases.lease_book import Lease

Queue = TypeVar("Queue")


class SimulatedClient(Generic[Queue]):
    """Holds leases with their queues, *capacity* at most, *workers* of them with handlers."""

    def __init__(self, *, workers: int, capacity: int) -> None:
        self.room = capacity  # how many more leases it takes
        #: Messages that wait for a handler, in that order, and the number of idle handlers.
        self.ready: deque[tuple[Queue, Lease]] = deque()
        self.idle = workers
        # By key what came while another one of it was here; there is one as long as one is.
        self._behind: dict[bytes, deque[tuple[Queue, Lease]]] = {}

    def add(self, queue: Queue, leases: Collection[Lease]) -> None:
        """Leases came. Of a key with another one here one waits behind that."""
        self.room -= len(leases)
        for lease in leases:
            key = lease.job.key
            if key is not None and key != QUEUE_CHAIN:  # no other queue has one of these
                behind = self._behind.get(key)
                if behind is not None:
                    behind.append((queue, lease))
                    continue
                self._behind[key] = deque()
            self.ready.append((queue, lease))

    def hand_over(self) -> list[tuple[Queue, Lease]]:
        """Give waiting messages to idle handlers, and return them."""
        ready = self.ready
        count = min(self.idle, len(ready))
        self.idle -= count
        return [ready.popleft() for _ in range(count)]

    def handled(self, key: bytes | None) -> Queue | None:
        """A handler is done with a message of *key*. Returns the queue of the one that was behind
        it and waits for nothing but a handler now; None without any.
        """
        self.idle += 1
        self.room += 1
        if key is None or key == QUEUE_CHAIN:
            return None
        behind = self._behind[key]
        if not behind:
            del self._behind[key]
            return None
        following = behind.popleft()
        self.ready.append(following)
        return following[0]
