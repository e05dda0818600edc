"""Orderly locks: the client that may deliver the messages of a queue for a group.

1. A lock has one holder; it ends when the holder unlocks it or ``expiry_ns`` after its last
   renewal. Nothing else ends it: neither a closed connection, nor a restart of the broker, nor
   the end of the topic, which may be created again while the holder delivers its messages.
2. In doubt a lock is not granted.
3. A change of holder must be on disk before it is answered (``Grant.to_save``), otherwise a
   restarted broker could grant the same queue again. Renewals are not saved: a lock that is loaded
   counts as renewed at that moment. Its age since then is saved until its holder renews it
   (``ages_to_save``), so restarts in quick succession do not keep a dead client's lock alive.
4. Requests of one client for one queue count in the order in which they were made (``sequence``):
   one that arrives after a later one neither takes nor releases the lock.
5. A lock uses memory from its grant to its end, and for one more ``expiry_ns`` if released.
6. ``since_ms`` identifies the table. It stays the same for as long as no lock was forgotten: a
   broker that lost its table begins another one.

The times are monotonic nanoseconds. Pure.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from broker_core.names import Group, QueueName, Topic


class Grant(NamedTuple):
    """Queues that a request holds now; answer only after save number *to_save*."""

    queues: frozenset[QueueName]
    to_save: int


@dataclass(slots=True)
class _Lock:
    holder: str
    renewed_ns: int
    change: int  # number of the change that made it
    sequence: int = 0  # the highest of its holder's requests
    #: True until its holder renews it after a restart of the broker.
    loaded: bool = False
    #: True if the file has an age, which a renewal makes wrong.
    aged: bool = False


class _Freed(NamedTuple):
    """A released lock: its last holder, and the number and time of the holder's last request."""

    holder: str
    sequence: int
    at_ns: int


#: Ages of locks are saved in steps of this many nanoseconds.
_AGE_STEP_NS = 1_000_000_000


