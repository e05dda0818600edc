"""Handling of missing tools that tests need beside Python."""

from __future__ import annotations

import os


def without(reason: str) -> None:
    """Skip the test for *reason*; fail it where all tools are required."""
    import pytest  # the rest of testkit works without it

    if os.environ.get("ORDERLANE_REQUIRE_ALL") == "1":
        pytest.fail(reason)
    pytest.skip(reason)
