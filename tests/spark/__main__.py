"""``make test-spark``: what needs Spark itself, hence Java; further arguments go to pytest.

``--full`` runs the long form: more kills, more rows.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys

import pytest

_OLDEST_JAVA = 17


def missing() -> str | None:
    """What Spark needs and this machine lacks, as a sentence; None if all is there."""
    if (java := shutil.which("java")) is None:
        return f"java not found: install a Java runtime of version {_OLDEST_JAVA} or newer"
    said = subprocess.run(
        [java, "-version"], capture_output=True, text=True, timeout=60, check=False
    ).stderr
    version = re.search(r'version "(\d+)', said)
    if version is None or int(version[1]) < _OLDEST_JAVA:
        first = said.partition("\n")[0]
        return f"{java} is {first}: install a Java runtime of version {_OLDEST_JAVA} or newer"
    return None


def main() -> int:
    if (reason := missing()) is not None:
        print(f"make test-spark: {reason}", file=sys.stderr)
        return int(os.environ.get("ORDERLANE_REQUIRE_ALL") == "1")
    return pytest.main(["tests/spark", *sys.argv[1:]])


if __name__ == "__main__":
    sys.exit(main())