@dataclass(slots=True)
class QueueLocks:
    """The lock table of one broker. Not thread-safe.

    *since_ms*: when the table was begun, ms since 1970.
    """

    expiry_ns: int
    #: Number of changes of holders; a save of the table at n has all changes up to n.
    change: int = 0
    since_ms: int = 0
    _ages_saved_ns: int = 0
    _has_loaded: bool = False  # some lock may not have been renewed since the broker's start
    _quiet_until_ns: int = 0  # until then ``expire`` has nothing to remove
    _locks: dict[tuple[Group, QueueName], _Lock] = field(default_factory=dict)
    _freed: dict[tuple[Group, QueueName], _Freed] = field(default_factory=dict)

    def __len__(self) -> int:
        return len(self._locks)

    def groups(self) -> set[Group]:
        """Return the groups with locks."""
        return {group for group, _ in self._locks}

    def new(self, group: Group, queues: Iterable[QueueName]) -> list[QueueName]:
        """Return those of *queues* that have no lock of *group*."""
        return [queue for queue in queues if (group, queue) not in self._locks]

    def lock(
        self,
        group: Group,
        client_id: str,
        queues: Iterable[QueueName],
        *,
        now_ns: int,
        sequence: int = 0,
    ) -> Grant:
        """Take or renew the locks of *queues* that no other client holds.

        *sequence*: number of the request among its client's; 0: unknown, counts as the latest.
        """
        granted = set()
        to_save = 0
        for queue in queues:
            if sequence and self._is_late(group, queue, client_id, sequence):
                continue
            lock = self._locks.get((group, queue))
            if lock is None or (lock.holder != client_id and self._has_ended(lock, now_ns)):
                self.change += 1
                self._locks[group, queue] = lock = _Lock(client_id, now_ns, self.change)
                self._ends_at(now_ns + self.expiry_ns)
            if lock.holder == client_id:
                lock.sequence = max(lock.sequence, sequence)
                self._renew(lock, now_ns)
                granted.add(queue)
                to_save = max(to_save, lock.change)
        return Grant(frozenset(granted), to_save)

    def unlock(
        self,
        group: Group,
        client_id: str,
        queues: Iterable[QueueName],
        *,
        now_ns: int = 0,
        sequence: int = 0,
    ) -> None:
        """Release those of *queues* that *client_id* holds. *sequence* as for ``lock``."""
        for queue in queues:
            lock = self._locks.get((group, queue))
            if lock is None or lock.holder != client_id or 0 < sequence < lock.sequence:
                continue
            del self._locks[group, queue]
            self.change += 1
            if sequence:
                self._freed[group, queue] = _Freed(client_id, sequence, now_ns)
                self._ends_at(now_ns + self.expiry_ns)

    def renew(
        self, client_id: str, names: Iterable[tuple[Group, QueueName]], *, now_ns: int
    ) -> tuple[list[tuple[Group, QueueName]], int]:
        """Renew locks that *client_id* holds; return the names of the others, and ``to_save``.

        Takes none, so one that arrives after the release of a lock has no effect on it.
        """
        refused = []
        to_save = 0
        for name in names:
            lock = self._locks.get(name)
            if lock is None or lock.holder != client_id:
                refused.append(name)
                continue
            self._renew(lock, now_ns)
            to_save = max(to_save, lock.change)
        return refused, to_save

    def _renew(self, lock: _Lock, now_ns: int) -> None:
        lock.loaded = False
        if lock.aged:
            self.change += 1
            lock.aged, lock.change = False, self.change
        # Never earlier: a lock loaded or granted a moment ago must keep its time.
        lock.renewed_ns = max(lock.renewed_ns, now_ns)

    def _is_late(self, group: Group, queue: QueueName, client_id: str, sequence: int) -> bool:
        freed = self._freed.get((group, queue))
        if freed is None or freed.holder != client_id:
            return False
        return sequence < freed.sequence

    def holder(self, group: Group, queue: QueueName, *, now_ns: int) -> str | None:
        """Return the current holder of the lock, or None."""
        lock = self._locks.get((group, queue))
        return None if lock is None or self._has_ended(lock, now_ns) else lock.holder

    def has_any(self, group: Group, *, now_ns: int) -> bool:
        """Return whether any client holds a lock for *group*; O(locks)."""
        return any(
            name == group and not self._has_ended(lock, now_ns)
            for (name, _), lock in self._locks.items()
        )

    def expire(self, now_ns: int) -> None:
        """Remove expired locks, and released ones of the same age.

        O(locks) once the lock that was renewed longest ago at the last such look may have ended,
        otherwise O(1).
        """
        if now_ns <= self._quiet_until_ns:
            return
        self._freed = {
            name: freed
            for name, freed in self._freed.items()
            if now_ns - freed.at_ns <= self.expiry_ns
        }
        ended = [name for name, lock in self._locks.items() if self._has_ended(lock, now_ns)]
        for name in ended:
            del self._locks[name]
            self.change += 1
        began_ns = [lock.renewed_ns for lock in self._locks.values()]
        began_ns += [freed.at_ns for freed in self._freed.values()]
        self._quiet_until_ns = min(began_ns, default=now_ns) + self.expiry_ns

    def _ends_at(self, time_ns: int) -> None:
        self._quiet_until_ns = min(self._quiet_until_ns, time_ns)

    def ages_to_save(self, now_ns: int) -> bool:
        """Note the ages of loaded locks that their holders have not renewed; return True if the
        table must be saved with them, once a second at most. O(locks) until all are renewed.
        """
        if not self._has_loaded or now_ns - self._ages_saved_ns < _AGE_STEP_NS:
            return False
        loaded = [lock for lock in self._locks.values() if lock.loaded]
        self._has_loaded = bool(loaded)
        if not loaded:
            return False
        for lock in loaded:
            lock.aged = True
        self._ages_saved_ns = now_ns
        self.change += 1
        return True

    def to_table(self) -> dict[str, Any]:
        """Return the state that a restarted broker needs.

        ``ages_ms``: of each lock, milliseconds since its holder's last renewal; omitted if 0.
        """
        ages_ms = [self._age_ms(lock) for lock in self._locks.values()]
        return {
            **({"since_ms": self.since_ms} if self.since_ms else {}),
            "locks": [
                [group, queue.topic, queue.broker, queue.queue_id, lock.holder]
                for (group, queue), lock in self._locks.items()
            ],
            **({"ages_ms": ages_ms} if any(ages_ms) else {}),
        }

    def _age_ms(self, lock: _Lock) -> int:
        age_ns = self._ages_saved_ns - lock.renewed_ns if lock.loaded else 0
        return max(0, age_ns // 1_000_000)

    @classmethod
    def from_table(
        cls, table: dict[str, Any], *, expiry_ns: int, now_ns: int, begun_ms: int = 0
    ) -> QueueLocks:
        """Inverse of ``to_table``: all locks are renewed now, apart from their saved ages.

        *begun_ms*: ``since_ms`` of a table without one, which may have forgotten locks. Raises
        ValueError on other content.
        """
        locks = cls(expiry_ns, _ages_saved_ns=now_ns)
        try:
            locks.since_ms = int(table.get("since_ms", begun_ms))
            listed = table.get("locks", [])
            ages_ms = table.get("ages_ms", [0] * len(listed))
            for (group, topic, broker, queue_id, holder), age_ms in zip(
                listed, ages_ms, strict=True
            ):
                queue = QueueName(Topic(str(topic)), str(broker), int(queue_id))
                renewed_ns = now_ns - max(0, int(age_ms)) * 1_000_000
                lock = _Lock(str(holder), renewed_ns, 0, loaded=True, aged=bool(age_ms))
                locks._locks[Group(str(group)), queue] = lock
                locks._has_loaded = True
        except (TypeError, ValueError) as error:
            raise ValueError(f"not a table of orderly locks: {error}") from error
        return locks

    def _has_ended(self, lock: _Lock, now_ns: int) -> bool:
        return now_ns - lock.renewed_ns > self.expiry_ns
