"""Records of the ownership topic: the owner of a queue, and its finished messages. Pure.

Each (group, topic) has a topic ``%OWN%`` + 16 hex digits on the same broker with the same queue
ids; the records of a queue are the messages of its twin queue. **The epoch is the queue offset of
the ``own`` record**: unique and rising, even in a race. ``codec`` encodes the records.
"""

from __future__ import annotations

import hashlib
from array import array
from bisect import bisect_left
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import chain, pairwise
from types import MappingProxyType
from typing import Any, NamedTuple

from broker_core.names import Group, Topic
from proxy.core.keys.ids import Epoch
from proxy.core.keys.key_rules import KeyRecord
from proxy.core.records.parked_key import ParkedKey, cut_parked
from proxy.core.records.paused_key import PausedKey

_NONE: Mapping[Any, Any] = MappingProxyType({})


def ownership_topic(group: Group, topic: Topic) -> Topic:
    """Return the name of the topic that holds the ownership records of (group, topic)."""
    digest = hashlib.sha1(f"{group}\0{topic}".encode(), usedforsecurity=False).hexdigest()
    return Topic(f"%OWN%{digest[:16]}")


@dataclass(frozen=True, slots=True)
class Own:
    """Start of an ownership period."""

    owner: str
    trust_ms: int
    longest_lease_ms: int
    #: Since when the broker had forgotten no lock, ms since 1970; its start if it forgets them.
    broker_start_ms: int
    period: int
    #: Address of the owner's HTTP port, as host:port; empty if unknown.
    http: str = ""
    #: True if an operator assigned the queue to this owner, independent of shares.
    by_name: bool = False
    #: Milliseconds after this record for which leases of earlier periods may live; 0 in a snapshot
    #: that was written after their end.
    hold_ms: int = 0
    #: The incarnation of the topic (``BrokerClient.life``); None if the broker has none.
    life: int | None = None
    #: Where the period begins if no record defines the finished messages; None if not recorded.
    start: int | None = None
    #: In the records of a parked twin: the incarnation of its queue's topic, of whose messages the
    #: copies are; None if not recorded.
    origin_life: int | None = None
    #: There, too: the incarnation of the topic with its queue's records, of which ``period`` is an
    #: offset; None if not recorded.
    period_life: int | None = None

    def began_before(self, other: Own) -> bool:
        """In the records of a parked twin: return whether the period of its queue began before that
        of *other*. If the records of the queue are deleted, epochs start over in another life.
        """
        life, others = self.period_life, other.period_life
        if life is None or others is None or life == others:
            return self.period < other.period
        return life < others


class Anchor(NamedTuple):
    """A message that was read: its offset in the queue and its place in the broker's log."""

    offset: int
    log_offset: int


def if_above(base: int, offset: int | None) -> int | None:
    """Return *offset* if it is above *base*."""
    return offset if offset is not None and offset > base else None


@dataclass(frozen=True, slots=True)
class Snapshot:
    """State of a queue: all messages below ``base`` are finished, and those up to ``read`` except
    ``unfinished`` and ``spilled`` ones (by order key; no offset is in both).

    ``leases``: milliseconds, from the time of writing, for which clients may still hold unfinished
    jobs. ``longest_lease_ms``: longest lease, if longer than in the ``own``. ``keys``: None if not
    recorded. ``anchor``: the last message that was read, if the broker does not report lives of
    topics. ``moved_from``: the group was moved back from there, so a committed offset up to it may
    be from before: a broker that crashed, or its next master, may not have the commit of the move.

    Raise ValueError unless the offsets rise from ``base`` and end below ``read``.
    """

    epoch: Epoch
    base: int
    read: int
    unfinished: tuple[int, ...] = ()
    attempts: dict[int, int] = field(default_factory=dict)
    spilled: dict[bytes, array[int]] = field(default_factory=dict)
    leases: dict[int, int] = field(default_factory=dict)
    parked: dict[bytes, ParkedKey] = field(default_factory=dict)
    longest_lease_ms: int = 0
    paused: dict[bytes | None, PausedKey] = field(default_factory=dict)
    keys: KeyRecord | None = None
    anchor: Anchor | None = None
    moved_from: int | None = None

    def __post_init__(self) -> None:
        if not all(self.spilled.values()):
            raise ValueError("a spilled chain has no offsets")
        for offsets in (self.unfinished, *self.spilled.values()):
            bounds = chain((self.base - 1,), offsets, (self.read,))
            if any(low >= high for low, high in pairwise(bounds)):
                raise ValueError(
                    f"offsets of a snapshot must rise from {self.base} to below {self.read}"
                )

    @property
    def size(self) -> int:
        """Number of offsets and keys listed."""
        lists = (self.unfinished, self.attempts, self.leases, self.parked, self.paused)
        return sum(map(len, (*lists, *self.spilled.values())))

    def moved_to(self, offset: int, *, epoch: Epoch | None = None) -> Snapshot:
        """Return the state of a queue read up to *offset* without unfinished messages.

        Parked and paused keys stay, and so does a change of the order key while older messages may
        be parked. *epoch*: of another period. Leases are not listed, because other messages of
        their keys may precede theirs: the next owner waits for them before any delivery.
        """
        keys = self.keys
        if keys is not None and not self.parked:
            keys = keys.reset_to(offset)
        return replace(
            self,
            epoch=self.epoch if epoch is None else epoch,
            base=offset,
            read=offset,
            unfinished=(),
            attempts={},
            spilled={},
            leases={},
            longest_lease_ms=self._longest_ms,
            keys=keys,
            anchor=None,
            moved_from=if_above(offset, max(self.read, self.moved_from or 0)),
        )

    @property
    def _longest_ms(self) -> int:
        """``longest_lease_ms``, or the longest listed lease if that is longer."""
        return max((self.longest_lease_ms, *self.leases.values()))

    def cut_at(self, end: int) -> Snapshot:
        """Return the state of a queue that lost its messages from offset *end* on; leases are not
        listed. Parked keys stay, unless the queue is empty: then it is a new one with the same
        name. New messages reuse the offsets from *end* on, and are not repeats of copies.
        """
        parked = cut_parked(self.parked, end) if end else {}
        if end <= self.base:
            return replace(self, parked=parked).moved_to(end)
        spilled = {
            key: chain[: bisect_left(chain, end)]
            for key, chain in self.spilled.items()
            if chain[0] < end
        }
        return replace(
            self,
            read=min(self.read, end),
            unfinished=tuple(offset for offset in self.unfinished if offset < end),
            attempts={offset: count for offset, count in self.attempts.items() if offset < end},
            spilled=spilled,
            leases={},
            parked=parked,
            longest_lease_ms=self._longest_ms,
            anchor=None,
        )

    def begins_at(self, committed: int) -> int:
        """Return where the next owner begins. *committed*: the offset that the broker has."""
        is_stale = self.moved_from is not None and committed <= self.moved_from
        return self.base if is_stale else max(self.base, committed)

    def unread(self, offset: int) -> bool:
        """Return True if the next owner must read that message. O(log n).

        False if the owner had finished it, or if it is spilled. Below ``base`` only the stored
        offset decides: it may have been reset.
        """
        return self.next_unread(offset) == offset

    def next_unread(self, offset: int) -> int:
        """Return the first offset from *offset* on that the next owner must read. O(log n)."""
        if not self.base <= offset < self.read:
            return offset
        at = bisect_left(self.unfinished, offset)
        return self.unfinished[at] if at < len(self.unfinished) else self.read

    def unread_within(self, begin: int, end: int) -> int:
        """Return how many messages from *begin* to *end* the next owner must read. O(log n)."""
        listed = bisect_left(self.unfinished, min(end, self.read))
        listed -= bisect_left(self.unfinished, max(begin, self.base))
        below, above = min(end, self.base) - begin, end - max(begin, self.read)
        return max(0, below) + max(0, listed) + max(0, above)


