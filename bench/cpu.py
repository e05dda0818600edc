"""Processor time of processes, as the operating system accounts it.

For living processes it is exact to the nanosecond, including ended threads, from the kernel's clock
of each process. For children that were waited for it has steps of 10 ms.
"""

from __future__ import annotations

import os
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

_TICKS_A_SECOND = os.sysconf("SC_CLK_TCK")
_PROC = Path("/proc")
_OF_A_PROCESS = 2  # the last three bits of the clock id: a process's scheduled time


def cpu_s(pid: int) -> float:
    """Return the user and system seconds of *pid*, its living descendants and all children they
    waited for; 0 if it has ended.
    """
    return sum(_own_s(each) + _waited_for_s(each) for each in _tree(pid))


@dataclass(frozen=True, slots=True)
class CpuMeter:
    """Processor time of named processes: ``CpuMeter({"proxy": pid, "client": pid})``."""

    processes: Mapping[str, int]

    def read(self) -> dict[str, float]:
        """Return the seconds so far, by name."""
        return {name: cpu_s(pid) for name, pid in self.processes.items()}


def microseconds_each(
    before: Mapping[str, float], after: Mapping[str, float], messages: int
) -> dict[str, float]:
    """Return the figures between two readings:

    ``NAME_us`` per message for each name, and their sum ``chain_us``.
    """
    each = {f"{name}_us": (after[name] - since) / messages * 1e6 for name, since in before.items()}
    return {**each, "chain_us": sum(each.values())}


def _own_s(pid: int) -> float:
    try:
        # The id as in clock_getcpuclockid(3), which Python does not offer.
        return time.clock_gettime_ns(~pid << 3 | _OF_A_PROCESS) / 1e9
    except OSError:
        return 0.0


def _waited_for_s(pid: int) -> float:
    try:
        # The process name is in parentheses and may contain blanks, so parse after it.
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
