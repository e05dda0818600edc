"""All cases, in the order in which they are listed, run and documented."""

from __future__ import annotations

from collections.abc import Mapping

from bench.cases import acks, chains, latency, memory, produce
from bench.frame.case import Case

_MODULES = (chains, produce, latency, acks, memory)

CASES: Mapping[str, Case] = {case.name: case for module in _MODULES for case in module.CASES}
