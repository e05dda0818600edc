"""Tools that tests need beside Python, and may not find."""

from __future__ import annotations

import os


def without(reason: str) -> None:
    """Skip the test for *reason*; fail it where everything is required."""
    import pytest  # the rest of testkit is of use without it

    if os.environ.get("ORDERLANE_REQUIRE_ALL") == "1":
        pytest.fail(reason)
    pytest.skip(reason)
