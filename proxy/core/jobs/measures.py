"""Histograms of waiting times, handling times and deliveries. Pure.

Values are recorded for every message, so recording must be cheap: one addition for all messages of
a batch that began at the same time, and single values are kept and counted together. Scrapes read
the counts.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field

#: Upper bounds of times, s: from a fast hand-over to an alert.
SECONDS = (
    *(0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5),
    *(1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 300.0, 1800.0),
)
#: Upper bounds of numbers of deliveries.
TIMES = (1, 2, 3, 4, 6, 8, 12, 16, 32)

_S = 1_000_000_000
_SECONDS_NS = tuple(int(bound * _S) for bound in SECONDS)
#: Up to this size a batch is recorded value by value; counting equal values pays off above it.
_FEW = 8
#: Single values kept until they are counted together: sorted, they need a search for each bound
#: instead of one for each value.
_KEPT = 64


class Histogram:
    """Counts of values by bounds: ``counts[n]`` values are at most ``bounds[n]`` and above the
    previous bound; the last count is for values above all bounds. Negative values count as 0.
    """

    __slots__ = ("_counts", "_kept", "_total", "bounds")

    def __init__(self, bounds: Sequence[int] = _SECONDS_NS) -> None:
        """Use *bounds* in ns by default."""
        self.bounds = bounds
        self._counts = [0] * (len(bounds) + 1)
        self._total = 0
        self._kept: list[int] = []  # values that are not counted yet

    @property
    def counts(self) -> list[int]:
        """Numbers of values; read-only for others."""
        self._count_kept()
        return self._counts

    @property
    def total(self) -> int:
        """The sum of all values."""
        self._count_kept()
        return self._total

    def note(self, value: int, times: int = 1) -> None:
        """Record *value*, *times* times."""
        if value <= 0:
            self._counts[0] += times
        else:
            self._counts[bisect_left(self.bounds, value)] += times
            self._total += value * times

    @property
    def median(self) -> int | None:
        """An upper bound of the median; None without values, or above all bounds."""
        half, seen = sum(self.counts) / 2, 0
        if not half:
            return None
        for bound, count in zip(self.bounds, self.counts, strict=False):
            seen += count
            if seen >= half:
                return bound
        return None

    def note_lowest(self, times: int) -> None:
        """Record the lowest bound, *times* times."""
        self._counts[0] += times
        self._total += self.bounds[0] * times

    def note_since(self, began_ns: list[int], now_ns: int) -> None:
        """Record the times from *began_ns* to *now_ns*, skipping unknown ones (0)."""
        if not began_ns:
            return
        first, times = began_ns[0], len(began_ns)
        if times == 1:
            if first:
                self._kept.append(now_ns - first)
                if len(self._kept) >= _KEPT:
                    self._count_kept()
            return
        if began_ns.count(first) == times:  # true for most batches
            if first:
                self.note(now_ns - first, times)
            return
        if times <= _FEW:
            for began in began_ns:
                if began:
                    self.note(now_ns - began)
            return
        for began, times in Counter(began_ns).items():
            if began:
                self.note(now_ns - began, times)

    def _count_kept(self) -> None:
        if not self._kept:
            return
        values = sorted(self._kept)
        self._kept.clear()
        counted = 0
        for place, bound in enumerate(self.bounds):
            before, counted = counted, bisect_right(values, bound, lo=counted)
            self._counts[place] += counted - before
        self._counts[-1] += len(values) - counted
        self._total += sum(values[bisect_right(values, 0) :])


def attempts() -> Histogram:
    """Return an empty histogram of deliveries."""
    return Histogram(TIMES)


class Moment:
    """The current time, ns, for measures and remarks about keys; no decision depends on it."""

    __slots__ = ("ns",)

    def __init__(self) -> None:
        self.ns = 0

    def set(self, now_ns: int) -> None:
        """Set the time to *now_ns*."""
        self.ns = now_ns


@dataclass(slots=True, eq=False)
class Measures:
    """Measures of one topic's messages. Times are ns, with the clock of the queue's last event."""

    #: Waiting behind an earlier message of the same key; only messages that waited.
    key_wait: Histogram = field(default_factory=Histogram)
    #: From when a message could be delivered until it was.
    queue_wait: Histogram = field(default_factory=Histogram)
    #: From the delivery to the client's verdict.
    handler: Histogram = field(default_factory=Histogram)
    #: Deliveries of finished messages.
    attempts: Histogram = field(default_factory=attempts)
