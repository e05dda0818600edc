"""Records of the ownership topic: who owned a queue, and what is finished in it. Pure.

Each (group, topic) has a topic ``%OWN%`` + 16 hex digits on the same broker with the same queue
ids; the records of a queue are the messages of its twin queue. **The epoch is the queue offset of
the ``own`` record**: unique and rising, whoever races. A record is one JSON object with ``v`` (1)
and ``kind``:

- ``own``: owner, trust_ms, longest_lease_ms, broker_start_ms, period (count of ownership periods);
- ``snapshot``: epoch, part (counted from 0), of (how many parts it has), base, read (the read
  position), unfinished, attempts (pairs of offset and count), leases (pairs of offset and
  milliseconds: those that outlive a hand-over), spilled (pairs of order key in base64 and offsets),
  parked (pairs of order key and [first, epoch, redriven, rate]: see ``ParkedKey``). The parts of a
  snapshot follow each other; what they list adds up;
- ``delta``: epoch, snapshot (offset of the first record of the snapshot that it and the deltas
  before it build on), base, read, left (offsets that were unfinished, and are finished or spilled
  now), unfinished (those that were added), attempts (those that changed), spilled (offsets that
  were added), heads (pairs of order key and the first offset that is left of its spilled chain,
  null if none is), parked (those that changed, null if the key is not parked any more);
- ``clean``: epoch. The owner ended with nothing leased but what its snapshot names, which is the
  whole truth.

Unfinished offsets are written as differences, the first to ``base``. Spilled ones are as many as a
stuck key has messages, so they are packed: ``width:base64``, with differences (the first to 0) of
*width* bytes each, little endian.
"""

from __future__ import annotations

import hashlib
import operator
import sys
from array import array
from base64 import b64decode, b64encode
from bisect import bisect_left
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from itertools import accumulate, chain, pairwise
from typing import Any

import orjson

from broker_core.names import Group, Topic
from proxy.core.ids import Epoch
from proxy.core.parked_key import ParkedKey

