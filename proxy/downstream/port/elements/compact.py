"""A walk over a struct in Thrift's compact protocol, which spends a budget of elements. Pure."""

from __future__ import annotations

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

_VARINTS = frozenset({4, 5, 6})
_TEXT, _LISTS, _MAP, _STRUCT = 8, frozenset({9, 10}), 11, 12
#: Bytes of the types with a fixed size, in containers: booleans, byte, double, UUID.
_FIXED = {1: 1, 2: 1, 3: 1, 7: 8, 13: 16}
#: Bytes that continue a varint.
_CONTINUED = bytes(range(0x80, 0x100))
_WINDOW = 4096


def count_compact(frame: bytes, at: int, budget: Budget, *, max_container: int) -> int:
    """Spend *budget* on the compact struct at *at*; return its end.

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
        while kind := (head := frame[at]) & 15:
            at += 1
            fields += 1
            if fields > MAX_FIELDS:
                raise too_many_fields()
            if head < 16:  # the field's number follows
                while frame[at] > 127:
                    at += 1
                at += 1
            if kind <= 2:  # a boolean, its value is its type
                continue
            if kind == _TEXT:
                at = self._text(at)
            elif kind in _VARINTS:
                while frame[at] > 127:
                    at += 1
                at += 1
            else:
                at = self._value(kind, at)
        self._nesting.leave_struct(fields)
        return at + 1

    def _value(self, kind: int, at: int) -> int:
        frame = self._frame
        if kind == _TEXT:
            return self._text(at)
        if kind in _VARINTS:
            while frame[at] > 127:
                at += 1
            return at + 1
        if kind == _STRUCT:
            return self.struct(at)
        if kind in _LISTS:
            head = frame[at]
            count, at = head >> 4, at + 1
            if count == 15:
                count, at = self._varint(at)
            return self._list(head & 15, count, at)
        if kind == _MAP:
            count, at = self._varint(at)
            if not count:
                return at
            return self._map(frame[at] >> 4, frame[at] & 15, count, at + 1)
        size = _FIXED.get(kind)
        if size is None:
            raise Uncountable(f"type {kind} is unknown")
        return end_of_fixed(frame, size, at)

    def _list(self, kind: int, count: int, at: int) -> int:
        nesting = self._nesting
        nesting.enter_list(count, of_structs=kind == _STRUCT, of_texts=kind == _TEXT)
        at = self._entries(kind, count, at)
        nesting.leave_container()
        return at

    def _entries(self, kind: int, count: int, at: int) -> int:
        if kind in _VARINTS:
            return self._varints(count, at)
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