@dataclass(frozen=True, slots=True)
class SnapshotPart:
    """One record of a snapshot: part *number* (from 0) of *of*."""

    number: int
    of: int
    piece: Snapshot
    #: In the first part: the record that began the period, because retention may delete that.
    own: Own | None = None
    #: Rises with each snapshot of a period, to detect late ones; 0: not recorded.
    serial: int = 0

    @property
    def epoch(self) -> Epoch:
        """Epoch of the period in which it was written."""
        return self.piece.epoch


class Delta(NamedTuple):
    """Changes since the previous record; ``codec`` documents each field.

    ``heads``: None for a key whose spilled jobs are all finished. ``after``: None if not recorded.
    ``keys``: None if unchanged. ``hold_over``: the leases of earlier periods have ended. A named
    tuple, because a take-over reads many.
    """

    epoch: Epoch
    snapshot: int
    base: int
    read: int
    left: tuple[int, ...] = ()
    unfinished: tuple[int, ...] = ()
    attempts: Mapping[int, int] = _NONE
    spilled: Mapping[bytes, array[int]] = _NONE
    heads: Mapping[bytes, int | None] = _NONE
    parked: Mapping[bytes, ParkedKey | None] = _NONE
    after: int | None = None
    longest_lease_ms: int = 0
    paused: Mapping[bytes | None, PausedKey | None] = _NONE
    keys: KeyRecord | None = None
    anchor: Anchor | None = None
    hold_over: bool = False

    @property
    def size(self) -> int:
        """Number of offsets and other changes listed."""
        lists = (self.left, self.unfinished, self.attempts, self.heads, self.parked, self.paused)
        return sum(map(len, (*lists, *self.spilled.values()))) + (self.keys is not None)


@dataclass(frozen=True, slots=True)
class Clean:
    """End of an ownership period without live leases. ``to``: the member to which an operator
    assigned the queue, empty if shares decide.
    """

    epoch: Epoch
    to: str = ""


@dataclass(frozen=True, slots=True)
class Unreadable:
    """Placeholder for a record that cannot be read, or no longer exists."""

    why: str


Record = Own | SnapshotPart | Delta | Clean

#: The ``serial`` of the last snapshot of a period: no other one follows it.
LAST_SERIAL = 2**63 - 1


def joined(parts: Sequence[SnapshotPart]) -> Snapshot:
    """Undo ``snapshot_parts.parts``. Raise ValueError unless the parts form a snapshot."""
    spilled: dict[bytes, array[int]] = {}
    for part in parts:
        for key, offsets in part.piece.spilled.items():
            spilled.setdefault(key, array("q")).extend(offsets)
    return replace(
        parts[-1].piece,
        unfinished=tuple(chain.from_iterable(part.piece.unfinished for part in parts)),
        attempts=dict(chain.from_iterable(part.piece.attempts.items() for part in parts)),
        spilled=spilled,
        leases=dict(chain.from_iterable(part.piece.leases.items() for part in parts)),
        parked=dict(chain.from_iterable(part.piece.parked.items() for part in parts)),
        paused=dict(chain.from_iterable(part.piece.paused.items() for part in parts)),
    )
