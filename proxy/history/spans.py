"""Sets of disjoint spans of time, in nanoseconds."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterator

#: Resolution of spans, ns; it limits their number per second.
GRAIN_NS = 10_000_000

Span = tuple[int, int]


class Spans:
    """A union of spans. Adding one near the end is O(1), elsewhere O(spans)."""

    __slots__ = ("_begins", "_ends")

    def __init__(self) -> None:
        self._begins: list[int] = []
        self._ends: list[int] = []

    def __iter__(self) -> Iterator[Span]:
        """Iterate over the disjoint spans, earliest first."""
        return iter(zip(self._begins, self._ends, strict=True))

    def __bool__(self) -> bool:
        return bool(self._begins)

    def add(self, begin: int, end: int) -> None:
        """Add the span from *begin* to *end*, unless it is empty."""
        if end <= begin:
            return
        first = bisect_left(self._ends, begin)
        last = bisect_right(self._begins, end)
        if first < last:
            begin = min(begin, self._begins[first])
            end = max(end, self._ends[last - 1])
        self._begins[first:last] = [begin]
        self._ends[first:last] = [end]

    def update(self, others: Spans) -> None:
        """Add all spans of *others*."""
        for begin, end in others:
            self.add(begin, end)

    def within(self, begin: int, end: int) -> Iterator[Span]:
        """Yield the parts between *begin* and *end*."""
        for place in range(bisect_right(self._ends, begin), len(self._begins)):
            if self._begins[place] >= end:
                break
            yield max(begin, self._begins[place]), min(end, self._ends[place])

    def without(self, others: Spans) -> Iterator[Span]:
        """Yield the parts that are not in *others*."""
        for begin, end in self:
            for since, until in others.within(begin, end):
                if begin < since:
                    yield begin, since
                begin = until
            if begin < end:
                yield begin, end

    def length(self, begin: int, end: int) -> int:
        """Return the covered time between *begin* and *end*."""
        return sum(until - since for since, until in self.within(begin, end))


def inner(begin: int, end: int) -> Span:
    """Return the span rounded inwards to whole grains; it may be empty."""
    return -(-begin // GRAIN_NS) * GRAIN_NS, end // GRAIN_NS * GRAIN_NS


def outer(begin: int, end: int) -> Span:
    """Return the span rounded outwards to whole grains."""
    return begin // GRAIN_NS * GRAIN_NS, -(-end // GRAIN_NS) * GRAIN_NS
