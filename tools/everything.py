"""``make everything``: run every suite in full, and print a table.

Suites that take one processor run two at a time. ``--part`` does the same as ``.ci/run``: the
checks, ``make test``, and of every other suite the part that proves that its real component still
works.

Each suite's output goes to ``build/everything/SUITE.log``. After the table come the failures: the
end of each log, and the command that runs this suite, or its failed tests, alone. Exit code 1 if a
suite failed.
"""

from __future__ import annotations

import argparse
import os
import re
import shlex
import signal
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
LOGS = ROOT / "build" / "everything"

#: Lines of a failed suite's log that are shown.
TAIL_LINES = 30
#: Failed tests that a command names; above that it runs the suite.
MOST_IDS = 20
_AT_A_TIME = 2


@dataclass(frozen=True, slots=True)
class Suite:
    """A target of the Makefile, with its commands for the full and the partial run."""

    target: str
    full: str = ""
    """ARGS of the whole suite."""
    part: str | None = ""
    """ARGS of its part; None: the suite has no part in CI."""
    light: bool = False
    """The part takes about one processor, so another light one may run in parallel."""
    light_in_full: bool = False
    """The same of the full run."""
    pytest: str | None = None
    """Options for pytest to run single tests of the suite; None: not a pytest suite."""


def _one_worker(target: str, *, part: str = "") -> Suite:
    """Return a suite of pytest that runs with one worker, beside another one."""
    alone = "--numprocesses 1"
    return Suite(
        target, alone, f"{alone} {part}".rstrip(), light=True, light_in_full=True, pytest=""
    )


SUITES = (
    Suite("check"),
    Suite("test", pytest=""),
    Suite("test-slow", part=None, pytest=""),
    Suite("test-properties", part=None, pytest=""),
    # Real processes first: what fails there takes longest to repair. Those that judge times run
    # alone, so does everything that takes both processors.
    Suite("conformance", "", "--part"),
    Suite("chaos", "", "--part"),
    Suite("attack", part=None),
    Suite(
        "conformance-rocketmq",
        "",
        "--part",
        light_in_full=True,
        pytest="--time-limit 300 --broker 5.3.3 --broker 4.9.7",
    ),
    # Of light ones the longest first, so that both slots end at about the same time.
    Suite("torture", part=None, light_in_full=True),
    Suite("soak-memory", part=None, light_in_full=True),
    Suite("soak", part=None, light_in_full=True),
    _one_worker("test-worlds", part="--part"),
    Suite("test-spark", "--full", "--part", light=True, light_in_full=True, pytest="--full"),
    _one_worker("coverage"),
    Suite("fuzz", "", "--part", light=True, light_in_full=True),
    Suite("test-browser", "", "--part", light=True, light_in_full=True, pytest=""),
    Suite("helm-check", "", "--part", light=True, light_in_full=True, pytest=""),
    Suite("test-versions", part=None, light_in_full=True, pytest=""),
    Suite("test-api", light=True, light_in_full=True),
    Suite("test-redis", "", "--part", light=True, light_in_full=True, pytest=""),
    Suite("test-packages", "", "--part", light=True, light_in_full=True, pytest=""),
    Suite("release-check", "", "--part", light=True, light_in_full=True),
    Suite("docs", light=True, light_in_full=True),
    Suite("test-metrics", light=True, light_in_full=True, pytest=""),
    Suite("explore", "--seed 1 --hours 6 --jobs 2", "--seed 1 --plans 12 --jobs 1", light=True),
    Suite("mutants", light=True),
    # One round shows that each case runs. Figures need `make bench`, and a quiet machine.
    Suite("bench", "--rounds 1", part=None),
)


@dataclass(frozen=True, slots=True)
class Run:
    """A selected suite."""

    suite: Suite
    arguments: str
    beside: bool = False
    """Whether it runs in parallel with another one."""

    @property
    def target(self) -> str:
        """The suite's target for make."""
        return self.suite.target

    @property
    def log(self) -> Path:
        """The file of its output."""
        return LOGS / f"{self.target}.log"


@dataclass(frozen=True, slots=True)
class Outcome:
    """A finished run. ``code`` is that of make; times are in seconds."""

    run: Run
    code: int
    log: str
    wall_s: float
    processor_s: float

    @property
    def failed(self) -> bool:
        """Whether it failed. A missing tool is no failure unless everything is required."""
        return self.code != 0

    @property
    def result(self) -> str:
        """A word for the table, or the missing tool."""
        if missing := missing_tool(self.log):
            return f"missing tool: {missing.partition(':')[0]}"
        return "FAILED" if self.failed else "passed"


