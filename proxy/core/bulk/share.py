"""The rate of bulk readers beside thin clients, adapted to the capacity that is free. Pure.

The measure is how late the event loop runs what is due: a thin client's call waits at least as
long. Each half second the rate falls by half if the 99th percentile of these delays was above the
bound, and otherwise rises by a quarter, up to twice what was read. It never falls below the
configured rate, so that a backfill ends.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from proxy.core.group.token_bucket import SECOND

#: Time between two decisions, and the fewest delays that one is based on.
WINDOW_NS = SECOND // 2
_FEWEST = 20
_UP, _DOWN, _AHEAD = 1.25, 0.5, 2.0
_PERCENTILE = 0.99


@dataclass(slots=True)
class AdaptiveShare:
    """Rate in bytes per second, at least *least*; delays in ns, with *bound_ns* for their 99th
    percentile.
    """

    least: int
    bound_ns: int
    rate: float = field(init=False)
    _delays_ns: list[int] = field(init=False, default_factory=list)
    _read_bytes: int = field(init=False, default=0)
    _since_ns: int | None = field(init=False, default=None)

    def __post_init__(self) -> None:
        self.rate = self.least

    def read(self, size: int) -> None:
        """Note *size* bytes that bulk readers read."""
        self._read_bytes += size

    def delayed(self, delay_ns: int, now_ns: int) -> None:
        """Note a delay of the event loop, and adapt the rate if it is time."""
        if self._since_ns is None or now_ns - self._since_ns > 4 * WINDOW_NS:
            self._begin(now_ns)  # there was no reader meanwhile
        self._delays_ns.append(delay_ns)
        lasted_ns = now_ns - (self._since_ns or 0)
        if lasted_ns < WINDOW_NS or len(self._delays_ns) < _FEWEST:
            return
        ordered = sorted(self._delays_ns)
        if ordered[int(_PERCENTILE * (len(ordered) - 1))] > self.bound_ns:
            wanted = self.rate * _DOWN
        else:
            used = self._read_bytes * SECOND / lasted_ns
            wanted = min(self.rate * _UP, max(self.rate, _AHEAD * used))
        self.rate = max(self.least, wanted)
        self._begin(now_ns)

    def _begin(self, now_ns: int) -> None:
        self._since_ns = now_ns
        self._delays_ns.clear()
        self._read_bytes = 0
