"""Figures of a demo run, computed from the histories of its handlers."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

import orjson

from proxy.history.check import verify


@dataclass(frozen=True, slots=True)
class Figures:
    """Figures of one run. ``parallelism`` is the average number of busy handlers."""

    order_key: str
    events: int
    keys: int
    seconds: float
    parallelism: float
    violations: int
    duplicates: int
    lost: int

    @property
    def events_per_second(self) -> float:
        """Events per second, from the first delivery to the last finish."""
        return self.events / self.seconds if self.seconds else 0.0


def figures_of(order_key: str, *, sends: Path, handlers: Iterable[Path], keys: int) -> Figures:
    """Check the histories of one run. Raises HistoryError if they are empty."""
    files = list(handlers)
    report = verify([sends, *files])
    counts = report.counts
    # D1 is loss, which is counted separately.
    broken = sum(found.count for name, found in report.violations.items() if name != "D1")
    first, last, busy = _times(files)
    seconds = max(0, last - first) / 1e9
    return Figures(
        order_key=order_key,
        events=counts.acknowledged,
        keys=keys,
        seconds=seconds,
        parallelism=busy / 1e9 / seconds if seconds else 0.0,
        violations=broken,
        duplicates=counts.duplicates,
        lost=counts.lost,
    )


def _times(files: Iterable[Path]) -> tuple[int, int, int]:
    """Return the first start, the last end, and the total handling time, in ns."""
    first, last, busy = 2**63, 0, 0
    for file in files:
        for line in file.read_bytes().splitlines():
            event = orjson.loads(line)
            if event["e"] == "handle_start":
                first = min(first, event["t_ns"])
                busy -= event["t_ns"]
            elif event["e"] == "handle_end":
                last = max(last, event["t_ns"])
                busy += event["t_ns"]
    return first, last, busy
