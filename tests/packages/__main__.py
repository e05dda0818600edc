"""``make test-packages``: the package of each language, installed from its archive into an empty
project, where the programs of its README and of its page "Coming from …" run.

Further arguments go to pytest. ``--part`` leaves out C++, whose build takes minutes. A missing tool
skips the language's tests, and fails them with ``ORDERLANE_REQUIRE_ALL=1``.
"""

from __future__ import annotations

import sys

from tests.support.suites import pytest_suite

PART = (
    "tests/packages/test_go_module.py",
    "tests/packages/test_maven_artifact.py",
    "tests/packages/test_npm_package.py",
    "tests/packages/test_python_wheel.py",
)


def missing() -> str | None:
    """Return None: each language reports what it misses."""
    return None


if __name__ == "__main__":
    sys.exit(pytest_suite("test-packages", "tests/packages", part=PART, missing=missing))