# ---- choosing -----------------------------------------------------------------------------------


def chosen(only: Iterable[str], *, part: bool) -> list[Run]:
    """Return the runs of the suites named in *only*; of all suites if it is empty.

    Raises ValueError for an unknown suite, or one without a part when parts are requested.
    """
    names = list(only)
    if unknown := sorted(set(names) - {suite.target for suite in SUITES}):
        known = ", ".join(suite.target for suite in SUITES)
        raise ValueError(f"there is no suite {unknown[0]!r}: expected one of {known}")
    suites = [suite for suite in SUITES if not names or suite.target in names]
    if not part:
        return [Run(suite, suite.full, beside=suite.light_in_full) for suite in suites]
    if without := [suite.target for suite in suites if names and suite.part is None]:
        raise ValueError(f"{without[0]} has no part: run it without --part")
    return [
        Run(suite, suite.part, beside=suite.light) for suite in suites if suite.part is not None
    ]


# ---- reading logs -------------------------------------------------------------------------------

_ESCAPES = re.compile(r"\x1b\[[0-9;]*m")
_MISSING = re.compile(r"^make [\w-]+: missing tool: (.+)$", re.MULTILINE)
_COUNT = re.compile(r"(\d+) (passed|failed|skipped|errors?|xfailed)\b")
#: The closing line of pytest, and of the project's own suites.
_CLOSING = re.compile(
    r"^\s*(?:=+ )?\d+ (?:passed|failed|skipped|errors?|deselected|xfailed|generated)\b"
)
_FAILED_TEST = re.compile(r"^(?:FAILED|ERROR) (tests/\S+?\.py(?:::.+?)?)(?: - .*)?$", re.MULTILINE)


def plain(log: str) -> str:
    """Return *log* without terminal colors."""
    return _ESCAPES.sub("", log)


def missing_tool(log: str) -> str | None:
    """Return the sentence of a suite that did not find its tool."""
    found = _MISSING.search(log)
    return found and found[1]


def counts(log: str) -> str:
    """Return the sum of the closing lines in *log*, such as ``12 passed, 1 skipped``; empty without
    any.
    """
    total: Counter[str] = Counter()
    for line in log.splitlines():
        if _CLOSING.match(line):
            for number, kind in _COUNT.findall(line):
                total[kind.removesuffix("s") if kind == "errors" else kind] += int(number)
    return ", ".join(f"{number} {kind}" for kind, number in total.items() if number)


def failed_tests(log: str) -> list[str]:
    """Return the node ids of pytest's summary, each once."""
    return list(dict.fromkeys(_FAILED_TEST.findall(log)))


# ---- printing -----------------------------------------------------------------------------------


def table(outcomes: Sequence[Outcome]) -> Iterator[str]:
    """Return a line for each suite, under a header."""
    head = ("suite", "result", "counts", "wall s", "processor s")
    rows = [
        (
            outcome.run.target,
            outcome.result,
            counts(outcome.log),
            f"{outcome.wall_s:.0f}",
            f"{outcome.processor_s:.0f}",
        )
        for outcome in outcomes
    ]
    widths = [max(len(row[column]) for row in (head, *rows)) for column in range(len(head))]
    for row in (head, tuple("-" * width for width in widths), *rows):
        texts = [cell.ljust(width) for cell, width in zip(row[:3], widths, strict=False)]
        figures = [cell.rjust(width) for cell, width in zip(row[3:], widths[3:], strict=True)]
        yield "  ".join([*texts, *figures])


def failure(outcome: Outcome) -> Iterator[str]:
    """Return the end of a failed suite's log, and the command that runs it alone."""
    yield f"==> {outcome.run.target}: {outcome.result} ({outcome.run.log.relative_to(ROOT)})"
    yield from outcome.log.rstrip().splitlines()[-TAIL_LINES:]
    yield f"alone: {rerun(outcome)}"


