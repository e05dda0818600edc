"""``make fuzz``: every parser of bytes from outside, fuzzed by atheris for some time.

Each starts with its seeds and the stored corpus. An input that breaks a parser is written to
``build/fuzz/found`` and shown; the exit code is then 1. With ``--keep`` inputs with new paths
through a parser are added to the corpus, and the executions are counted in its notes. ``--part``
takes five seconds per parser and one processor.
"""

from __future__ import annotations

import argparse
import hashlib
import importlib.util
import json
import os
import re
import shlex
import subprocess
import sys
import tempfile
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Self

from tests.fuzz.targets import CORPUS, TARGETS, Target
from tests.support.suites import PART, missing_tool

_FOUND = Path("build/fuzz/found")
_NOTES = CORPUS / "executions.json"
#: Held while a script is written and started.
_STARTING = threading.Lock()
_EXECUTED = re.compile(r"stat::number_of_executed_units:\s+(\d+)")
#: Per target, by default and in the part that CI runs.
_SECONDS, _PART_S = 60, 5
#: Longer inputs find no other paths, and are slow.
_LONGEST = 4096
#: Limits of one input in seconds and MiB: a parser that needs more could be flooded.
_SLOWEST_S, _MOST_MIB = 10, 2048


@dataclass(frozen=True, slots=True)
class Run:
    """A run of one target: the number of inputs, and the input that broke it."""

    target: Target
    executions: int
    found: list[Path]
    output: str


def main() -> int:
    """Fuzz the named targets, all by default; return the exit code."""
    asked = _arguments()
    if importlib.util.find_spec("atheris") is None:
        code = missing_tool("fuzz", "atheris not found: it is for Python 3.11 alone")
        return code if sys.version_info < (3, 12) else 0
    targets = [TARGETS[name] for name in asked.targets or TARGETS]
    if asked.part:
        with _Forks() as forks:
            runs = [_fuzz(each, asked.seconds, asked.keep, forks) for each in targets]
    else:
        with ThreadPoolExecutor(os.cpu_count()) as side_by_side:
            runs = list(
                side_by_side.map(
                    lambda each: _fuzz(each, asked.seconds, asked.keep, _libfuzzer), targets
                )
            )
    for run in runs:
        print(f"{run.target.name:20} {run.executions:>12,} executions, {len(run.found)} found")
        for path in run.found:
            print(f"\n{path}: {path.read_bytes()!r}\n{run.output[-4000:]}")
    if asked.keep:
        _count(runs)
    found = sum(len(run.found) for run in runs)
    print(f"{len(runs) - sum(bool(run.found) for run in runs)} passed, {found} failed")
    return int(found > 0)


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m tests.fuzz", description=__doc__)
    parser.add_argument("targets", nargs="*", metavar="TARGET", help=", ".join(TARGETS))
    parser.add_argument(
        "--seconds", type=int, help=f"for each target (default: {_SECONDS}; {_PART_S} with --part)"
    )
    parser.add_argument(PART, action="store_true", help="run the part of CI: seconds per target")
    parser.add_argument("--keep", action="store_true", help="add to the corpus and its notes")
    asked = parser.parse_args()
    seconds = asked.seconds
    if seconds is None:
        seconds = _PART_S if asked.part else _SECONDS
    for name in asked.targets:
        if name not in TARGETS:
            parser.error(f"there is no target {name!r}: it should be one of {', '.join(TARGETS)}")
    return argparse.Namespace(**{**vars(asked), "seconds": seconds})


def _fuzz(target: Target, seconds: int, keep: bool, fuzzer: Callable[..., str]) -> Run:
    """Fuzz one target. *fuzzer* runs libFuzzer on it with options, and returns its output."""
    found = _FOUND / target.name
    found.mkdir(parents=True, exist_ok=True)
    before = set(found.iterdir())
    with tempfile.TemporaryDirectory() as folder:
        work = Path(folder)
        for seed in target.seeds():
            (work / hashlib.sha1(seed, usedforsecurity=False).hexdigest()).write_bytes(seed)
        output = fuzzer(
            target,
            f"-max_total_time={seconds}",
            f"-max_len={_LONGEST}",
            f"-timeout={_SLOWEST_S}",
            f"-rss_limit_mb={_MOST_MIB}",
            f"-artifact_prefix={found}/",
            "-print_final_stats=1",
            str(work),
            *([str(target.corpus)] if target.corpus.exists() else []),
        )
        if keep:
            target.corpus.mkdir(parents=True, exist_ok=True)
            _libfuzzer(target, "-merge=1", f"-max_len={_LONGEST}", str(target.corpus), str(work))
    executed = _EXECUTED.search(output)
    if executed is None:
        raise SystemExit(f"make fuzz: {target.name} did not run:\n{output[-4000:]}")
    new = sorted(set(found.iterdir()) - before)
    return Run(target, int(executed[1]), new, output)


class _Forks:
    """Runs libFuzzer in forks of one process (``forks.py``)."""

    def __enter__(self) -> Self:
        self._process = subprocess.Popen(
            [sys.executable, "-m", "tests.fuzz.forks"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
        )
        return self

    def __exit__(self, *_: object) -> None:
        self._process.communicate()

    def __call__(self, target: Target, *options: str) -> str:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        with tempfile.TemporaryDirectory() as folder:
            output = Path(folder) / "output"
            self._process.stdin.write(json.dumps([target.name, str(output), *options]) + "\n")
            self._process.stdin.flush()
            self._process.stdout.readline()
            return output.read_text(errors="replace") if output.exists() else ""


def _libfuzzer(target: Target, *options: str) -> str:
    command = [sys.executable, "-m", "tests.fuzz.one", target.name]
    with tempfile.TemporaryDirectory() as folder:
        itself = Path(folder) / target.name
        # A child that another thread starts meanwhile would have the file open for writing, too,
        # and such a file cannot be executed.
        with _STARTING:
            itself.write_text(f'#!/bin/sh\nexec {shlex.join([*command, str(itself)])} "$@"\n')
            itself.chmod(0o755)
            process = subprocess.Popen(
                [str(itself), *options],
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                text=True,
                errors="replace",
            )
        return process.communicate()[0]


def _count(runs: list[Run]) -> None:
    """Return the executions over the corpus's life, by target."""
    counted = json.loads(_NOTES.read_text()) if _NOTES.exists() else {}
    for run in runs:
        counted[run.target.name] = counted.get(run.target.name, 0) + run.executions
    _NOTES.write_text(json.dumps(dict(sorted(counted.items())), indent=2) + "\n")


if __name__ == "__main__":
    sys.exit(main())
