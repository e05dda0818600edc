"""Forked warm processes behave like a new interpreter."""

from __future__ import annotations

import signal
import subprocess
import sys
from pathlib import Path

import pytest

from bench.frame.forked import Forked
from testkit.processes import Child, Starter, wait_until

_PROGRAM = """
import os, signal, sys, time

def main():
    print(os.getcwd(), sys.argv[1:], sorted(os.environ), __name__, flush=True)
    match sys.argv[1]:
        case "wait":
            time.sleep(600)
        case "words":
            sys.exit("that was wrong")
        case "code":
            sys.exit(3)
        case "raise":
            raise ValueError("broken")

main()
"""


@pytest.fixture(params=(Forked, subprocess.Popen), ids=("forked", "new"))
def child(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    (tmp_path / "some_program.py").write_text(_PROGRAM)
    monkeypatch.syspath_prepend(str(tmp_path))
    starter: Starter = request.param

    def start(*words: str) -> Child:
        command = [sys.executable, "-m", "some_program", *words]
        environment = {"PYTHONPATH": str(tmp_path), "LC_CTYPE": "C.UTF-8"}
        return Child(command, tmp_path / "child", environment, starter)

    return start


def test_it_has_its_words_folder_and_environment(child, tmp_path: Path) -> None:
    begun = child("end", "a b")
    assert begun.wait() == 0
    environment = ["LC_CTYPE", "PYTHONPATH"]
    assert begun.out == [f"{tmp_path} ['end', 'a b'] {environment} __main__"]
    assert not begun.running


def test_its_exit_code_is_the_programs(child) -> None:
    assert child("code").wait() == 3
    worded = child("words")
    assert (worded.wait(), worded.err) == (1, "that was wrong\n")
    broken = child("raise")
    assert broken.wait() == 1
    assert broken.err.endswith("ValueError: broken\n")


def test_it_ends_by_signals(child) -> None:
    begun = child("wait")
    begun.wait_for(1)
    assert begun.running
    with pytest.raises(subprocess.TimeoutExpired):
        begun.wait(within_s=0.05)
    assert begun.terminate() == -signal.SIGTERM
    begun.process.send_signal(signal.SIGTERM)  # it has ended: no effect

    begun = child("wait")
    begun.kill()
    assert begun.process.returncode == -signal.SIGKILL

    begun = child("wait")
    begun.wait_for(1)
    begun.process.send_signal(signal.SIGINT)
    wait_until(lambda: not begun.running, within_s=30, what="its end")
    assert "KeyboardInterrupt" in begun.err
