"""Many delays in little memory, and their percentiles."""

from __future__ import annotations

import math
from array import array

PERCENTILES = {"p50": 0.5, "p99": 0.99, "p999": 0.999}


class Delays:
    """Nanoseconds, those of messages that were due before *from_ns* left out."""

    def __init__(self, *, from_ns: int = 0) -> None:
        self._from_ns = from_ns
        self._values = array("q")

    def __len__(self) -> int:
        return len(self._values)

    def add(self, due_ns: int, done_ns: int) -> None:
        """What was due at *due_ns* was done at *done_ns*."""
        if due_ns >= self._from_ns:
            self._values.append(done_ns - due_ns)

    def figures(self, prefix: str = "") -> dict[str, float]:
        """Milliseconds: p50, p99, p999 and max; nothing where there are no delays."""
        if not self._values:
            return {}
        ordered = sorted(self._values)
        found = {name: _rank(len(ordered), part) for name, part in PERCENTILES.items()}
        found["max"] = len(ordered) - 1
        return {f"{prefix}{name}_ms": ordered[rank] / 1e6 for name, rank in found.items()}


def _rank(count: int, part: float) -> int:
    """The nearest rank: the least such that at least *part* are not above it."""
    return max(0, math.ceil(count * part) - 1)
