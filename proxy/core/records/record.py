"""Records of the ownership topic: who owned a queue, and what is finished in it. Pure.

Each (group, topic) has a topic ``%OWN%`` + 16 hex digits on the same broker with the same queue
ids; the records of a queue are the messages of its twin queue. **The epoch is the queue offset of
the ``own`` record**: unique and rising, whoever races. ``ownership_codec`` has them as bytes.
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
    #: Where the owner's HTTP port can be asked, as host:port; empty if nobody knows.
    http: str = ""
    #: People gave the queue to this owner by name: shares do not say so.
    by_name: bool = False
    #: Milliseconds after this was written for which leases of earlier periods may be alive.
    hold_ms: int = 0
    #: The incarnation of the topic (``BrokerClient.life``); None if the broker tells none apart.
    life: int | None = None
    #: Where the period begins if no record says what is finished; None if its writer did not say.
    start: int | None = None


class Anchor(NamedTuple):
    """A message that was read: its offset in the queue, and its place in the log of the broker."""

    offset: int
    log_offset: int


@dataclass(frozen=True, slots=True)
class Snapshot:
    """What an owner had finished: all below ``base``, and up to ``read`` all but ``unfinished`` and
    ``spilled`` (by order key; no offset is in both). ``leases``: milliseconds, counted from when it
    was written, for which unfinished jobs may still be in the hands of clients.
    ``longest_lease_ms``: how long a lease may be, if that is longer than the ``own`` says.
    ``keys``: None if its writer did not say. ``anchor``: the last message that was read, where the
    broker does not tell lives of topics apart.

    Raises ValueError unless these offsets rise from ``base`` and end below ``read``.
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

    def __post_init__(self) -> None:
        if not all(self.spilled.values()):
            raise ValueError("a spilled chain without offsets")
        for offsets in (self.unfinished, *self.spilled.values()):
            bounds = chain((self.base - 1,), offsets, (self.read,))
            if any(low >= high for low, high in pairwise(bounds)):
                raise ValueError(
                    f"offsets of a snapshot must rise from {self.base} to below {self.read}"
                )

    @property
    def size(self) -> int:
        """How many offsets it lists."""
        lists = (self.unfinished, self.attempts, self.leases, self.parked, self.paused)
        return sum(map(len, (*lists, *self.spilled.values())))

    def moved_to(self, offset: int, *, epoch: Epoch | None = None) -> Snapshot:
        """Of a queue where nothing is unfinished, read up to *offset*; parked and paused keys stay
        what they are, and a change of the order key goes on while older messages may be parked.
        *epoch*: in another period. Leases are not listed: other messages of their keys may come
        before theirs, so whoever is next waits for them with all.
        """
        keys = self.keys
        if keys is not None and not self.parked:
            keys = keys.begun_anew(offset)
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
        )

    @property
    def _longest_ms(self) -> int:
        """``longest_lease_ms``, or for how long listed leases may live, if that is more."""
        return max((self.longest_lease_ms, *self.leases.values()))

    def cut_at(self, end: int) -> Snapshot:
        """Of a queue whose messages from offset *end* on are gone; leases are not listed. Parked
        keys stay so, unless nothing is left of the queue: then it is another one of that name. New
        messages get offsets from *end* on once more: these are no repeats of what was copied.
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

    def unread(self, offset: int) -> bool:
        """True if that message has to be read by the next owner. O(log n).

        Not if the owner had finished it, nor if it belongs to a spilled chain. Below ``base`` the
        stored offset alone decides: it may have been reset.
        """
        return self.next_unread(offset) == offset

    def next_unread(self, offset: int) -> int:
        """The first offset from there on that the next owner has to read. O(log n)."""
        if not self.base <= offset < self.read:
            return offset
        at = bisect_left(self.unfinished, offset)
        return self.unfinished[at] if at < len(self.unfinished) else self.read

    def unread_within(self, begin: int, end: int) -> int:
        """How many of the messages from *begin* to *end* the next owner has to read. O(log n)."""
        listed = bisect_left(self.unfinished, min(end, self.read))
        listed -= bisect_left(self.unfinished, max(begin, self.base))
        below, above = min(end, self.base) - begin, end - max(begin, self.read)
        return max(0, below) + max(0, listed) + max(0, above)


@dataclass(frozen=True, slots=True)
class SnapshotPart:
    """One record of a snapshot: what it lists, as part *number* (from 0) of *of*."""

    number: int
    of: int
    piece: Snapshot
    #: In the first part: the record that began the period, which retention may have deleted.
    own: Own | None = None
    #: Rises with each snapshot of a period, so one that came late is told; 0: nobody said.
    serial: int = 0

    @property
    def epoch(self) -> Epoch:
        """The ownership period that it was written in."""
        return self.piece.epoch


class Delta(NamedTuple):
    """What changed since the record before: ``ownership_codec`` says it of each field.

    ``heads``: None for a key whose spilled jobs are all finished. ``after``: None if its writer did
    not say. ``keys``: None if they did not change. A named tuple, because a take-over
    reads many.
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

    @property
    def size(self) -> int:
        """How many offsets and other changes it lists."""
        lists = (self.left, self.unfinished, self.attempts, self.heads, self.parked, self.paused)
        return sum(map(len, (*lists, *self.spilled.values()))) + (self.keys is not None)


@dataclass(frozen=True, slots=True)
class Clean:
    """The end of an ownership period with no lease alive. ``to``: the member of the group that the
    queue is given to by name, empty if shares say whose it is.
    """

    epoch: Epoch
    to: str = ""


@dataclass(frozen=True, slots=True)
class Unreadable:
    """What stands in place of a record that nobody can read, or that is not there any more."""

    why: str


Record = Own | SnapshotPart | Delta | Clean

#: The ``serial`` of a snapshot that ends its period: nothing of that is written behind it.
LAST_SERIAL = 2**63 - 1


def joined(parts: Sequence[SnapshotPart]) -> Snapshot:
    """Undo ``snapshot_parts.parts``. Raises ValueError unless they add up to a snapshot."""
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
