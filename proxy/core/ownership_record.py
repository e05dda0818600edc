"""Records of the ownership topic: who owned a queue, and how far a clean owner had come. Pure.

Each (group, topic) has a topic ``%OWN%`` + 16 hex digits on the same broker with the same queue
ids; the records of a queue are the messages of its twin queue. **The epoch is the queue offset of
the ``own`` record**: unique and rising, whoever races. A record is one JSON object with ``v`` (1)
and ``kind``:

- ``own``: owner, trust_ms, longest_lease_ms, broker_start_ms, period (count of ownership periods);
- ``snapshot``: epoch, base, read (the read position), unfinished (differences of rising offsets,
  the first to ``base``), attempts (pairs of offset and count above 0);
- ``clean``: epoch. The owner ended with nothing leased; its snapshot is the whole truth.
"""

from __future__ import annotations

import hashlib
from bisect import bisect_left
from collections.abc import Iterable
from dataclasses import dataclass, field
from itertools import accumulate, pairwise
from typing import Any

import orjson

from broker_core.names import Group, Topic
from proxy.core.ids import Epoch

VERSION = 1
_MS = 1_000_000


def ownership_topic(group: Group, topic: Topic) -> Topic:
    """Name of the topic that holds the ownership records of (group, topic)."""
    digest = hashlib.sha1(f"{group}\0{topic}".encode(), usedforsecurity=False).hexdigest()
    return Topic(f"%OWN%{digest[:16]}")


@dataclass(frozen=True, slots=True)
class Own:
    """The start of an ownership period."""

    owner: str
    trust_ms: int
    longest_lease_ms: int
    broker_start_ms: int
    period: int


@dataclass(frozen=True, slots=True)
class Snapshot:
    """What an owner had finished: all below ``base``, and up to ``read`` all but ``unfinished``.

    Raises ValueError unless the unfinished offsets rise from ``base`` and end below ``read``.
    """

    epoch: Epoch
    base: int
    read: int
    unfinished: tuple[int, ...] = ()
    attempts: dict[int, int] = field(default_factory=dict)

    def __post_init__(self) -> None:
        bounds = (self.base - 1, *self.unfinished, self.read)
        if any(low >= high for low, high in pairwise(bounds)):
            raise ValueError(
                f"unfinished offsets of a snapshot must rise from {self.base} to below {self.read}"
            )

    def finished(self, offset: int) -> bool:
        """True if the owner had read that message and finished it. O(log n).

        Below ``base`` the stored offset alone decides: it may have been reset.
        """
        if not self.base <= offset < self.read:
            return False
        at = bisect_left(self.unfinished, offset)
        return at == len(self.unfinished) or self.unfinished[at] != offset


@dataclass(frozen=True, slots=True)
class Clean:
    """The end of an ownership period with no lease alive."""

    epoch: Epoch


Record = Own | Snapshot | Clean


@dataclass(frozen=True, slots=True)
class LastOwner:
    """What the records say of the newest ownership period.

    ``snapshot`` may be of the period before: what was finished then is finished still.
    """

    epoch: Epoch
    own: Own
    snapshot: Snapshot | None
    clean: bool

    def wait_ns(self, *, broker_start_ms: int, broker_lock_expiry_s: float) -> int:
        """How long the next owner waits before its first hand-out, so that old leases have ended.

        Nothing after a clean end. A restarted broker may have forgotten the lock, so the old owner
        may trust it still: trust plus its longest lease. Else its trust ended before the lock
        could expire, and only what a lease outlives that by is left.
        """
        if self.clean:
            return 0
        if broker_start_ms != self.own.broker_start_ms:
            return (self.own.trust_ms + self.own.longest_lease_ms) * _MS
        head_start_ms = broker_lock_expiry_s * 1000 - self.own.trust_ms
        return int(max(0.0, self.own.longest_lease_ms - head_start_ms) * _MS)


def encode(record: Record) -> bytes:
    """The record as the body of a message."""
    match record:
        case Own():
            fields: dict[str, Any] = {
                "kind": "own",
                "owner": record.owner,
                "trust_ms": record.trust_ms,
                "longest_lease_ms": record.longest_lease_ms,
                "broker_start_ms": record.broker_start_ms,
                "period": record.period,
            }
        case Snapshot():
            rising = (record.base, *record.unfinished)
            fields = {
                "kind": "snapshot",
                "epoch": record.epoch,
                "base": record.base,
                "read": record.read,
                "unfinished": [later - earlier for earlier, later in pairwise(rising)],
                "attempts": sorted(record.attempts.items()),
            }
        case Clean():
            fields = {"kind": "clean", "epoch": record.epoch}
    return orjson.dumps({"v": VERSION, **fields})


def decode(body: bytes) -> Record:
    """Undo ``encode``; raises ValueError, in one sentence, on anything that is no such record."""
    try:
        fields = orjson.loads(body)
        version, kind = fields["v"], fields["kind"]
        if version != VERSION:
            raise ValueError(f"its version is {version}, not {VERSION}")
        if kind == "own":
            numbers = ("trust_ms", "longest_lease_ms", "broker_start_ms", "period")
            return Own(str(fields["owner"]), *(int(fields[name]) for name in numbers))
        if kind == "snapshot":
            steps = (int(step) for step in fields["unfinished"])
            base = int(fields["base"])
            offsets = tuple(accumulate(steps, initial=base))[1:]
            attempts = {int(offset): int(count) for offset, count in fields["attempts"]}
            return Snapshot(
                Epoch(int(fields["epoch"])), base, int(fields["read"]), offsets, attempts
            )
        if kind == "clean":
            return Clean(Epoch(int(fields["epoch"])))
        raise ValueError(f"its kind is {kind}, not own, snapshot or clean")
    except (KeyError, TypeError, RecursionError) as error:
        raise ValueError(f"not an ownership record: {error!r}") from error
    except ValueError as error:
        raise ValueError(f"not an ownership record: {error}") from error


def replay(records: Iterable[tuple[int, Record]]) -> LastOwner | None:
    """The newest ownership period in *records* (pairs of queue offset and record, rising).

    Only the highest epoch counts; later records of a lower one are a late zombie's and ignored.
    A snapshot holds until the next one, over an owner too that crashed before it wrote any.
    None if there is no ``own`` record.
    """
    epoch: Epoch | None = None
    own: Own | None = None
    snapshot: Snapshot | None = None
    clean = False
    for offset, record in records:
        if isinstance(record, Own):
            epoch, own, clean = Epoch(offset), record, False
        elif record.epoch != epoch:
            continue
        elif isinstance(record, Snapshot):
            snapshot = record
        else:
            clean = True
    if own is None or epoch is None:
        return None
    return LastOwner(epoch, own, snapshot, clean)
