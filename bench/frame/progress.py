"""Time and processor time of the steady stretch of a run.

A process counts messages in a ``Counter``, eight bytes of a file mapped by both sides, so that
watching the count costs the counting process nothing.
"""

from __future__ import annotations

import mmap
import struct
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Self

from bench.cpu import CpuMeter, microseconds_each

_NUMBER = struct.Struct("<q")
_LOOK_S = 0.01


class Counter:
    """A number in a file, written by one process and read by others."""

    def __init__(self, path: Path) -> None:
        """Open *path*; create it with 0 if it does not exist."""
        if not path.exists():
            path.write_bytes(_NUMBER.pack(0))
        with path.open("r+b") as file:
            self._map = mmap.mmap(file.fileno(), _NUMBER.size)

    @property
    def value(self) -> int:
        """Return the number."""
        return int(_NUMBER.unpack_from(self._map)[0])

    def show(self, value: int) -> None:
        """Store the number."""
        _NUMBER.pack_into(self._map, 0, value)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._map.close()


@dataclass(frozen=True, slots=True)
class Stretch:
    """A number of messages, the seconds they took, and each process's processor time meanwhile."""

    messages: int
    seconds: float
    cpu_us: Mapping[str, float]

    def figures(self) -> dict[str, float]:
        """Return the figures of an arm."""
        return {
            "per_s": self.messages / self.seconds,
            "seconds": self.seconds,
            **self.cpu_us,
        }


def stretch(
    count: Callable[[], int],
    processes: Mapping[str, int],
    messages: int,
    *,
    first: float = 0.2,
    last: float = 0.9,
    within_s: float = 240.0,
    alive: Callable[[], bool] = lambda: True,
) -> Stretch:
    """Wait until *count* reaches *messages* and return the stretch between the fractions *first*,
    after the warm-up, and *last*.

    *processes*: names and ids for the processor time. Raises AssertionError after *within_s*, or
    when *alive* reports that a process ended early.
    """
    meter = CpuMeter(processes)
    deadline = time.monotonic() + within_s
    marks: list[tuple[int, float, dict[str, float]]] = []
    bars = [messages * first, messages * last]
    while (done := count()) < messages:
        if len(marks) < len(bars) and done >= bars[len(marks)]:
            marks.append((done, time.monotonic(), meter.read()))
        assert alive(), f"a process ended after {done} of {messages} messages"
        assert time.monotonic() < deadline, (
            f"not within {within_s:g} s: {done} of {messages} messages"
        )
        time.sleep(_LOOK_S)
    while len(marks) < len(bars):  # the run was faster than the sampling
        marks.append((done, time.monotonic(), meter.read()))
    (begun, began_s, before), (done, ended_s, after) = marks
    assert done > begun, f"all {messages} messages came at once: too few to measure"
    cpu = microseconds_each(before, after, done - begun)
    return Stretch(done - begun, ended_s - began_s, cpu)
