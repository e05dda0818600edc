"""A walk over a struct in Thrift's binary protocol, which spends a budget of elements. Pure."""

from __future__ import annotations

import struct
from functools import partial

from proxy.downstream.port.elements.budget import (
    MAX_FIELDS,
    Budget,
    Nesting,
    Uncountable,
    end_of_each,
    end_of_fixed,
    end_of_structs,
    end_of_whole,
    too_many_fields,
)

_TEXT, _STRUCT, _MAP, _LISTS = 11, 12, 13, frozenset({14, 15})
#: Bytes of the types with a fixed size: bool, byte, double, i16, i32, i64, UUID.
_FIXED = {2: 1, 3: 1, 4: 8, 6: 2, 8: 4, 10: 8, 16: 16}
_INT32 = struct.Struct(">i")


def count_binary(frame: bytes, at: int, budget: Budget, *, max_container: int) -> int:
    """Spend *budget* on the binary struct at *at*; return its end.

    Raises TooManyElements, or Uncountable if the bytes are no such struct.
    """
    return end_of_whole(_Walk(frame, Nesting(budget, max_container)).struct, at)


class _Walk:
    """Walks over one frame. Methods return the position after the element at *at*."""

    __slots__ = ("_frame", "_nesting")

    def __init__(self, frame: bytes, nesting: Nesting) -> None:
        self._frame = frame
        self._nesting = nesting

    def struct(self, at: int) -> int:
        self._nesting.enter_struct()
        frame = self._frame
        fields = 0
        while kind := frame[at]:
            at += 3  # with the field's number
            fields += 1
            if fields > MAX_FIELDS:
                raise too_many_fields()
            size = _FIXED.get(kind)
            if size is not None:
                at += size
            elif kind == _TEXT:
                at = self._text(at)
            else:
                at = self._value(kind, at)
        self._nesting.leave_struct(fields)
        return at + 1

    def _value(self, kind: int, at: int) -> int:
        frame = self._frame
        size = _FIXED.get(kind)
        if size is not None:
            return end_of_fixed(frame, size, at)
        if kind == _TEXT:
            return self._text(at)
        if kind == _STRUCT:
            return self.struct(at)
        if kind in _LISTS:
            return self._list(frame[at], self._count(at + 1), at + 5)
        if kind == _MAP:
            return self._map(frame[at], frame[at + 1], self._count(at + 2), at + 6)
        raise Uncountable(f"type {kind} is unknown")

    def _list(self, kind: int, count: int, at: int) -> int:
        nesting = self._nesting
        nesting.enter_list(count, of_structs=kind == _STRUCT, of_texts=kind == _TEXT)
        at = self._entries(kind, count, at)
        nesting.leave_container()
        return at

    def _entries(self, kind: int, count: int, at: int) -> int:
        size = _FIXED.get(kind)
        if size is not None:
            return end_of_fixed(self._frame, size * count, at)
        if kind == _STRUCT:
            return end_of_structs(self._frame, self.struct, count, at)
        one = self._text if kind == _TEXT else partial(self._value, kind)
        return end_of_each(one, count, at)

    def _map(self, key: int, kind: int, count: int, at: int) -> int:
        nesting = self._nesting
        nesting.enter_map(
            count, keys_are_structs=key == _STRUCT, values_are_structs=kind == _STRUCT
        )
        value = self._value
        for _ in range(count):
            at = value(kind, value(key, at))
        nesting.leave_container()
        return at

    def _text(self, at: int) -> int:
        return end_of_fixed(self._frame, self._count(at), at + 4)

    def _count(self, at: int) -> int:
        count: int = _INT32.unpack_from(self._frame, at)[0]
        return count
