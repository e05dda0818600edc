"""``make test-redis``: the sink on redis-server itself; further arguments go to pytest."""

from __future__ import annotations

import os
import shutil
import sys

import pytest


def missing() -> str | None:
    """What this machine lacks, as a sentence; None if all is there."""
    if shutil.which("redis-server") is None:
        return "redis-server not found: install Redis (on Debian the package redis-server)"
    return None


def main() -> int:
    if (reason := missing()) is not None:
        print(f"make test-redis: {reason}", file=sys.stderr)
        return int(os.environ.get("ORDERLANE_REQUIRE_ALL") == "1")
    return pytest.main(["tests/redis", *sys.argv[1:]])


if __name__ == "__main__":
    sys.exit(main())
