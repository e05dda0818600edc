"""Processor time of processes, by the operating system's accounting.

Of what lives it is counted to the nanosecond, with threads that have ended: by the clock that the
system keeps of each process. Only of children that were waited for it is known in steps of 10 ms.
"""

from __future__ import annotations

import os
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

_TICKS_A_SECOND = os.sysconf("SC_CLK_TCK")
_PROC = Path("/proc")
_OF_A_PROCESS = 2  # what the last three bits of a clock's number say of it: scheduled time


def cpu_s(pid: int) -> float:
    """Seconds of user and system time that *pid*, its living descendants and all children that they
    waited for have had; 0 once it is gone.
    """
    return sum(_own_s(each) + _waited_for_s(each) for each in _tree(pid))


@dataclass(frozen=True, slots=True)
class CpuMeter:
    """The processor time of named processes: ``CpuMeter({"proxy": pid, "client": pid})``."""

    processes: Mapping[str, int]

    def read(self) -> dict[str, float]:
        """Seconds so far, by name."""
        return {name: cpu_s(pid) for name, pid in self.processes.items()}


def microseconds_each(
    before: Mapping[str, float], after: Mapping[str, float], messages: int
) -> dict[str, float]:
    """Figures of two readings: ``NAME_us`` a message for each name, and ``chain_us``, the sum."""
    each = {f"{name}_us": (after[name] - since) / messages * 1e6 for name, since in before.items()}
    return {**each, "chain_us": sum(each.values())}


def _own_s(pid: int) -> float:
    try:
        # As clock_getcpuclockid(3) numbers it, which Python does not offer.
        return time.clock_gettime_ns(~pid << 3 | _OF_A_PROCESS) / 1e9
    except OSError:
        return 0.0


def _waited_for_s(pid: int) -> float:
    try:
        # The name of the process stands in brackets and may hold blanks: begin behind it.
        fields = (_PROC / str(pid) / "stat").read_text().rpartition(")")[2].split()
    except OSError:
        return 0.0
    return sum(map(int, fields[13:15])) / _TICKS_A_SECOND


def _tree(pid: int) -> list[int]:
    found = [pid]
    for each in found:  # grows meanwhile
        for path in (_PROC / str(each) / "task").glob("*/children"):
            try:
                found += map(int, path.read_text().split())
            except OSError:
                continue
    return found
