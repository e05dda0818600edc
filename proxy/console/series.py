"""Figures of the last hour: a fixed number of samples per group. Pure."""

from __future__ import annotations

from array import array
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

#: Seconds between two samples, and samples kept: one hour.
EVERY_S = 10
SAMPLES = 360
#: Groups with figures; further groups are left out.
MOST_GROUPS = 500

#: Figures of a group at the time of the sample, in messages.
GAUGES = ("lag", "unfinished", "ready", "leased", "blocked")
#: Totals of a group since the proxy started; stored as messages per second since the last sample.
COUNTERS = ("delivered", "acked", "failed")

_NOTHING = float("nan")


@dataclass(slots=True)
class _GroupSeries:
    values: dict[str, array[float]]
    totals: dict[str, float] = field(default_factory=dict)

    @classmethod
    def empty(cls, samples: int) -> _GroupSeries:
        return cls({name: array("d", [_NOTHING] * samples) for name in (*GAUGES, *COUNTERS)})


class Series:
    """A ring of samples.

    A group missing from a sample has no value there; a group without any value is removed.
    """

    def __init__(self, *, samples: int = SAMPLES, most_groups: int = MOST_GROUPS) -> None:
        """Keep *samples* for each of at most *most_groups* groups."""
        self._samples = samples
        self._most_groups = most_groups
        self._at_ms = array("q", [0] * samples)
        self._last_ns = 0
        self._groups: dict[str, _GroupSeries] = {}
        self._next = 0
        self.count = 0
        """Samples taken, at most *samples*."""

    def __len__(self) -> int:
        """Number of groups with figures."""
        return len(self._groups)

    def add(
        self,
        at_ms: int,
        figures: Mapping[str, Mapping[str, float]],
        *,
        at_ns: int | None = None,
    ) -> None:
        """Add a sample of *figures*, by group and name, taken *at_ms* (since 1970), *at_ns* by a
        clock that is never set (default: the same one).
        """
        now_ns = at_ms * 1_000_000 if at_ns is None else at_ns
        seconds = max(0.001, (now_ns - self._last_ns) / 1e9)
        self._last_ns = now_ns
        place = self._next
        self._at_ms[place] = at_ms
        for group in [*self._groups]:
            if group not in figures:
                self._clear(group, place)
        for group, given in figures.items():
            series = self._groups.get(group)
            if series is None:
                if len(self._groups) >= self._most_groups:
                    continue
                series = self._groups[group] = _GroupSeries.empty(self._samples)
            for name in GAUGES:
                series.values[name][place] = given.get(name, 0.0)
            for name in COUNTERS:
                total = given.get(name, 0.0)
                before = series.totals.get(name)
                series.totals[name] = total
                rate = _NOTHING if before is None else max(0.0, total - before) / seconds
                series.values[name][place] = rate
        self._next = (place + 1) % self._samples
        self.count = min(self.count + 1, self._samples)

    def of(self, group: str) -> dict[str, Any] | None:
        """Return the samples of *group*, oldest first: ``at_ms`` and one list per name.

        A missing value is None. Returns None for a group without figures.
        """
        series = self._groups.get(group)
        if series is None:
            return None
        order = [(self._next - self.count + step) % self._samples for step in range(self.count)]
        values = {
            name: [None if each[place] != each[place] else each[place] for place in order]
            for name, each in series.values.items()
        }
        return {"at_ms": [self._at_ms[place] for place in order], **values}

    def _clear(self, group: str, place: int) -> None:
        series = self._groups[group]
        for values in series.values.values():
            values[place] = _NOTHING
        series.totals.clear()
        lag = series.values[GAUGES[0]]
        if all(each != each for each in lag):
            del self._groups[group]
