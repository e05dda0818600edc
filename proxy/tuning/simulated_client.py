"""The simulated client: leased messages, and their distribution to handlers. Pure.

As in ``thin_client.leases``, one message of a key is handled at a time, even if the key is in
several queues; other messages are handled in order of arrival.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Collection
from typing import Generic, TypeVar

from proxy.core.keys.order_key import QUEUE_CHAIN
from proxy.core.leases.lease_book import Lease

Queue = TypeVar("Queue")


class SimulatedClient(Generic[Queue]):
    """Holds up to *capacity* leases, up to *workers* of them with handlers."""

    def __init__(self, *, workers: int, capacity: int) -> None:
        self.room = capacity  # number of further leases accepted
        #: Messages waiting for a handler, in order, and the number of idle handlers.
        self.ready: deque[tuple[Queue, Lease]] = deque()
        self.idle = workers
        # Messages by key that arrived behind another one of their key; an entry exists while one is
        # here.
        self._behind: dict[bytes, deque[tuple[Queue, Lease]]] = {}

    def add(self, queue: Queue, leases: Collection[Lease]) -> None:
        """Add leases. One whose key is here already waits behind it."""
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
        """Give waiting messages to idle handlers and return them."""
        ready = self.ready
        count = min(self.idle, len(ready))
        self.idle -= count
        return [ready.popleft() for _ in range(count)]

    def handled(self, key: bytes | None) -> Queue | None:
        """Note that a handler has finished a message of *key*. Return the queue of the next message
        of the key, which now only waits for a handler; None if there is none.
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
