"""All cases, in the order in which they are listed, run and documented."""

from __future__ import annotations

from collections.abc import Mapping

from bench.cases import chains
from bench.frame.case import Case

CASES: Mapping[str, Case] = {case.name: case for module in (chains,) for case in module.CASES}