def rerun(outcome: Outcome) -> str:
    """Return the command that runs the failed tests alone, or the suite if they are unknown."""
    run = outcome.run
    found = failed_tests(outcome.log)
    if run.suite.pytest is not None and 0 < len(found) <= MOST_IDS:
        return shlex.join([".venv/bin/pytest", *shlex.split(run.suite.pytest), *found])
    return shlex.join(["make", run.target, *([f"ARGS={run.arguments}"] if run.arguments else [])])


# ---- running ------------------------------------------------------------------------------------


@dataclass(slots=True)
class Runner:
    """Starts suites as processes and prints their progress."""

    of: int
    _done: int = 0
    _running: dict[int, subprocess.Popen[bytes]] = field(default_factory=dict)
    _lock: threading.Lock = field(default_factory=threading.Lock)
    _stopped: bool = False

    def run_all(self, runs: Sequence[Run]) -> list[Outcome]:
        """Run them in order, two at a time where possible."""
        outcomes: list[Outcome] = []
        rest = list(runs)
        while rest:
            together = 1
            while rest[0].beside and together < len(rest) and rest[together].beside:
                together += 1
            with ThreadPoolExecutor(_AT_A_TIME) as pool:
                outcomes += pool.map(self._run, rest[:together])
            del rest[:together]
        if self._stopped:
            raise KeyboardInterrupt
        return outcomes

    def stop(self) -> None:
        """Stop the running suites and start no others."""
        self._stopped = True
        for process in list(self._running.values()):
            process.terminate()  # make passes it on to its children

    def _run(self, run: Run) -> Outcome:
        if self._stopped:
            raise KeyboardInterrupt
        say(f"{run.target} begins")
        began = time.monotonic()
        process = self._start(run)
        _, status, used = os.wait4(process.pid, 0)
        process.returncode = os.waitstatus_to_exitcode(status)
        del self._running[process.pid]
        wall_s = time.monotonic() - began
        outcome = Outcome(
            run=run,
            code=process.returncode,
            log=plain(run.log.read_text(errors="replace")),
            wall_s=wall_s,
            processor_s=used.ru_utime + used.ru_stime,
        )
        with self._lock:
            self._done += 1
            say(f"{run.target}: {outcome.result} after {wall_s:.0f} s ({self._done} of {self.of})")
        return outcome

    def _start(self, run: Run) -> subprocess.Popen[bytes]:
        # A make around this one passes its own ARGS, in the environment and in MAKEFLAGS.
        dropped = ("MAKEFLAGS", "MFLAGS", "MAKELEVEL", "MAKEOVERRIDES", "ARGS")
        environment = {name: text for name, text in os.environ.items() if name not in dropped}
        with run.log.open("wb") as log:
            process = subprocess.Popen(
                ["make", "--no-print-directory", run.target, f"ARGS={run.arguments}"],
                cwd=ROOT,
                env=environment,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
            )
        self._running[process.pid] = process
        return process


def say(text: str) -> None:
    """Print a line at once."""
    sys.stdout.write(f"{text}\n")
    sys.stdout.flush()


def main() -> int:
    """Run the requested suites; return the exit code."""
    parser = argparse.ArgumentParser(
        prog="make everything ARGS=",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--only", action="append", default=[], metavar="SUITE", help="repeatable")
    parser.add_argument("--part", action="store_true", help="the parts that .ci/run runs")
    options = parser.parse_args()
    try:
        runs = chosen(options.only, part=options.part)
    except ValueError as error:
        parser.error(str(error))
    LOGS.mkdir(parents=True, exist_ok=True)
    runner = Runner(of=len(runs))
    signal.signal(signal.SIGTERM, lambda *_: signal.raise_signal(signal.SIGINT))
    signal.signal(signal.SIGINT, lambda *_: runner.stop())
    began = time.monotonic()
    try:
        outcomes = runner.run_all(runs)
    except KeyboardInterrupt:
        say("interrupted; all suites were stopped")
        return 130
    return _report(outcomes, wall_s=time.monotonic() - began)


def _report(outcomes: Sequence[Outcome], *, wall_s: float) -> int:
    failed = [outcome for outcome in outcomes if outcome.failed]
    passed = sum(outcome.result == "passed" for outcome in outcomes)
    say("")
    for line in table(outcomes):
        say(line)
    say(f"{passed} of {len(outcomes)} suites passed in {wall_s:.0f} s")
    for outcome in failed:
        say("")
        for line in failure(outcome):
            say(line)
    return int(bool(failed))


if __name__ == "__main__":
    sys.exit(main())
