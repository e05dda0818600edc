"""Handling times of messages: fixed or random. Pure.

The random number of a message depends only on its position and a seed: it takes the same time under
every candidate, and in a real run that uses this module.
"""

from __future__ import annotations

import math
import re
from array import array
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property, lru_cache
from statistics import NormalDist

_MASK = (1 << 64) - 1
_STEPS_BITS = 14
_PLACES = re.compile(r"p50=([0-9.]+),p99=([0-9.]+)\Z")
_MS = 1_000_000
#: Times outside of these bounds are probably typing errors.
LEAST_MS, MOST_MS = 0.001, 86_400_000.0


@dataclass(frozen=True)
class ServiceTimes:
    """A lognormal distribution given by median and 99th percentile in ms; equal values mean a fixed
    time.
    """

    p50_ms: float
    p99_ms: float
    seed: int = 1

    def __post_init__(self) -> None:
        """Raise ValueError with one sentence for invalid times."""
        if not LEAST_MS <= self.p50_ms <= self.p99_ms <= MOST_MS:
            raise ValueError(
                f"service times of p50={self.p50_ms:g} and p99={self.p99_ms:g} ms: expected"
                f" {LEAST_MS:g} <= p50 <= p99 <= {MOST_MS:.0f}"
            )

    @classmethod
    def parse(cls, text: str, *, seed: int = 1) -> ServiceTimes:
        """Parse ``5`` or ``p50=3,p99=80``, in ms. Raises ValueError with one sentence."""
        try:
            if (match := _PLACES.match(text.replace(" ", ""))) is not None:
                return cls(float(match[1]), float(match[2]), seed)
            return cls(float(text), float(text), seed)
        except ValueError as error:
            if str(error).startswith("service times"):
                raise
            raise ValueError(
                f"service time {text!r} is neither a number of milliseconds nor of the form"
                " p50=3,p99=80"
            ) from None

    @property
    def mean_ms(self) -> float:
        """Average time of a message."""
        return math.fsum(self._steps_ns) / len(self._steps_ns) / _MS

    def ns(self, queue: int, offset: int) -> int:
        """Return the time of the message at *offset* of the queue with that number."""
        return self.all_ns(queue, (offset,))[0]

    def all_ns(self, queue: int, offsets: Iterable[int]) -> array[int]:
        """Return the times of the messages at *offsets* of the queue with that number."""
        steps_ns, place = self._steps_ns, (self.seed << 40) ^ (queue << 48)
        return array("q", [steps_ns[_mixed(place ^ offset) >> _SHIFT] for offset in offsets])

    def at_ns(self, share: float) -> int:
        """Return the time below which *share* (from 0 up to 1) of the messages are."""
        return self._steps_ns[int(share * len(self._steps_ns))]

    def __str__(self) -> str:
        if self.p50_ms == self.p99_ms:
            return f"{self.p50_ms:g} ms"
        return f"p50={self.p50_ms:g} ms, p99={self.p99_ms:g} ms"

    @cached_property
    def _steps_ns(self) -> Sequence[int]:
        return _steps_ns(self.p50_ms, self.p99_ms)


@lru_cache(maxsize=16)
def _steps_ns(p50_ms: float, p99_ms: float) -> Sequence[int]:
    """Return equally likely times, in steps fine enough for the 99.99th percentile."""
    steps = 1 << _STEPS_BITS
    if p50_ms == p99_ms:
        return [round(p50_ms * _MS)] * steps
    sigma = math.log(p99_ms / p50_ms) / NormalDist().inv_cdf(0.99)
    normal = NormalDist(math.log(p50_ms), sigma)
    chances = ((step + 0.5) / steps for step in range(steps))
    return [max(1, round(math.exp(normal.inv_cdf(chance)) * _MS)) for chance in chances]


_SHIFT = 64 - _STEPS_BITS


def _mixed(value: int) -> int:
    """Apply one step of splitmix64: a hash whose results for near values are independent."""
    x = (value + 0x9E3779B97F4A7C15) & _MASK
    x = ((x ^ (x >> 30)) * 0xBF58476D1CE4E5B9) & _MASK
    x = ((x ^ (x >> 27)) * 0x94D049BB133111EB) & _MASK
    return x ^ (x >> 31)
