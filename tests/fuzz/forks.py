"""Fuzzes one parser after another, each in a fork of one process.

A run of seconds takes less time than the instrumentation of the code. Reads a JSON list per line:
the parser's name, the file for libFuzzer's output, libFuzzer's options. Answers each with an empty
line once that fork has ended.
"""

from __future__ import annotations

import json
import os
import sys

import atheris

with atheris.instrument_imports(include=["broker_core", "proxy"]):
    from tests.fuzz.targets import TARGETS


def main() -> None:
    """Process lines until the input ends."""
    for line in sys.stdin:
        name, output, *options = json.loads(line)
        pid = os.fork()
        if pid == 0:
            _fuzz(name, output, options)
        os.waitpid(pid, 0)
        sys.stdout.write("\n")
        sys.stdout.flush()


def _fuzz(name: str, output: str, options: list[str]) -> None:
    """Fuzz one parser; never returns, since libFuzzer ends the process."""
    log = os.open(output, os.O_WRONLY | os.O_CREAT, 0o600)
    for stream in (1, 2):
        os.dup2(log, stream)
    atheris.Setup([name, *options], TARGETS[name].run)
    atheris.Fuzz()


if __name__ == "__main__":
    main()
