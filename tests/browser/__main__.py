"""``make test-browser``: the console in Chromium itself; further arguments go to pytest."""

from __future__ import annotations

import os
import sys

import pytest

from tests.browser.tools import missing


def main() -> int:
    if (reason := missing()) is not None:
        print(f"make test-browser: {reason}", file=sys.stderr)
        return int(os.environ.get("ORDERLANE_REQUIRE_ALL") == "1")
    return pytest.main(["tests/browser", *sys.argv[1:]])


if __name__ == "__main__":
    sys.exit(main())
