"""``make conformance``: test the thin clients of all languages by the same rules.

Without arguments: build the clients and run their unit tests, then every client through every case,
then all of them in one group, killed at random; finally check the cases with broken clients.
``--language`` and ``--case`` select cells of the table and run nothing else. ``--part`` builds all
clients and runs only the cases of ``PART``, and the broken clients.
"""

from __future__ import annotations

import argparse
import asyncio
import logging
import os
import sys
import tempfile
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

import structlog

from testkit.thin_clients.languages import LANGUAGES, BuildFailed, Language, run
from tests.conformance.clients.broken.run import run_broken
from tests.conformance.clients.cases import Case, CaseError, read_cases
from tests.conformance.clients.certificates import Certificates, make_certificates
from tests.conformance.clients.mixed import run_mixed
from tests.conformance.clients.table import run_cases, table_lines

#: A few cases of each kind: order, redelivery, leases, lost answers, drain, fail-over, security,
#: producers, and a whole gateway.
PART = (
    "one-handler-a-key",
    "failure-in-a-run-stops-its-key",
    "batches-of-a-key",
    "outcome-error",
    "held-leases-are-extended",
    "lost-lease-reaches-the-handler",
    "lost-pull-answer-with-verdicts",
    "drain-in-time",
    "drain-resends-lost-verdicts",
    "fail-over",
    "token-in-every-request",
    "tls-client-certificate",
    "key-hash",
    "producer-lost-answer",
    "gateway-retries",
    "gateway-killed-client",
)


@dataclass(slots=True)
class Score:
    """The figures of the closing line."""

    passed: int = 0
    failed: int = 0
    skipped: int = 0


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m tests.conformance.clients")
    names = [language.name for language in LANGUAGES]
    parser.add_argument("--language", action="append", choices=names, help="default: all")
    parser.add_argument("--case", action="append", help="a name or its prefix; default: all")
    parser.add_argument("--part", action="store_true", help="only cases of CI, without unit tests")
    parser.add_argument("--no-build", action="store_true", help="use existing builds")
    parser.add_argument("--no-tests", action="store_true", help="skip the clients' unit tests")
    parser.add_argument("--table", action="store_true", help="only the table")
    parser.add_argument("--mixed", action="store_true", help="only the mixed group")
    parser.add_argument("--broken", action="store_true", help="only the broken clients")
    parser.add_argument("--seed", type=int, default=5, help="seed of the mixed group")
    parser.add_argument("-v", "--verbose", action="store_true", help="show the traces of failures")
    given = parser.parse_args()
    chosen = {}
    if given.part:
        chosen = {"table": True, "broken": True, "no_tests": True}
    elif not (given.table or given.mixed or given.broken):
        all_of_it = not (given.language or given.case)
        chosen = {"table": True, "mixed": all_of_it, "broken": all_of_it}
    return argparse.Namespace(**{**vars(given), **chosen})


def main() -> int:
    options = _arguments()
    try:
        all_cases = cases = read_cases()
    except CaseError as error:
        print(f"conformance: {error}", file=sys.stderr)
        return 2
    if options.part:
        cases = [case for case in cases if case.case in PART]
    if options.case:
        all_cases = cases = [case for case in cases if case.case.startswith(tuple(options.case))]
        if not cases:
            print(f"conformance: no case starts with {options.case}", file=sys.stderr)
            return 2
    chosen = [each for each in LANGUAGES if not options.language or each.name in options.language]
    _be_silent()
    score = Score()
    languages = _ready(chosen, cases, options, score) if options.table or options.mixed else []
    with tempfile.TemporaryDirectory(prefix="orderlane-conformance-") as folder:
        certificates = make_certificates(Path(folder) / "tls")
        asyncio.run(_run(languages, cases, certificates, options, score))
        if options.broken:  # a fast path of a client may pass a defect by: all of them
            asyncio.run(_run_broken(all_cases, certificates, score))
    print(f"{score.passed} passed, {score.failed} failed, {score.skipped} skipped")
    required = os.environ.get("ORDERLANE_REQUIRE_ALL") == "1"
    return 1 if score.failed or (score.skipped and required) else 0


def _be_silent() -> None:
    """Silence errors that cases cause on purpose: untrusted certificates and stopped proxies."""

    def drop(*_: object) -> None:
        raise structlog.DropEvent

    structlog.configure(processors=[drop])
    logging.getLogger("asyncio").setLevel(logging.CRITICAL)


# ---- preparation --------------------------------------------------------------------------------


def _ready(
    chosen: Sequence[Language], cases: Sequence[Case], options: argparse.Namespace, score: Score
) -> list[Language]:
    """Return the clients that can run; report and count those that are missing or fail."""
    present = []
    for language in chosen:
        why = _absence(language)
        if why is None:
            present.append(language)
        else:
            score.skipped += len(cases)
            print(f"{language.name}: skipped: {why}", flush=True)
    if options.no_build:
        return present
    with ThreadPoolExecutor() as pool:  # in parallel, since downloads take time
        right = list(pool.map(lambda each: _prepare(each, options), present))
    score.failed += len(cases) * right.count(False)
    return [language for language, is_right in zip(present, right, strict=True) if is_right]


def _prepare(language: Language, options: argparse.Namespace) -> bool:
    """Build the client and run its tests; report a failure and return False."""
    build = (options.part and language.build_program) or language.build
    try:
        built_s = run(language, build)
        tested_s = run(language, () if options.no_tests else language.tests)
    except BuildFailed as error:
        print(f"FAILED  {error}", flush=True)
        return False
    if language.build:
        text = f"{language.name}: built in {built_s:.0f} s, unit tests in {tested_s:.0f} s"
        print(text, flush=True)
    return True


def _absence(language: Language) -> str | None:
    """Return why the client cannot run; None if it can."""
    if not language.is_there:
        return f"{language.folder.name} is missing"
    if language.missing:
        return f"its tools are missing (apt-get install {' '.join(language.missing)})"
    return language.too_old


# ---- the runs -----------------------------------------------------------------------------------


async def _run(
    languages: Sequence[Language],
    cases: Sequence[Case],
    certificates: Certificates,
    options: argparse.Namespace,
    score: Score,
) -> None:
    if options.table and languages:
        began = time.monotonic()
        results = await run_cases(languages, cases, certificates)
        for line in table_lines(languages, cases, results, verbose=options.verbose):
            print(line)
        failed = sum(result.failure is not None for result in results.values())
        score.failed += failed
        score.passed += len(results) - failed
        print(f"table: {len(results)} cells in {time.monotonic() - began:.0f} s", flush=True)
    if options.mixed and languages:
        outcome = await run_mixed(languages, seed=options.seed)
        print(*outcome.lines, sep="\n", flush=True)
        for failure in outcome.failures:
            print(f"FAILED  mixed group: {failure}")
        score.passed += not outcome.failures
        score.failed += bool(outcome.failures)


async def _run_broken(cases: Sequence[Case], certificates: Certificates, score: Score) -> None:
    began = time.monotonic()
    seen, missed, table = await run_broken(cases, certificates)
    print(table)
    score.passed += seen
    score.failed += missed
    print(f"broken clients: {seen} detected, {missed} missed, {time.monotonic() - began:.0f} s")


if __name__ == "__main__":
    sys.exit(main())
