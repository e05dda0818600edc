"""``make test-versions``: this version and the previous one in one installation; pass further
arguments to pytest.
"""

from __future__ import annotations

import sys

from tests.support.suites import pytest_suite
from tests.versions.previous import COMMIT, is_known


def missing() -> str | None:
    """Return a sentence that names what is missing; None if nothing is."""
    if is_known():
        return None
    return f"the previous version not found: fetch commit {COMMIT} (git fetch --unshallow)"


if __name__ == "__main__":
    sys.exit(pytest_suite("test-versions", "tests/versions", missing=missing))
