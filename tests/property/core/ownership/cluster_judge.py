"""The broker of a modelled cluster, and the judge of deliveries from its queue."""

from __future__ import annotations

from dataclasses import dataclass, field

from broker_core.remoting.message import StoredMessage
from proxy.core.keys.ids import LeaseId
from proxy.core.leases.lease_book import Lease
from proxy.core.leases.verdicts import Outcome
from proxy.core.pipeline.effects import Effects
from proxy.core.records.codec import decode
from proxy.core.records.record import Snapshot
from proxy.core.records.replay import LastOwner, replay

MS = 1_000_000
SECOND = 1000 * MS
DRAIN_NS = 6 * SECOND
TRUST_NS, EXPIRY_NS, RENEWAL_NS = 5 * SECOND, 10 * SECOND, 2 * SECOND


@dataclass(slots=True)
class Broker:
    """One queue, its ownership records, its lock and its stored offset.

    With *forgets_locks* it is like Apache RocketMQ: after a restart, an owner that is still trusted
    may commit after the next one, so the stored offset may fall.
    """

    forgets_locks: bool
    log: list[StoredMessage] = field(default_factory=list)
    records: list[bytes] = field(default_factory=list)
    start_ns: int = 0
    locked_by: str = ""
    lock_ends_ns: int = 0
    committed: int = 0
    committed_epoch: int = -1

    def lock(self, client: str, now_ns: int) -> bool:
        if self.locked_by not in ("", client) and now_ns < self.lock_ends_ns:
            return False
        self.locked_by, self.lock_ends_ns = client, now_ns + EXPIRY_NS
        return True

    def unlock(self, client: str) -> None:
        if self.locked_by == client:
            self.locked_by = ""

    def commit(self, epoch: int, offset: int) -> None:
        """Store *offset* unless *epoch* is outdated."""
        if epoch >= self.committed_epoch:
            assert offset >= self.committed or self.forgets_locks, "commits never fall"
            self.committed, self.committed_epoch = offset, epoch

    def last_owner(self) -> LastOwner | None:
        return replay((offset, decode(body)) for offset, body in enumerate(self.records))

    def restart(self, now_ns: int) -> None:
        self.start_ns = now_ns
        if self.forgets_locks:
            self.locked_by = ""


def finished(snapshot: Snapshot, offset: int) -> bool:
    """Return True if the records list the message at *offset* as finished."""
    elsewhere = any(offset in chain for chain in snapshot.spilled.values())
    return offset < snapshot.read and offset not in snapshot.unfinished and not elsewhere


@dataclass(slots=True)
class Judge:
    """Checks deliveries and finished messages of all proxies."""

    broker: Broker
    live: dict[tuple[int, LeaseId], Lease] = field(default_factory=dict)  # by epoch and id
    finished: dict[int, Outcome] = field(default_factory=dict)
    first: dict[str, int] = field(default_factory=dict)  # highest offset of each key so far
    deliveries: dict[int, int] = field(default_factory=dict)

    def took_over(self, known: set[int]) -> None:
        """Check that a new owner skips only finished messages (*known*)."""
        assert known <= self.finished.keys(), "nothing is lost"

    def handed_out(self, epoch: int, given: Lease, *, known: set[int], now_ns: int) -> None:
        """Check a delivery by an owner that considers *known* finished."""
        offset, key = given.job.offset, self.key(given.job.offset)
        for (other, _), held in self.live.items():
            assert held.deadline_ns <= now_ns or self.key(held.job.offset) != key, (
                f"two live leases of {key}: of epochs {epoch} and {other}"
            )
        for earlier in range(offset):
            assert earlier in known or self.key(earlier) != key, "the one before is finished"
        if offset not in self.deliveries:
            assert self.first.get(key, -1) < offset, "first hand-outs of a key in queue order"
            self.first[key] = offset
        assert offset not in self.durable(), "recorded messages stay finished"
        self.deliveries[offset] = self.deliveries.get(offset, 0) + 1
        self.live[epoch, given.lease_id] = given

    def saw(self, epoch: int, effects: Effects) -> None:
        for each in (*effects.acked, *effects.nacked, *effects.released, *effects.expired):
            del self.live[epoch, each.lease_id]
        self.finished |= dict(effects.finished)

    def durable(self) -> set[int]:
        """Return finished messages below a reliable stored offset, or in the valid snapshot."""
        stored = 0 if self.broker.forgets_locks else self.broker.committed
        last = self.broker.last_owner()
        snapshot = last.snapshot if last else None
        return {
            offset
            for offset in self.finished
            if offset < stored or (snapshot is not None and finished(snapshot, offset))
        }

    def key(self, offset: int) -> str:
        return str(self.broker.log[offset].key)
