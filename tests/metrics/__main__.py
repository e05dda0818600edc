"""``make test-metrics``: alert rules and dashboard by promtool; further arguments go to pytest."""

from __future__ import annotations

import shutil
import sys

from tests.support.suites import pytest_suite


def missing() -> str | None:
    """Return a sentence about the missing tools; None if all are installed."""
    if shutil.which("promtool") is None:
        return "promtool not found: install Prometheus (on Debian the package prometheus)"
    return None


if __name__ == "__main__":
    sys.exit(pytest_suite("test-metrics", "tests/metrics", missing=missing))
