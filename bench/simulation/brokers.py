"""Brokers: the real lock table and groups, with a model of their processor and disk."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field

from bench.simulation.events import SECOND, Events
from bench.simulation.model import Model
from bench.simulation.network import Server
from broker_core.broker.groups.groups import Groups
from broker_core.broker.groups.notice_pace import NoticePace
from broker_core.broker.groups.queue_locks import QueueLocks
from broker_core.names import Group, QueueName, Topic
from broker_core.remoting.bodies import ConsumerData, Subscription
from proxy.core.keys.ids import Epoch
from proxy.core.records.record import Own
from proxy.core.records.replay import LastOwner

TOPIC = Topic("orders")
GROUP = Group("billing")
_CONSUMER = (ConsumerData(group=GROUP, subscriptions=(Subscription(topic=TOPIC, version=1),)),)


@dataclass(slots=True)
class _Records:
    """The part of one queue's ownership records that owners read."""

    count: int = 0
    last: LastOwner | None = None


@dataclass(slots=True)
class Broker:
    """One broker. *tell* is called with the names of the members to notify of a change."""

    server: Server
    model: Model
    events: Events
    tell: Callable[[Broker, Iterable[str]], None]
    started_ms: int = 0
    locks: QueueLocks = field(init=False)
    groups: Groups[str] = field(init=False)
    records: dict[QueueName, _Records] = field(default_factory=dict)
    _pace: NoticePace = field(init=False)

    def __post_init__(self) -> None:
        self.locks = QueueLocks(int(self.model.lock.broker_lock_expiry_s * SECOND))
        self.groups = Groups()
        self._pace = NoticePace()

    @property
    def name(self) -> str:
        """Its name."""
        return self.server.name

    # ---- requests of proxies ---------------------------------------------------------------------

    def heartbeat(self, member: str) -> tuple[None, int]:
        """Register or refresh *member*."""
        changed = self.groups.heartbeat(
            member,
            member,
            _CONSUMER,
            now_ns=self.events.now_ns,
            expiry_ns=int(self.model.lock.broker_lock_expiry_s * SECOND),
        )
        self._tell(changed)
        return None, 0

    def unregister(self, member: str) -> tuple[None, int]:
        """Remove *member*."""
        self._tell(self.groups.unregister(member, GROUP))
        return None, 0

    def disconnected(self, member: str) -> None:
        """Handle the closed connection of *member*."""
        if self.server.up:
            self._tell(self.groups.connection_closed(member))

    def expire(self) -> None:
        """Remove silent members."""
        if self.server.up:
            self._tell(self.groups.expire(self.events.now_ns))

    def members(self) -> tuple[list[str], int]:
        """Return all members."""
        return self.groups.members(GROUP), 0

    def lock(self, member: str, queues: Iterable[QueueName]) -> tuple[frozenset[QueueName], int]:
        """Grant the available locks; a change of holders is written to disk first."""
        before = self.locks.change
        grant = self.locks.lock(GROUP, member, queues, now_ns=self.events.now_ns)
        return grant.queues, self.model.costs.disk_ns if self.locks.change != before else 0

    def unlock(self, member: str, queues: Iterable[QueueName]) -> tuple[None, int]:
        """Free the locks that *member* holds."""
        self.locks.unlock(GROUP, member, queues)
        return None, 0

    def last(
        self, queues: Iterable[QueueName]
    ) -> tuple[dict[QueueName, tuple[LastOwner | None, int]], int]:
        """Return the last owner of each of *queues*, and the number of records."""
        found = {}
        for queue in queues:
            records = self.records.setdefault(queue, _Records())
            found[queue] = records.last, records.count
        return found, 0

    def own(self, owns: dict[QueueName, Own]) -> tuple[dict[QueueName, int], int]:
        """Append the records of a new owner; their offsets are the epochs."""
        epochs = {}
        for queue, own in owns.items():
            records = self.records[queue]
            epochs[queue] = records.count
            records.last = LastOwner(Epoch(records.count), own, None, clean=False)
            records.count += 1
        return epochs, self.model.costs.disk_ns

    def end(self, queue: QueueName, epoch: int) -> tuple[None, int]:
        """Append a clean end of a period; it counts if no later one has begun."""
        records = self.records[queue]
        records.count += 1
        if records.last is not None and records.last.epoch == epoch:
            records.last = LastOwner(records.last.epoch, records.last.own, None, clean=True)
        return None, self.model.costs.disk_ns

    # ---- faults ---------------------------------------------------------------------------------

    def stop(self) -> None:
        """Stop the broker."""
        self.server.stop()

    def start(self) -> None:
        """Start it again, with the locks on its disk and no members."""
        self.server.start()
        now_ns = self.events.now_ns
        self.started_ms = now_ns // 1_000_000
        self.locks = QueueLocks.from_table(
            self.locks.to_table(), expiry_ns=self.locks.expiry_ns, now_ns=now_ns
        )
        self.groups = Groups()

    def _tell(self, changed: set[Group]) -> None:
        if changed:
            wait_ns = self._pace.changed(GROUP, now_ns=self.events.now_ns)
            if wait_ns is not None:
                self.events.after(wait_ns, self._notify)

    def _notify(self) -> None:
        group, now_ns = self.groups.find(GROUP), self.events.now_ns
        members = group.members if group is not None else {}
        self._pace.notified(GROUP, len(members), now_ns=now_ns)
        self.server.count("notice", now_ns, len(members))
        self.server.busy(self.model.costs.notice_ns * len(members), now_ns)
        self.tell(self, members)
