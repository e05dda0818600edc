"""``make test-metrics``: alert rules and dashboard by promtool; further arguments go to pytest."""

from __future__ import annotations

import os
import shutil
import sys

import pytest


def missing() -> str | None:
    """What this machine lacks, as a sentence; None if all is there."""
    if shutil.which("promtool") is None:
        return "promtool not found: install Prometheus (on Debian the package prometheus)"
    return None


def main() -> int:
    if (reason := missing()) is not None:
        print(f"make test-metrics: {reason}", file=sys.stderr)
        return int(os.environ.get("ORDERLANE_REQUIRE_ALL") == "1")
    return pytest.main(["tests/metrics", *sys.argv[1:]])


if __name__ == "__main__":
    sys.exit(main())
