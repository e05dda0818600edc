"""``make conformance-rocketmq``: the suite for each version of Apache RocketMQ, side by side.

They wait most of their time for each other's clocks, so that two fit on a machine of two cores. At
the end stands one table of both; further arguments go to pytest.
"""

from __future__ import annotations

import subprocess
import sys
import time
from pathlib import Path

import orjson
import pytest

from bench.peers.java_programs import kafka_path, orderlane_path, parallel_consumer_path
from tests.support.java import require_java, rocketmq_programs
from tests.support.processes import ROOT
from tests.support.rocketmq import VERSIONS

_BUILD = ROOT / "build/rocketmq"


def main() -> int:
    try:
        require_java()
    except (pytest.skip.Exception, pytest.fail.Exception) as missing:
        print(f"conformance with Apache RocketMQ: {missing}", file=sys.stderr)
        return int(isinstance(missing, pytest.fail.Exception))
    for version in VERSIONS:
        rocketmq_programs(version)
    # What Maven fetches is fetched here: that may take longer than a test.
    for fetched in (kafka_path, parallel_consumer_path, orderlane_path):
        fetched()
    began = time.monotonic()
    runs = {version: _start(version) for version in VERSIONS}
    codes = [process.wait() for process, _ in runs.values()]
    for version, (_, output) in runs.items():
        text = output.read_text(errors="replace")
        print(f"==> {version}", text if any(codes) else text.splitlines()[-1], sep="\n")
    _print_table()
    print(f"took {time.monotonic() - began:.0f} s")
    return max(codes)


def _start(version: str) -> tuple[subprocess.Popen[bytes], Path]:
    output = _BUILD / version / "conformance.out"
    command = [sys.executable, "-m", "pytest", "tests/conformance/rocketmq", "tests/integration"]
    # The first test on a broker waits for it and for Maven; two at a time take longer, too.
    command += ["--timeout", "300", "--broker", version, "-k", version, *sys.argv[1:]]
    with output.open("wb") as out:
        return subprocess.Popen(command, stdout=out, stderr=subprocess.STDOUT, cwd=ROOT), output


def _print_table() -> None:
    rows = [
        row
        for version in VERSIONS
        if (path := _BUILD / version / "conformance.json").exists()
        for row in orjson.loads(path.read_bytes())
    ]
    rows.sort(key=lambda row: (row["feature"], row["version"]))
    wide = max((len(row["feature"]) for row in rows), default=0)
    for row in rows:
        print(f"{row['feature']:<{wide}}  {row['version']:<8}  {row['result']}")


if __name__ == "__main__":
    sys.exit(main())
