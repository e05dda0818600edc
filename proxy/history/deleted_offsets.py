"""Ranges of offsets that retention deleted before a group had read them."""

from __future__ import annotations

from bisect import bisect_left, bisect_right


class DeletedOffsets:
    """Ranges of offsets, merged; memory grows with their number only."""

    __slots__ = ("_begins", "_ends")

    def __init__(self) -> None:
        self._begins: list[int] = []
        self._ends: list[int] = []

    def add(self, begin: int, end: int) -> None:
        """Add the offsets from *begin* to below *end*."""
        first, last = bisect_left(self._ends, begin), bisect_right(self._begins, end)
        if first < last:
            begin, end = min(begin, self._begins[first]), max(end, self._ends[last - 1])
        self._begins[first:last], self._ends[first:last] = [begin], [end]

    def forget(self, begin: int) -> None:
        """Remove all offsets from *begin* on."""
        kept = bisect_left(self._begins, begin)
        del self._begins[kept:], self._ends[kept:]
        if kept:
            self._ends[-1] = min(self._ends[-1], begin)

    def __contains__(self, offset: int) -> bool:
        place = bisect_right(self._begins, offset) - 1
        return place >= 0 and offset < self._ends[place]
