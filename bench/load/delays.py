"""A compact collection of delays, with percentiles."""

from __future__ import annotations

import math
from array import array

PERCENTILES = {"p50": 0.5, "p99": 0.99, "p999": 0.999}


class Delays:
    """Delays in nanoseconds, without messages due before *from_ns*."""

    def __init__(self, *, from_ns: int = 0) -> None:
        self._from_ns = from_ns
        self._values = array("q")

    def __len__(self) -> int:
        return len(self._values)

    def add(self, due_ns: int, done_ns: int) -> None:
        """Add a delay from *due_ns* to *done_ns*."""
        if due_ns >= self._from_ns:
            self._values.append(done_ns - due_ns)

    def figures(self, prefix: str = "") -> dict[str, float]:
        """Return p50, p99, p999 and max in milliseconds; empty without delays."""
        if not self._values:
            return {}
        ordered = sorted(self._values)
        found = {name: _rank(len(ordered), part) for name, part in PERCENTILES.items()}
        found["max"] = len(ordered) - 1
        return {f"{prefix}{name}_ms": ordered[rank] / 1e6 for name, rank in found.items()}


def _rank(count: int, part: float) -> int:
    """Return the nearest rank: the lowest value that at least *part* of all values do not
    exceed.
    """
    return max(0, math.ceil(count * part) - 1)
