"""Times that clients have measured: their distribution, as drawn by a simulation. Pure."""

from __future__ import annotations

from array import array
from bisect import bisect_left
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from itertools import accumulate
from zlib import crc32

from thin_client.figures import bounds_ns

_MS = 1e6
#: Number of equally likely times.
_STEPS_BITS = 14
_STEPS = 1 << _STEPS_BITS
#: Multiples of the golden ratio modulo 1, here in 32 bits, spread more evenly than others.
_GOLDEN, _MASK, _SHIFT = 0x9E3779B1, (1 << 32) - 1, 32 - _STEPS_BITS


@dataclass(frozen=True)
class ObservedTimes:
    """Counts of times by class (``thin_client.figures``), in ascending order. Times are spread
    evenly in their class.
    """

    counts: tuple[tuple[int, int], ...]
    seed: int = 1

    def __post_init__(self) -> None:
        """Raise ValueError without any time."""
        if not sum(count for _, count in self.counts):
            raise ValueError("no times were observed")

    @classmethod
    def of(cls, counts: Mapping[int, int], *, seed: int = 1) -> ObservedTimes:
        """Return the distribution of *counts* by class. Raises ValueError without any."""
        return cls(tuple(sorted(counts.items())), seed)

    @property
    def number(self) -> int:
        """Number of observed times."""
        return sum(count for _, count in self.counts)

    @property
    def mean_ms(self) -> float:
        """Average time."""
        return sum(sum(bounds_ns(place)) / 2 * count for place, count in self.counts) / (
            self.number * _MS
        )

    def percentile_ms(self, percent: float) -> float:
        """Return the time that *percent* of the observed ones do not exceed."""
        return self._at_ns(percent / 100) / _MS

    def in_chains_ns(self, queue: int, keys: Iterable[bytes | None]) -> array[int]:
        """Return the times of the messages with *keys* of the queue with that number.

        The messages of each key spread evenly over the distribution: the duration of a hot key,
        often that of the whole run, is the expected one and no matter of luck.
        """
        steps_ns, start = self._steps_ns, self.seed + (queue << 16)
        places: dict[bytes | None, int] = {}
        times = array("q")
        for key in keys:
            place = places.get(key)
            if place is None:
                place = crc32(key or b"", start)
            places[key] = place = (place + _GOLDEN) & _MASK
            times.append(steps_ns[place >> _SHIFT])
        return times

    def draws_ns(self) -> Iterator[int]:
        """Yield times without end, spread evenly over the distribution."""
        place = crc32(b"", self.seed)
        while True:
            place = (place + _GOLDEN) & _MASK
            yield self._steps_ns[place >> _SHIFT]

    def __str__(self) -> str:
        half, most = self.percentile_ms(50), self.percentile_ms(99)
        return f"observed p50={half:.3g} ms, p99={most:.3g} ms"

    @cached_property
    def _steps_ns(self) -> list[int]:
        return [max(1, self._at_ns((step + 0.5) / _STEPS)) for step in range(_STEPS)]

    @cached_property
    def _sums(self) -> list[int]:
        return list(accumulate(count for _, count in self.counts))

    def _at_ns(self, share: float) -> int:
        """Return the time below which *share* of the observed ones are."""
        rank = share * self._sums[-1]
        number = min(bisect_left(self._sums, rank), len(self._sums) - 1)
        place, count = self.counts[number]
        first_ns, next_ns = bounds_ns(place)
        into = (rank - (self._sums[number] - count)) / count if count else 0.0
        return first_ns + int(into * (next_ns - first_ns))
