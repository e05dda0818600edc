"""All cases, in the order in which they are listed, run and documented."""

from __future__ import annotations

from collections.abc import Mapping

from bench.cases import (
    acks,
    chains,
    drain,
    history,
    hotkey,
    idle,
    idle_groups,
    ladder,
    latency,
    layers,
    looking,
    memory,
    orderkey,
    produce,
    restart,
    scales,
    simulate,
    slow,
    starts,
    tuning,
    workers,
)
from bench.frame.case import Case

_MODULES = (
    *(slow, ladder, drain, hotkey, latency, produce),
    *(acks, scales, workers, memory, idle, idle_groups, looking, restart, starts, layers, chains),
    *(history, orderkey, tuning, simulate),
)

CASES: Mapping[str, Case] = {case.name: case for module in _MODULES for case in module.CASES}