VERSION = 1
#: Offsets and attempts that one record lists at most: at eight bytes each, far below the smallest
#: message that a broker may be told to refuse.
_PART = 16_384
_CHUNK = 2048
_OFFSET_BYTES = 8
_TYPES = {1: "B", 2: "H", 4: "I", 8: "Q"}  # of an array, by width


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
    """What an owner had finished: all below ``base``, and up to ``read`` all but ``unfinished`` and
    ``spilled`` (by order key; no offset is in both). ``leases``: milliseconds, counted from when it
    was written, for which unfinished jobs may still be in the hands of clients.

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
        lists = (self.unfinished, self.attempts, self.leases, self.parked, *self.spilled.values())
        return sum(map(len, lists))

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


@dataclass(frozen=True, slots=True)
class SnapshotPart:
    """One record of a snapshot: what it lists, as part *number* (from 0) of *of*."""

    number: int
    of: int
    piece: Snapshot

    @property
    def epoch(self) -> Epoch:
        """The ownership period that it was written in."""
        return self.piece.epoch


@dataclass(frozen=True, slots=True)
class Delta:
    """What changed since the record before: see the top of this file.

    ``heads``: None for a key whose spilled jobs are all finished.
    """

    epoch: Epoch
    snapshot: int
    base: int
    read: int
    left: tuple[int, ...] = ()
    unfinished: tuple[int, ...] = ()
    attempts: Mapping[int, int] = field(default_factory=dict)
    spilled: Mapping[bytes, array[int]] = field(default_factory=dict)
    heads: Mapping[bytes, int | None] = field(default_factory=dict)
    parked: Mapping[bytes, ParkedKey | None] = field(default_factory=dict)

    @property
    def size(self) -> int:
        """How many offsets it lists."""
        lists = (self.left, self.unfinished, self.attempts, self.heads, self.parked)
        return sum(map(len, (*lists, *self.spilled.values())))


@dataclass(frozen=True, slots=True)
class Clean:
    """The end of an ownership period with no lease alive."""

    epoch: Epoch


Record = Own | SnapshotPart | Delta | Clean


def parts(snapshot: Snapshot) -> list[SnapshotPart]:
    """The records of *snapshot*, in order; at least one."""
    pieces: list[Snapshot] = []
    room = 0
    for place, some in _chunks(snapshot):
        size = len(some) + (len(place) // _OFFSET_BYTES if isinstance(place, bytes) else 0)
        if not pieces or room < size:
            pieces.append(Snapshot(snapshot.epoch, snapshot.base, snapshot.read))
            room = _PART
        room -= size
        last = pieces[-1]
        if isinstance(place, bytes):
            spilled = {**last.spilled, place: last.spilled.get(place, array("q")) + some}
            pieces[-1] = replace(last, spilled=spilled)
        elif place == "attempts":
            counts = {offset: snapshot.attempts[offset] for offset in some}
            pieces[-1] = replace(last, attempts={**last.attempts, **counts})
        elif place == "leases":
            times = {offset: snapshot.leases[offset] for offset in some}
            pieces[-1] = replace(last, leases={**last.leases, **times})
        else:
            pieces[-1] = replace(last, unfinished=(*last.unfinished, *some))
    for key, parked in snapshot.parked.items():
        size = 1 + len(key) // _OFFSET_BYTES
        if room < size:
            pieces.append(Snapshot(snapshot.epoch, snapshot.base, snapshot.read))
            room = _PART
        room -= size
        pieces[-1].parked[key] = parked
    return [SnapshotPart(number, len(pieces), piece) for number, piece in enumerate(pieces)]


def _chunks(snapshot: Snapshot) -> Iterator[tuple[str | bytes, array[int]]]:
    """All that it lists, a few thousand offsets at a time, and where they belong."""
    yield "unfinished", array("q")
    lists: list[tuple[str | bytes, Sequence[int]]] = [
        ("unfinished", snapshot.unfinished),
        ("attempts", sorted(snapshot.attempts)),
        ("leases", sorted(snapshot.leases)),
        *snapshot.spilled.items(),
    ]
    for place, offsets in lists:
        for at in range(0, len(offsets), _CHUNK):
            yield place, array("q", offsets[at : at + _CHUNK])


def joined(parts: Sequence[SnapshotPart]) -> Snapshot:
    """Undo ``parts``. Raises ValueError unless they add up to a snapshot."""
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
    )


# ---- as bytes -----------------------------------------------------------------------------------


def encode(record: Record) -> bytes:
    """The record as the body of a message."""
    match record:
        case Own():
            fields: dict[str, Any] = {"kind": "own", **asdict(record)}
        case SnapshotPart():
            piece = record.piece
            fields = {
                "kind": "snapshot",
                "epoch": piece.epoch,
                "part": record.number,
                "of": record.of,
                "base": piece.base,
                "read": piece.read,
                "unfinished": _steps(piece.base, piece.unfinished),
                "attempts": sorted(piece.attempts.items()),
                "leases": sorted(piece.leases.items()),
                "spilled": _packed_by_key(piece.spilled),
                "parked": _parked_to_json(piece.parked),
            }
        case Delta():
            fields = {
                "kind": "delta",
                "epoch": record.epoch,
                "snapshot": record.snapshot,
                "base": record.base,
                "read": record.read,
                "left": _steps(0, record.left),
                "unfinished": _steps(record.base, record.unfinished),
                "attempts": sorted(record.attempts.items()),
                "spilled": _packed_by_key(record.spilled),
                "heads": [[_text(key), head] for key, head in record.heads.items()],
                "parked": _parked_to_json(record.parked),
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
            return _snapshot_part(fields)
        if kind == "delta":
            return _delta(fields)
        if kind == "clean":
            return Clean(Epoch(int(fields["epoch"])))
        raise ValueError(f"its kind is {kind}, not own, snapshot, delta or clean")
    except (KeyError, TypeError, AttributeError, OverflowError, RecursionError) as error:
        raise ValueError(f"not an ownership record: {error!r}") from error
    except ValueError as error:
        raise ValueError(f"not an ownership record: {error}") from error


def _snapshot_part(fields: dict[str, Any]) -> SnapshotPart:
    base = int(fields["base"])
    piece = Snapshot(
        Epoch(int(fields["epoch"])),
        base,
        int(fields["read"]),
        _offsets(base, fields["unfinished"]),
        _counts(fields["attempts"]),
        _unpacked_by_key(fields["spilled"]),
        _counts(fields["leases"]),
        {_bytes(key): ParkedKey.from_json(each) for key, each in fields.get("parked", ())},
    )
    number, of = int(fields["part"]), int(fields["of"])
    if not 0 <= number < of:
        raise ValueError(f"it is part {number} of {of}")
    return SnapshotPart(number, of, piece)


def _delta(fields: dict[str, Any]) -> Delta:
    base = int(fields["base"])
    return Delta(
        Epoch(int(fields["epoch"])),
        int(fields["snapshot"]),
        base,
        int(fields["read"]),
        left=_offsets(0, fields["left"]),
        unfinished=_offsets(base, fields["unfinished"]),
        attempts=_counts(fields["attempts"]),
        spilled=_unpacked_by_key(fields["spilled"]),
        heads={_bytes(key): None if head is None else int(head) for key, head in fields["heads"]},
        parked={
            _bytes(key): None if each is None else ParkedKey.from_json(each)
            for key, each in fields.get("parked", ())
        },
    )


def _parked_to_json(parked: Mapping[bytes, ParkedKey | None]) -> list[list[Any]]:
    return [[_text(key), None if each is None else each.to_json()] for key, each in parked.items()]


def _steps(first: int, offsets: Iterable[int]) -> list[int]:
    return [later - earlier for earlier, later in pairwise((first, *offsets))]


def _offsets(first: int, steps: Iterable[Any]) -> tuple[int, ...]:
    return tuple(accumulate((int(step) for step in steps), initial=first))[1:]


def _counts(pairs: Iterable[tuple[Any, Any]]) -> dict[int, int]:
    return {int(offset): int(count) for offset, count in pairs}


def _text(key: bytes) -> str:
    return b64encode(key).decode()


def _bytes(text: str) -> bytes:
    return b64decode(text, validate=True)


def _packed_by_key(spilled: Mapping[bytes, array[int]]) -> list[list[str]]:
    return [[_text(key), _pack(offsets)] for key, offsets in spilled.items()]


def _unpacked_by_key(pairs: Iterable[tuple[str, str]]) -> dict[bytes, array[int]]:
    return {_bytes(key): _unpack(text) for key, text in pairs}


def _pack(offsets: array[int]) -> str:
    """Rising *offsets*, none negative."""
    steps = array("Q", map(operator.sub, offsets, chain((0,), offsets)))
    longest = max(steps, default=0)
    width = next(width for width in _TYPES if longest >> 8 * width == 0)
    return f"{width}:{_text(_little_endian(array(_TYPES[width], steps)).tobytes())}"


def _unpack(text: str) -> array[int]:
    width, _, packed = text.partition(":")
    if int(width) not in _TYPES:
        raise ValueError(f"offsets are not packed in {width!r} bytes")
    steps = array(_TYPES[int(width)], _bytes(packed))
    return array("q", accumulate(_little_endian(steps)))


def _little_endian(numbers: array[int]) -> array[int]:
    if sys.byteorder == "big":
        numbers.byteswap()
    return numbers
