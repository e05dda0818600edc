"""Select the tests that measure the branch coverage of the ordering core.

These are the tests of ``tests/unit`` and ``tests/property`` that use the core, directly or through
helpers, except the longest models: tracing makes a test two to three times slower.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from functools import cache
from pathlib import Path

from testkit.processes import ROOT

_UNIT, _PROPERTY = ROOT / "tests/unit", ROOT / "tests/property"
_LONGEST = frozenset(
    f"test_{name}"
    for name in (
        *("capacity", "cluster_model", "fairness", "group_buffer", "key_change"),
        *("queue_pipeline", "send_lanes_model", "simulation", "order_key_simulator"),
        *("ownership_record", "snapshot_parts", "order_key", "replays", "job_chains"),
        *("diagnosis", "refill_round", "key_profile", "timing_wheel", "spark_planning"),
    )
)
_CORE = "proxy.core."
_HELPERS = ("testkit.", "tests.property.", "tests.support.", "tests.unit.")


def is_core_test(path: Path, module: str) -> bool:
    """Return whether the tests of the imported *module* at *path* measure the core."""
    long = path.is_relative_to(_PROPERTY) and path.stem in _LONGEST
    measured = path.is_relative_to(_UNIT) or path.is_relative_to(_PROPERTY)
    return measured and not long and _uses_core(module)


@cache
def _uses_core(module: str) -> bool:
    return any(
        name.startswith(_CORE) or (name.startswith(_HELPERS) and _uses_core(name))
        for name in _names_of(module)
    )


def _names_of(module: str) -> Iterator[str]:
    """Yield the modules that *module* imports names from, except itself."""
    for value in vars(sys.modules[module]).values():
        name = getattr(value, "__module__", None) or getattr(value, "__name__", None)
        if isinstance(name, str) and name != module:
            yield name
