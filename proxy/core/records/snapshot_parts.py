"""A snapshot, cut into records that are no longer than a broker takes. Pure."""

from __future__ import annotations

from array import array
from collections.abc import Sequence
from dataclasses import dataclass, field, replace

import orjson

from proxy.core.records.codec import encode
from proxy.core.records.parked_key import ParkedKey
from proxy.core.records.paused_key import PausedKey
from proxy.core.records.record import Own, Snapshot, SnapshotPart

#: One record has at most so many bytes, whatever its broker takes.
PART_BYTES = 131_072
#: What the counts of a record of very many parts take beside those of one of one part.
_NUMBERS_BYTES = 24
#: Brackets, quotes and commas around what is listed of one key.
_AROUND_BYTES = 24


def parts(
    snapshot: Snapshot, own: Own | None = None, *, serial: int = 0, most: int = PART_BYTES
) -> list[SnapshotPart]:
    """The records of *snapshot*, in order; at least one. *own* began the period that it is of.

    Encoded, none has more than *most* bytes, nor PART_BYTES, but where what every record repeats
    (*own*, the order key) leaves no room for one key or offset: then each lists one.
    """
    cut = _Cut(snapshot, most=min(most, PART_BYTES) - _head_bytes(snapshot, own, serial))
    cut.offsets()
    cut.keys()
    return [
        SnapshotPart(number, len(cut.pieces), piece.of(snapshot), None if number else own, serial)
        for number, piece in enumerate(cut.pieces)
    ]


def _head_bytes(snapshot: Snapshot, own: Own | None, serial: int) -> int:
    return len(encode(SnapshotPart(0, 1, _Piece().of(snapshot), own, serial))) + _NUMBERS_BYTES


@dataclass(slots=True)
class _Piece:
    """What one record of a snapshot lists, while it is made."""

    unfinished: list[int] = field(default_factory=list)
    attempts: dict[int, int] = field(default_factory=dict)
    spilled: dict[bytes, array[int]] = field(default_factory=dict)
    leases: dict[int, int] = field(default_factory=dict)
    parked: dict[bytes, ParkedKey] = field(default_factory=dict)
    paused: dict[bytes | None, PausedKey] = field(default_factory=dict)

    def of(self, whole: Snapshot) -> Snapshot:
        """The piece of *whole* that it is."""
        return replace(
            whole,
            unfinished=tuple(self.unfinished),
            attempts=self.attempts,
            spilled=self.spilled,
            leases=self.leases,
            parked=self.parked,
            paused=self.paused,
        )


class _Cut:
    """Fills one piece after the other with all that *snapshot* lists."""

    def __init__(self, snapshot: Snapshot, *, most: int) -> None:
        """*most*: bytes of what a piece lists."""
        self.pieces = [_Piece()]
        self._of = snapshot
        self._most = self._room = most
        self._is_empty = True

    def offsets(self) -> None:
        """List offsets, and what belongs to them."""
        of = self._of
        digits = len(str(of.read))
        self._numbers("unfinished", of.unfinished, bytes_each=digits + 1)
        for name, counts in (("attempts", of.attempts), ("leases", of.leases)):
            longest = len(str(max(counts.values(), default=0)))
            # Of what is below the base, of a queue that was reset, offsets are no longer either.
            longest += len(str(max(counts, default=0)))
            self._numbers(name, sorted(counts), bytes_each=longest + 4)
        for key, chain in of.spilled.items():
            self._chain(key, chain)

    def keys(self) -> None:
        """List what people, or the policy, did with keys."""
        for key, parked in self._of.parked.items():
            why = orjson.dumps([parked.to_json(), parked.by, parked.reason])
            size = 2 * (_key_bytes(key) + _AROUND_BYTES) + len(why)
            self._take(size + _note_bytes(key, parked.note)).parked[key] = parked
        for name, paused in self._of.paused.items():
            size = _key_bytes(name or b"") + len(orjson.dumps(paused.to_json()))
            size += 2 * _AROUND_BYTES + _note_bytes(name or b"", paused.note)
            self._take(size).paused[name] = paused

    def _numbers(self, name: str, offsets: Sequence[int], *, bytes_each: int) -> None:
        at = 0
        while at < len(offsets):
            piece = self._with_room(bytes_each)
            some = offsets[at : at + max(1, self._room // bytes_each)]
            self._took(len(some) * bytes_each)
            at += len(some)
            if name == "unfinished":
                piece.unfinished += some
            elif name == "attempts":
                piece.attempts.update((offset, self._of.attempts[offset]) for offset in some)
            else:
                piece.leases.update((offset, self._of.leases[offset]) for offset in some)

    def _chain(self, key: bytes, chain: array[int]) -> None:
        # Differences are packed in 1, 2, 4 or 8 bytes, and 3 bytes are 4 of base64.
        width = next(width for width in (1, 2, 4, 8) if chain[-1] >> 8 * width == 0)
        beside, at = _key_bytes(key) + _AROUND_BYTES, 0
        while at < len(chain):
            piece = self._with_room(beside + 2 * width)
            some = chain[at : at + max(1, (self._room - beside) * 3 // (4 * width))]
            self._took(beside + len(some) * width * 4 // 3 + 1)
            at += len(some)
            piece.spilled[key] = some

    def _take(self, size: int) -> _Piece:
        piece = self._with_room(size)
        self._took(size)
        return piece

    def _with_room(self, size: int) -> _Piece:
        """The last piece, or a new one if that has less than *size* bytes left."""
        if size > self._room and not self._is_empty:
            self.pieces.append(_Piece())
            self._room, self._is_empty = self._most, True
        return self.pieces[-1]

    def _took(self, size: int) -> None:
        self._room -= size
        self._is_empty = False


def _note_bytes(key: bytes, note: str) -> int:
    return _key_bytes(key) + len(orjson.dumps(note)) + 2 * _AROUND_BYTES if note else 0


def _key_bytes(key: bytes) -> int:
    """Of *key* in base64."""
    return (len(key) + 2) // 3 * 4
