"""Messages that a client holds, and those that may go to a handler. Pure; O(1) unless noted."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from thin_client.lease import Batch, Lease
from thin_client.verdicts import QueueName


@dataclass(slots=True)
class Leases:
    """All leases of a client: open ones, ready ones, and those behind another of their key."""

    concurrency: int
    open: int = 0
    #: Leases that wait only for a handler.
    ready: deque[Lease] = field(default_factory=deque)
    _count: int = 0  # of those in _held
    _held: dict[QueueName, dict[int, Lease]] = field(default_factory=dict)
    #: By topic, by key: the last of a chain of leases, of which the first is ready or open,
    #: and each has the next one as its successor.
    _tails: dict[str, dict[bytes, Lease]] = field(default_factory=dict)

    def __len__(self) -> int:
        return self._count

    def __iter__(self) -> Iterator[Lease]:
        return (lease for held in self._held.values() for lease in held.values())

    def copy(self) -> list[Lease]:
        """All of them; O(n). May be called from any thread: each copy is one step of Python."""
        return [lease for held in list(self._held.values()) for lease in list(held.values())]

    def holds(self, lease: Lease) -> bool:
        """False once it was closed or removed."""
        held = self._held.get(lease.origin.queue)
        return held is not None and held.get(lease.lease_id) is lease

    def add(self, leases: Sequence[Lease]) -> None:
        """Take new leases of one origin in; what is held already is ignored. O(leases)."""
        if not leases:
            return
        origin = leases[0].origin
        held = self._held.setdefault(origin.queue, {})
        tails = self._tails.setdefault(origin.queue[0], {})
        origin.share(held, tails)
        ready = self.ready
        before = len(held)
        for lease in leases:
            if held.setdefault(lease.lease_id, lease) is not lease:
                continue
            key = lease.chain
            if key is not None:
                tail = tails.get(key)
                tails[key] = lease
                if tail is not None:
                    tail.precede(lease)
                    continue
            ready.append(lease)
        self._count += len(held) - before

    def take(self, now_ns: int) -> Lease | None:
        """Open the next ready lease that has not run out; O(those that have)."""
        ready = self.ready
        if not ready or self.open >= self.concurrency:
            return None
        lease = ready.popleft()
        if lease.deadline_ns <= now_ns:
            for _ in range(len(ready)):
                ready.append(lease)  # other keys', so their order does not matter
                lease = ready.popleft()
                if lease.deadline_ns > now_ns:
                    break
            else:
                ready.append(lease)
                return None
        lease.open()
        self.open += 1
        return lease

    def take_batch(self, now_ns: int, *, most: int) -> list[Lease]:
        """Open the next ready lease and those behind it in its run, *most* in all.

        They count as one with a handler, until the last of them is closed.
        """
        lease = self.take(now_ns)
        if lease is None:
            return []
        taken, origin = [lease], lease.origin
        while (following := lease.successor) is not None and len(taken) < most:
            if following.origin is not origin or following.deadline_ns <= now_ns:
                break
            lease = following
            taken.append(lease)
        batch = Batch(len(taken), lease)
        for each in taken:
            each.open_in(batch)
        return taken

    def close(self, lease: Lease) -> bool:
        """End an open lease; its key's next one gets ready. True if its key goes on here.

        Raises KeyError if it is not open.
        """
        successor = lease.close()
        # As _forget and _next, without their calls: every message comes by here.
        origin = lease.origin
        held = origin.held
        del held[lease.lease_id]
        if not held:
            del self._held[origin.queue]
        self._count -= 1
        if successor is lease:
            return True
        self.open -= 1
        if successor is not None:
            self.ready.append(successor)
            return True
        if lease.chain is not None:
            del origin.tails[lease.chain]
        return False

    def drop_rest(self, lease: Lease) -> list[Lease]:
        """Forget and return the leases that wait behind *lease*, an open one, in its run. O(leases
        behind it).
        """
        last = lease.last
        rest = []
        each = last.successor
        while each is not None:
            if each.origin is lease.origin:
                rest.append(each)
            else:
                last.precede(each)
                last = each
            each = each.successor
        if rest:
            assert lease.chain is not None  # only those with a key wait behind another
            last.cut()
            lease.origin.tails[lease.chain] = last
            for each in rest:
                each.cut()
                self._forget(each)
        return rest

    def drop(self, lease: Lease) -> None:
        """Forget a lease that is not open; O(n)."""
        self._forget(lease)
        if lease in self.ready:
            self.ready.remove(lease)
            self._next(lease)
            return
        ahead = next(each for each in self._linked() if each.successor is lease)
        successor = lease.cut()
        if successor is not None:
            ahead.precede(successor)
            return
        ahead.cut()
        assert lease.chain is not None
        lease.origin.tails[lease.chain] = ahead

    def drop_waiting(self) -> list[Lease]:
        """Forget and return all that are not open; O(n)."""
        waiting = [lease for lease in self if not lease.is_open]
        for lease in waiting:
            lease.cut()
            self._forget(lease)
        self.ready.clear()
        for tails in self._tails.values():
            tails.clear()
        for lease in self:
            lease.last.cut()
            if lease.chain is not None:
                lease.origin.tails[lease.chain] = lease.last
        return waiting

    def _linked(self) -> Iterator[Lease]:
        """All in chains: those held, and of a batch its last one even if that is closed."""
        for lease in self:
            yield lease
            if lease.last is not lease:
                yield lease.last

    def _forget(self, lease: Lease) -> None:
        queue = lease.origin.queue
        held = lease.origin.held
        del held[lease.lease_id]
        if not held:
            del self._held[queue]
        self._count -= 1

    def _next(self, lease: Lease) -> None:
        """Make the next lease of its key ready: *lease*, ahead of all others, is gone."""
        successor = lease.cut()
        if successor is not None:
            self.ready.append(successor)
        elif lease.chain is not None:
            del lease.origin.tails[lease.chain]
