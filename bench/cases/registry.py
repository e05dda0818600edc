"""All cases, in the order in which they are listed, run and documented."""

from __future__ import annotations

from collections.abc import Mapping

from bench.cases import acks, chains, latency, memory, produce, scales, workers
from bench.frame.case import Case

_MODULES = (chains, produce, latency, acks, scales, workers, memory)

CASES: Mapping[str, Case] = {case.name: case for module in _MODULES for case in module.CASES}
