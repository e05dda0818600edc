"""The client of a simulation: what it holds, and which of that goes to a handler. Pure.

As ``thin_client.leases`` has it: one message of a key at a time, also where the key stands in
several queues; what waits for nothing but a handler goes in the order in which it came.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable
from typing import Generic, TypeVar

from proxy.core.order_key import QUEUE_CHAIN
from proxy.core.pull_buffer import Lease

Queue = TypeVar("Queue")


class SimulatedClient(Generic[Queue]):
    """Holds leases with their queues, *capacity* at most, *workers* of them with handlers."""

    def __init__(self, *, workers: int, capacity: int) -> None:
        self.busy = 0  # handlers
        self.ready: deque[tuple[Queue, Lease]] = deque()
        self._workers, self._capacity = workers, capacity
        # By key what came while another one of it was here; there is one as long as one is.
        self._behind: dict[bytes, deque[tuple[Queue, Lease]]] = {}
        self._blocked = 0

    @property
    def room(self) -> int:
        """How many more leases it takes."""
        return self._capacity - self.busy - len(self.ready) - self._blocked

    @property
    def idles(self) -> bool:
        """True if a handler has nothing to do."""
        return not self.ready and self.busy < self._workers

    def add(self, queue: Queue, leases: Iterable[Lease]) -> None:
        """Leases came. Of a key with another one here one waits behind that."""
        for lease in leases:
            key = lease.job.key
            if key is not None and key != QUEUE_CHAIN:  # no other queue has one of these
                behind = self._behind.get(key)
                if behind is not None:
                    behind.append((queue, lease))
                    self._blocked += 1
                    continue
                self._behind[key] = deque()
            self.ready.append((queue, lease))

    def take(self) -> list[tuple[Queue, Lease]]:
        """The next ones, for as many handlers as have nothing to do."""
        ready, idle = self.ready, self._workers - self.busy
        if len(ready) <= idle:
            taken = list(ready)
            ready.clear()
        else:
            taken = [ready.popleft() for _ in range(idle)]
        self.busy += len(taken)
        return taken

    def handled(self, lease: Lease) -> Queue | None:
        """A handler is done with *lease*. Returns the queue of the one that was behind it and waits
        for nothing but a handler now; None without any.
        """
        self.busy -= 1
        key = lease.job.key
        if key is None or key == QUEUE_CHAIN:
            return None
        behind = self._behind[key]
        if not behind:
            del self._behind[key]
            return None
        following = behind.popleft()
        self._blocked -= 1
        self.ready.append(following)
        return following[0]
