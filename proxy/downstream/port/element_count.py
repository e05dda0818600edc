"""Counts the elements of an encoded Thrift struct without creating objects for them. Pure.

A byte on the wire may become an object of a hundred bytes, so a request is counted before it is
decoded. Every byte that the decoder would read is visited, unknown fields included; runs of numbers
are passed over as a whole. Source: the Thrift compact and binary protocols.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass

from proxy.errors import OrderlaneError

#: Structs in lists, sets and maps of one request. All verdicts of a request may be structs.
MAX_STRUCTS = 100_000
#: Fields and other values of one request; values in maps and texts in lists count twice, since they
#: cost more. A struct of the verdicts has six at most.
MAX_VALUES = 600_000
_HASHED_OR_TEXT = 2

#: Fields of one struct, repeated and unknown ones included; the contract's largest has fifteen.
MAX_FIELDS = 256

_TOO_MANY_FIELDS = f"a struct has more than {MAX_FIELDS} fields"
#: Nesting beyond which bytes are invalid; the decoder's own limit is lower.
_MAX_DEPTH = 70
_INT32 = struct.Struct(">i")
#: Bytes that continue a varint.
_CONTINUED = bytes(range(0x80, 0x100))
_WINDOW = 4096

_COMPACT_VARINTS = frozenset({4, 5, 6})
_COMPACT_TEXT, _COMPACT_LISTS, _COMPACT_MAP, _COMPACT_STRUCT = 8, frozenset({9, 10}), 11, 12
#: Bytes of the compact types with a fixed size, in containers: booleans, byte, double, UUID.
_COMPACT_FIXED = {1: 1, 2: 1, 3: 1, 7: 8, 13: 16}
_TEXT, _STRUCT, _MAP, _LISTS = 11, 12, 13, frozenset({14, 15})
#: Bytes of the binary types with a fixed size: bool, byte, double, i16, i32, i64, UUID.
_FIXED = {2: 1, 3: 1, 4: 8, 6: 2, 8: 4, 10: 8, 16: 16}


class TooManyElements(OrderlaneError):
    """A request has more elements than its budget."""


class Uncountable(ValueError):
    """Bytes that are no Thrift struct."""


@dataclass(slots=True)
class Budget:
    """Elements that a request may still have: structs in its containers; fields and other values.

    Both are spent where a container announces its size, before its entries are visited.
    """

    structs: int = MAX_STRUCTS
    values: int = MAX_VALUES

    def spend_structs(self, count: int) -> None:
        """Count structs in a container. Raises TooManyElements."""
        self.structs -= count
        if self.structs < 0:
            raise TooManyElements(
                f"the request has too many entries: the limit is {MAX_STRUCTS} structs in its lists"
            )

    def spend_values(self, count: int) -> None:
        """Count fields and other values. Raises TooManyElements."""
        self.values -= count
        if self.values < 0:
            raise TooManyElements(
                f"the request has too many values: the limit is {MAX_VALUES} fields, numbers and"
                " texts"
            )


class _Walk:
    """Walks over one frame. Methods return the position after the element at *at*."""

    __slots__ = ("_budget", "_depth", "_frame", "_max_container")

    def __init__(self, frame: bytes, budget: Budget, max_container: int) -> None:
        self._frame = frame
        self._budget = budget
        self._max_container = max_container
        self._depth = 0

    def struct(self, at: int) -> int:
        raise NotImplementedError

    def value(self, kind: int, at: int) -> int:
        raise NotImplementedError

    def entries(self, kind: int, count: int, at: int) -> int:
        raise NotImplementedError

    def _enter(self) -> None:
        self._depth += 1
        if self._depth > _MAX_DEPTH:
            raise Uncountable("it is nested too deeply")

    def _check_size(self, count: int) -> None:
        if not 0 <= count <= self._max_container:
            raise Uncountable(
                f"a list or map of {count} entries: the limit is {self._max_container}"
            )

    def _fixed(self, count: int, at: int) -> int:
        """Pass over *count* bytes that have to be there."""
        end = at + count
        if count < 0 or end > len(self._frame):
            raise Uncountable("it is cut short")
        return end

    def _spend_fields(self, count: int) -> None:
        """Count the fields of a struct that was left."""
        self._depth -= 1
        budget = self._budget
        budget.values -= count
        if budget.values < 0:
            budget.spend_values(0)

    def _spend_entries(self, count: int, *, are_structs: bool) -> None:
        if are_structs:
            self._budget.spend_structs(count)
        else:
            self._budget.spend_values(count)


class _CompactWalk(_Walk):
    """The compact protocol."""

    __slots__ = ()

    def struct(self, at: int) -> int:
        self._enter()
        frame = self._frame
        fields = 0
        while kind := (head := frame[at]) & 15:
            at += 1
            fields += 1
            if fields > MAX_FIELDS:
                raise Uncountable(_TOO_MANY_FIELDS)
            if head < 16:  # the field's number follows
                while frame[at] > 127:
                    at += 1
                at += 1
            if kind <= 2:  # a boolean, its value is its type
                continue
            if kind == _COMPACT_TEXT:
                at = self._text(at)
            elif kind in _COMPACT_VARINTS:
                while frame[at] > 127:
                    at += 1
                at += 1
            else:
                at = self.value(kind, at)
        self._spend_fields(fields)
        return at + 1

    def value(self, kind: int, at: int) -> int:
        frame = self._frame
        if kind == _COMPACT_TEXT:
            return self._text(at)
        if kind in _COMPACT_VARINTS:
            while frame[at] > 127:
                at += 1
            return at + 1
        if kind == _COMPACT_STRUCT:
            return self.struct(at)
        if kind in _COMPACT_LISTS:
            head = frame[at]
            count, at = head >> 4, at + 1
            if count == 15:
                count, at = self._varint(at)
            return self._list(head & 15, count, at)
        if kind == _COMPACT_MAP:
            count, at = self._varint(at)
            if not count:
                return at
            return self._map(frame[at] >> 4, frame[at] & 15, count, at + 1)
        size = _COMPACT_FIXED.get(kind)
        if size is None:
            raise Uncountable(f"type {kind} is unknown")
        return self._fixed(size, at)

    def entries(self, kind: int, count: int, at: int) -> int:
        if kind in _COMPACT_VARINTS:
            return self._varints(count, at)
        size = _COMPACT_FIXED.get(kind)
        if size is not None:
            return self._fixed(size * count, at)
        if kind == _COMPACT_STRUCT:
            frame, one = self._frame, self.struct
            for _ in range(count):
                at = one(at) if frame[at] else at + 1  # empty ones need no walk
        elif kind == _COMPACT_TEXT:
            text = self._text
            for _ in range(count):
                at = text(at)
        else:
            for _ in range(count):
                at = self.value(kind, at)
        return at

    def _list(self, kind: int, count: int, at: int) -> int:
        self._check_size(count)
        times = _HASHED_OR_TEXT if kind == _COMPACT_TEXT else 1
        self._spend_entries(times * count, are_structs=kind == _COMPACT_STRUCT)
        self._enter()
        at = self.entries(kind, count, at)
        self._depth -= 1
        return at

    def _map(self, key: int, kind: int, count: int, at: int) -> int:
        self._check_size(count)
        self._spend_entries(_HASHED_OR_TEXT * count, are_structs=key == _COMPACT_STRUCT)
        self._spend_entries(_HASHED_OR_TEXT * count, are_structs=kind == _COMPACT_STRUCT)
        self._enter()
        value = self.value
        for _ in range(count):
            at = value(kind, value(key, at))
        self._depth -= 1
        return at

    def _text(self, at: int) -> int:
        length = self._frame[at]
        at += 1
        if length > 127:
            length, at = self._varint(at - 1)
        end = at + length
        if end > len(self._frame):
            raise Uncountable("it is cut short")
        return end

    def _varint(self, at: int) -> tuple[int, int]:
        frame = self._frame
        value = shift = 0
        for shift in range(0, 35, 7):
            byte = frame[at]
            at += 1
            value |= (byte & 0x7F) << shift
            if byte < 0x80:
                return value & 0xFFFFFFFF, at
        raise Uncountable("a length has more than 5 bytes")

    def _varints(self, count: int, at: int) -> int:
        """Pass over *count* varints: find the byte that ends the last one."""
        frame = self._frame
        while count:
            window = frame[at : at + min(_WINDOW, 10 * count)]
            ends = len(window.translate(None, _CONTINUED))
            if ends == 0:
                raise Uncountable("a number has no end")
            if ends <= count:
                count -= ends
                # Bytes after the last end begin the next number.
                at += len(window) if count else len(window.rstrip(_CONTINUED))
                continue
            low, high = count, len(window)  # the last end is before the shorter of both
            while low < high:
                middle = (low + high) // 2
                if len(window[:middle].translate(None, _CONTINUED)) < count:
                    low = middle + 1
                else:
                    high = middle
            return at + low
        return at


class _BinaryWalk(_Walk):
    """The binary protocol."""

    __slots__ = ()

    def struct(self, at: int) -> int:
        self._enter()
        frame = self._frame
        fields = 0
        while kind := frame[at]:
            at += 3  # with the field's number
            fields += 1
            if fields > MAX_FIELDS:
                raise Uncountable(_TOO_MANY_FIELDS)
            size = _FIXED.get(kind)
            if size is not None:
                at += size
            elif kind == _TEXT:
                at = self._text(at)
            else:
                at = self.value(kind, at)
        self._spend_fields(fields)
        return at + 1

    def value(self, kind: int, at: int) -> int:
        size = _FIXED.get(kind)
        if size is not None:
            return self._fixed(size, at)
        if kind == _TEXT:
            return self._text(at)
        if kind == _STRUCT:
            return self.struct(at)
        frame = self._frame
        if kind in _LISTS:
            return self._list(frame[at], self._count(at + 1), at + 5)
        if kind == _MAP:
            return self._map(frame[at], frame[at + 1], self._count(at + 2), at + 6)
        raise Uncountable(f"type {kind} is unknown")

    def entries(self, kind: int, count: int, at: int) -> int:
        size = _FIXED.get(kind)
        if size is not None:
            return self._fixed(size * count, at)
        if kind == _STRUCT:
            frame, one = self._frame, self.struct
            for _ in range(count):
                at = one(at) if frame[at] else at + 1  # empty ones need no walk
        elif kind == _TEXT:
            text = self._text
            for _ in range(count):
                at = text(at)
        else:
            for _ in range(count):
                at = self.value(kind, at)
        return at

    def _list(self, kind: int, count: int, at: int) -> int:
        self._check_size(count)
        times = _HASHED_OR_TEXT if kind == _TEXT else 1
        self._spend_entries(times * count, are_structs=kind == _STRUCT)
        self._enter()
        at = self.entries(kind, count, at)
        self._depth -= 1
        return at

    def _map(self, key: int, kind: int, count: int, at: int) -> int:
        self._check_size(count)
        self._spend_entries(_HASHED_OR_TEXT * count, are_structs=key == _STRUCT)
        self._spend_entries(_HASHED_OR_TEXT * count, are_structs=kind == _STRUCT)
        self._enter()
        value = self.value
        for _ in range(count):
            at = value(kind, value(key, at))
        self._depth -= 1
        return at

    def _count(self, at: int) -> int:
        count: int = _INT32.unpack_from(self._frame, at)[0]
        return count

    def _text(self, at: int) -> int:
        return self._fixed(self._count(at), at + 4)


def count_compact(frame: bytes, at: int, budget: Budget, *, max_container: int) -> int:
    """Spend *budget* on the compact struct at *at*; return its end.

    Raises TooManyElements, or Uncountable if the bytes are no such struct.
    """
    return _counted(_CompactWalk(frame, budget, max_container), at)


def count_binary(frame: bytes, at: int, budget: Budget, *, max_container: int) -> int:
    """Do as ``count_compact`` for the binary protocol."""
    return _counted(_BinaryWalk(frame, budget, max_container), at)


def _counted(walk: _Walk, at: int) -> int:
    try:
        return walk.struct(at)
    except (IndexError, struct.error) as error:
        raise Uncountable("it is cut short") from error
