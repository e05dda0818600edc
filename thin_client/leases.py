"""All leases of a client, and the next message for a handler. Pure; O(1) unless noted."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from thin_client.lease import Batch, Lease
from thin_client.verdicts import QueueName


@dataclass(slots=True)
class Leases:
    """Leases of a client: open, ready, or waiting behind another lease of their key."""

    concurrency: int
    #: Number of messages with handlers; a batch counts as one.
    open: int = 0
    #: Leases with handlers, and since when.
    opened: dict[Lease, int] = field(default_factory=dict)
    #: Leases that can go to a handler.
    ready: deque[Lease] = field(default_factory=deque)
    #: Number of leases.
    count: int = 0
    _held: dict[QueueName, dict[int, Lease]] = field(default_factory=dict)
    #: By topic and key: the last lease of a chain. The first one is ready or open, and each lease
    #: has the next one as its successor.
    _tails: dict[str, dict[bytes, Lease]] = field(default_factory=dict)

    def __len__(self) -> int:
        return self.count

    def __iter__(self) -> Iterator[Lease]:
        return (lease for held in self._held.values() for lease in held.values())

    def copy(self) -> list[Lease]:
        """Return all leases; O(n). Safe in any thread: the interpreter copies atomically."""
        return [lease for held in list(self._held.values()) for lease in list(held.values())]

    def holds(self, lease: Lease) -> bool:
        """Return False once *lease* was closed or removed."""
        held = self._held.get(lease.origin.queue)
        return held is not None and held.get(lease.lease_id) is lease

    def add(self, leases: Sequence[Lease]) -> None:
        """Add new leases of one origin; leases already held are ignored. O(leases)."""
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
        self.count += len(held) - before

    def take(self, now_ns: int) -> Lease | None:
        """Open and return the next ready lease that has not expired; O(expired leases)."""
        ready = self.ready
        if not ready or self.open >= self.concurrency:
            return None
        lease = ready.popleft()
        if lease.deadline_ns <= now_ns:
            for _ in range(len(ready)):
                ready.append(lease)  # ready leases have different keys: order does not matter
                lease = ready.popleft()
                if lease.deadline_ns > now_ns:
                    break
            else:
                ready.append(lease)
                return None
        self.opened[lease] = now_ns
        self.open += 1
        return lease

    def take_batch(self, now_ns: int, *, most: int) -> list[Lease]:
        """Open the next ready lease and up to *most* - 1 leases after it in its run.

        They count as one message with a handler until the last one is closed.
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
            each.join(batch)
            self.opened[each] = now_ns
        return taken

    def share_time(self, lease: Lease, now_ns: int, among: int) -> None:
        """Attribute to an open *lease* its part of the time that a batch took for *among*."""
        self.opened[lease] = now_ns - (now_ns - self.opened[lease]) // among

    def close(self, lease: Lease) -> tuple[int, bool]:
        """Close an open lease, which makes the next one of its key ready.

        Return since when it was open, and True if the client holds another lease of its key. Raises
        KeyError if it is not open.
        """
        opened_ns = self.opened.pop(lease, None)
        if opened_ns is None:
            raise KeyError(
                f"{lease.topic}/{lease.queue} at offset {lease.offset} is not being handled"
            )
        # _forget and _next, inlined: this runs for every message.
        origin = lease.origin
        held = origin.held
        del held[lease.lease_id]
        if not held:
            del self._held[origin.queue]
        self.count -= 1
        ended = lease
        if lease.batch is not None:
            if (last := lease.leave(lease.batch)) is None:
                return opened_ns, True
            ended = last
        self.open -= 1
        if (successor := ended.successor) is not None:
            ended.cut()
            self.ready.append(successor)
            return opened_ns, True
        if lease.chain is not None:
            del origin.tails[lease.chain]
        return opened_ns, False

    def drop_rest(self, lease: Lease) -> list[Lease]:
        """Remove and return the leases behind the open *lease* in its run; O(removed leases)."""
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
            assert lease.chain is not None  # only leases with a key wait behind another
            last.cut()
            lease.origin.tails[lease.chain] = last
            for each in rest:
                each.cut()
                self._forget(each)
        return rest

    def drop(self, lease: Lease) -> None:
        """Remove a lease that is not open; O(n)."""
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
        """Remove and return all leases that are not open; O(n)."""
        waiting = [lease for lease in self if lease not in self.opened]
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
        """Yield all leases in chains: held ones, and the last one of a batch even if closed."""
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
        self.count -= 1

    def _next(self, lease: Lease) -> None:
        """Make the next lease of the key ready, after *lease*, the first of its chain, is gone."""
        successor = lease.cut()
        if successor is not None:
            self.ready.append(successor)
        elif lease.chain is not None:
            del lease.origin.tails[lease.chain]
