"""The time limit of tests: a test that exceeds it ends, and the next one runs in the same
process.
"""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from testkit.processes import ROOT

CONFTEST = 'pytest_plugins = ["testkit.time_limit"]\n'
TESTS = """
import os
import threading
import time

import pytest

LOCK = threading.Lock()
FIRST = os.getpid()


library = {"__name__": "coverage.collector", "LOCK": LOCK, "time": time}
exec(compile(SOURCE, "collector.py", "exec"), library)


def test_in_a_lock():
    while True:
        library["as_coverage_does"](0.05)
        until = time.perf_counter() + 0.01
        while time.perf_counter() < until:
            pass


def test_in_vain():
    threading.Event().wait()


async def test_of_asyncio():
    import asyncio
    await asyncio.Event().wait()


def test_after():
    assert os.getpid() == FIRST
    assert LOCK.acquire(timeout=1)
"""
# Holds a lock without a finally.
LIBRARY = """
def as_coverage_does(seconds):
    LOCK.acquire()
    until = time.perf_counter() + seconds
    while time.perf_counter() < until:
        pass
    LOCK.release()
"""
STUBBORN = """
def test_that_goes_on():
    while True:
        try:
            while True:
                pass
        except BaseException:
            pass


def test_after():
    pass
"""


def run(folder: Path, tests: str, *options: str) -> subprocess.CompletedProcess[str]:
    """Return pytest's result for *tests*, each of which may take half a second."""
    (folder / "conftest.py").write_text(CONFTEST)
    (folder / "test_them.py").write_text(tests)
    (folder / "pytest.ini").write_text(
        "[pytest]\nasyncio_mode = auto\ntime_limit = 0.5\ntime_limit_grace = 20\n"
    )
    return subprocess.run(
        [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", *options, str(folder)],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )


@pytest.mark.slow
def test_what_exceeds_its_time_fails_and_leaves_no_lock_behind(tmp_path: Path) -> None:
    ended = run(tmp_path, f"SOURCE = {LIBRARY!r}\n{TESTS}", "-n", "0")
    assert "3 failed, 1 passed" in ended.stdout, ended
    assert ended.stdout.count("TimeLimitExceeded: the test has exceeded its 0.5 s") >= 3


@pytest.mark.slow
def test_what_goes_on_is_killed_and_the_others_run(tmp_path: Path) -> None:
    ended = run(tmp_path, STUBBORN, "-n", "1", "-o", "time_limit_grace=1")
    assert "1 failed, 1 passed" in ended.stdout, ended
    assert "crashed while running" in ended.stdout
    assert "test_that_goes_on" in ended.stderr  # its stack
