"""Splitting of a snapshot into records that the broker accepts. Pure."""

from __future__ import annotations

from array import array
from collections.abc import Sequence
from dataclasses import dataclass, field, replace

import orjson

from proxy.core.records.codec import encode
from proxy.core.records.parked_key import ParkedKey
from proxy.core.records.paused_key import PausedKey
from proxy.core.records.record import Own, Snapshot, SnapshotPart

#: Size limit of one record, even if the broker accepts longer ones.
PART_BYTES = 131_072
#: Extra bytes for the part numbers of a snapshot with very many parts.
_NUMBERS_BYTES = 24
#: Bytes of brackets, quotes and commas around the entry of one key.
_AROUND_BYTES = 24


def parts(
    snapshot: Snapshot, own: Own | None = None, *, serial: int = 0, most: int = PART_BYTES
) -> list[SnapshotPart]:
    """Return the records of *snapshot*, in order; at least one. *own* began its period.

    Encoded, no record exceeds *most* or PART_BYTES bytes, unless the fields repeated in every
    record (*own*, the order key) leave no room for one key or offset: then each record lists one.
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
    """Content of one record of a snapshot, while it is assembled."""

    unfinished: list[int] = field(default_factory=list)
    attempts: dict[int, int] = field(default_factory=dict)
    spilled: dict[bytes, array[int]] = field(default_factory=dict)
    leases: dict[int, int] = field(default_factory=dict)
    parked: dict[bytes, ParkedKey] = field(default_factory=dict)
    paused: dict[bytes | None, PausedKey] = field(default_factory=dict)

    def of(self, whole: Snapshot) -> Snapshot:
        """Return the corresponding piece of *whole*."""
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
    """Distributes the content of *snapshot* over pieces."""

    def __init__(self, snapshot: Snapshot, *, most: int) -> None:
        """Limit each piece to *most* bytes of content."""
        self.pieces = [_Piece()]
        self._of = snapshot
        self._most = self._room = most
        self._is_empty = True

    def offsets(self) -> None:
        """Add offsets with their attempts, leases and chains."""
        of = self._of
        digits = len(str(of.read))
        self._numbers("unfinished", of.unfinished, bytes_each=digits + 1)
        for name, counts in (("attempts", of.attempts), ("leases", of.leases)):
            longest = len(str(max(counts.values(), default=0)))
            # After a reset, offsets of entries below the base are no longer either.
            longest += len(str(max(counts, default=0)))
            self._numbers(name, sorted(counts), bytes_each=longest + 4)
        for key, chain in of.spilled.items():
            self._chain(key, chain)

    def keys(self) -> None:
        """Add parked and paused keys."""
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
        # Differences are packed in 1, 2, 4 or 8 bytes, and 3 bytes take 4 characters of base64.
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
        """Return the last piece, or a new one if it has less than *size* bytes left."""
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
    """Return the size of *key* in base64."""
    return (len(key) + 2) // 3 * 4
