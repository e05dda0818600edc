"""How long things take and how often they are tried, added up into a few numbers. Pure.

What is noted is noted on the way of every message, so it costs little: a place in a short list, or
one addition for all of a batch that began at the same moment. Scrapes read the lists.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field

#: Upper bounds of times, in seconds: from what a hand-over costs to what people are called for.
SECONDS = (
    *(0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5),
    *(1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 300.0, 1800.0),
)
#: Upper bounds of numbers of hand-outs.
TIMES = (1, 2, 3, 4, 6, 8, 12, 16, 32)

_S = 1_000_000_000
_SECONDS_NS = tuple(int(bound * _S) for bound in SECONDS)
#: So many values are noted one by one in less time than it takes to count equal ones.
_FEW = 8


class Histogram:
    """Values by bounds: ``counts[n]`` of them are at most ``bounds[n]`` and above the bound before;
    the last count is of those above all bounds. Values below 0 count as 0.
    """

    __slots__ = ("bounds", "counts", "total")

    def __init__(self, bounds: Sequence[int] = _SECONDS_NS) -> None:
        """Of times in ns, if no *bounds* say otherwise."""
        self.bounds = bounds
        self.counts = [0] * (len(bounds) + 1)
        self.total = 0  # the sum of all values

    def note(self, value: int, times: int = 1) -> None:
        """*value* was seen, so many times."""
        if value <= 0:
            self.counts[0] += times
        else:
            self.counts[bisect_left(self.bounds, value)] += times
            self.total += value * times

    def note_lowest(self, times: int) -> None:
        """The lowest bound itself was seen, so many times."""
        self.counts[0] += times
        self.total += self.bounds[0] * times

    def note_since(self, began_ns: list[int], now_ns: int) -> None:
        """What began at these times ended *now*. Those of 0 are left out: nobody knows when."""
        if not began_ns:
            return
        first, times = began_ns[0], len(began_ns)
        if times == 1 or began_ns.count(first) == times:  # so it is with most batches
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


def attempts() -> Histogram:
    """Of hand-outs."""
    return Histogram(TIMES)


class Moment:
    """When what happens now happens, in ns; for measures, and what is noted of keys: no decision
    depends on it.
    """

    __slots__ = ("ns",)

    def __init__(self) -> None:
        self.ns = 0

    def set(self, now_ns: int) -> None:
        """Move to *now*."""
        self.ns = now_ns


@dataclass(slots=True, eq=False)
class Measures:
    """What is measured of one topic's messages. Times are ns; the clock may be as old as the last
    event of a queue.
    """

    #: Behind an earlier message of the same key; only those that waited.
    key_wait: Histogram = field(default_factory=Histogram)
    #: From when a message might be handed out until it was.
    queue_wait: Histogram = field(default_factory=Histogram)
    #: From the hand-out to the client's verdict.
    handler: Histogram = field(default_factory=Histogram)
    #: Hand-outs of messages that ended.
    attempts: Histogram = field(default_factory=attempts)
