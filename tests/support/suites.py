"""Arguments of the suites that need an external tool, and the check for a missing tool.

``--part`` selects the part of a suite that proves its real component still fits, in two minutes at
most; ``.ci/run`` runs the parts, ``make everything`` the whole suites.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Sequence

PART = "--part"


def missing_tool(target: str, reason: str) -> int:
    """Report a missing tool. Returns the exit code: 1 where everything is required."""
    sys.stderr.write(f"make {target}: missing tool: {reason}\n")
    return int(os.environ.get("ORDERLANE_REQUIRE_ALL") == "1")


def pytest_suite(
    target: str,
    folder: str,
    *,
    missing: Callable[[], str | None],
    part: Sequence[str] = (),
) -> int:
    """Run the tests of *folder* with the arguments of this process and return the exit code.

    *part*: node ids of the tests that ``--part`` runs (default: all). *missing*: returns a sentence
    that names the missing tool, or None.
    """
    import pytest  # the rest of this module works without pytest

    if (reason := missing()) is not None:
        return missing_tool(target, reason)
    arguments = [argument for argument in sys.argv[1:] if argument != PART]
    tests = part if part and PART in sys.argv else [folder]
    return pytest.main([*tests, *arguments])
