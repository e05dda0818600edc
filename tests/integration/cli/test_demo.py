"""The demo as a user starts it: a separate process, on a small part of the data."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import orjson
import pytest


@pytest.mark.slow
def test_the_last_line_compares_both_orders(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "proxy.cli", "demo", "--flights", "400", "--keep", str(tmp_path)],
        capture_output=True,
        timeout=100,
        check=False,
    )
    summary = orjson.loads(done.stdout.splitlines()[-1])

    assert (done.returncode, summary["events"]) == (0, 800), done.stderr.decode()
    assert (summary["violations"], summary["duplicates"], summary["lost"]) == (0, 0, 0)
    assert summary["key_order_s"] < summary["queue_order_s"]
    assert list(tmp_path.glob("histories/flights-by-aircraft/*.jsonl"))


def test_a_wrong_choice_of_flights_is_one_sentence() -> None:
    done = subprocess.run(
        [sys.executable, "-m", "proxy.cli", "demo", "--flights", "some"],
        capture_output=True,
        timeout=60,
        check=False,
    )

    assert done.returncode == 2
    assert b"invalid --flights 'some': give january" in done.stderr
    assert b"Traceback" not in done.stderr
