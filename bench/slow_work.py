"""Work per message by key and number, the same for clients of all languages.

Bodies are those of ``bench/preload.py``.
"""

from __future__ import annotations

from dataclasses import dataclass

import orjson

_MASK = (1 << 64) - 1


@dataclass(frozen=True, slots=True)
class SlowWork:
    """Work uniformly distributed from *least_ms* to *most_ms*."""

    seed: int
    least_ms: float
    most_ms: float

    def seconds(self, body: bytes) -> float:
        """Return the work on the message with this body."""
        if self.least_ms == self.most_ms:
            return self.most_ms / 1000
        said = orjson.loads(body)
        key = int(said["key"].rpartition("-")[2])
        chance = (_mixed(_mixed(self.seed) + (key << 32) + said["n"]) >> 11) * 2.0**-53
        return (self.least_ms + chance * (self.most_ms - self.least_ms)) / 1000


def _mixed(value: int) -> int:
    """Return one step of splitmix64."""
    x = (value + 0x9E3779B97F4A7C15) & _MASK
    x = ((x ^ (x >> 30)) * 0xBF58476D1CE4E5B9) & _MASK
    x = ((x ^ (x >> 27)) * 0x94D049BB133111EB) & _MASK
    return x ^ (x >> 31)
