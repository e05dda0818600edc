"""``make conformance``: every client through every case; a table, and the exit code.

``python -m tests.conformance.clients [--language go] [--case NAME] [-v]``
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
from dataclasses import dataclass
from pathlib import Path

import structlog

from tests.conformance.clients.broken.__main__ import BROKEN
from tests.conformance.clients.cases import Case, CaseError, read_cases
from tests.conformance.clients.certificates import Certificates, make_certificates
from tests.conformance.clients.gateway_play import GatewayPlay
from tests.conformance.clients.languages import LANGUAGES, BuildFailed, Language, run
from tests.conformance.clients.player import CaseFailed, Play

#: Cases under way at a time: they wait more than they work.
AT_A_TIME = 10


@dataclass(frozen=True, slots=True)
class Result:
    """What became of one case with one client."""

    seconds: float
    failure: str | None = None
    trace: str = ""


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m tests.conformance.clients")
    names = [language.name for language in LANGUAGES]
    parser.add_argument("--language", action="append", choices=names, help="default: all")
    parser.add_argument("--case", action="append", help="a name or its beginning; default: all")
    parser.add_argument("--no-build", action="store_true", help="take what is built")
    parser.add_argument("--no-tests", action="store_true", help="skip the clients' unit tests")
    parser.add_argument("--broken", action="store_true", help="do the cases see broken clients?")
    parser.add_argument("-v", "--verbose", action="store_true", help="show the traces of failures")
    return parser.parse_args()


def main() -> int:
    options = _arguments()
    try:
        cases = read_cases()
    except CaseError as error:
        print(f"conformance: {error}", file=sys.stderr)
        return 2
    if options.case:
        cases = [case for case in cases if case.case.startswith(tuple(options.case))]
        if not cases:
            print(f"conformance: no case is called {options.case}", file=sys.stderr)
            return 2
    if options.broken:
        return _run_broken(cases)
    chosen = [each for each in LANGUAGES if not options.language or each.name in options.language]
    ready, skipped, wrong = [], [], 0
    for language in chosen:
        why = _absence(language)
        if why is not None:
            skipped.append(language)
            print(f"{language.name}: {why}")
        elif options.no_build or _build(language, tests=not options.no_tests):
            ready.append(language)
        else:
            wrong += 1
    _be_silent()
    with tempfile.TemporaryDirectory(prefix="orderlane-conformance-") as folder:
        certificates = make_certificates(Path(folder) / "tls")
        results = asyncio.run(_run(ready, cases, certificates))
    _print_table(ready, cases, results, verbose=options.verbose)
    failed = sum(result.failure is not None for result in results.values()) + wrong
    passed = len(results) - failed + wrong
    absent = len(skipped) * len(cases)
    print(f"{passed} passed, {failed} failed, {absent} skipped")
    required = os.environ.get("ORDERLANE_REQUIRE_ALL") == "1"
    return 1 if failed or (absent and required) else 0


def _run_broken(cases: Sequence[Case]) -> int:
    """A table of broken clients; 1 if one passes the case that is meant for it."""
    by_name = {case.case: case for case in cases}
    named = {name: broken for name, broken in BROKEN.items() if broken.case in by_name}
    missed = 0
    with tempfile.TemporaryDirectory(prefix="orderlane-conformance-") as folder:
        certificates = make_certificates(Path(folder) / "tls")

        async def one(name: str, places: asyncio.Semaphore) -> tuple[str, Result]:
            command = [sys.executable, "-m", "tests.conformance.clients.broken", name]
            play = Play(by_name[named[name].case], command, certificates, patience_s=6.0)
            async with places:
                return name, await _played(play)

        async def all_of_them() -> list[tuple[str, Result]]:
            places = asyncio.Semaphore(AT_A_TIME)
            return await asyncio.gather(*(one(name, places) for name in named))

        for name, result in asyncio.run(all_of_them()):
            missed += result.failure is None
            verdict = "NOT SEEN" if result.failure is None else "seen"
            print(f"{verdict:<8}  {name:<32} {named[name].case:<36} {result.failure or ''}"[:200])
    print(f"{len(named) - missed} seen, {missed} not seen")
    return 1 if missed else 0


async def _played(play: Play) -> Result:
    began = time.monotonic()
    failure = None
    try:
        await play.run()
    except CaseFailed as error:
        failure = str(error)
    except Exception as error:  # of the harness: the other cases go on
        failure = f"{type(error).__name__}: {error}"
    trace = f"{play.trace.text()}\n{play.errors.decode(errors='replace')[-3000:]}"
    return Result(time.monotonic() - began, failure, trace)


def _be_silent() -> None:
    """Clients that do not trust us, and proxies that end, are what cases want, and no news."""

    def drop(*_: object) -> None:
        raise structlog.DropEvent

    structlog.configure(processors=[drop])
    logging.getLogger("asyncio").setLevel(logging.CRITICAL)


def _absence(language: Language) -> str | None:
    """Why it cannot be run, in words; None if it can."""
    if not language.is_there:
        return f"skipped: there is no {language.folder.name} here"
    if language.missing:
        return f"skipped: its tools are missing (apt-get install {' '.join(language.missing)})"
    return None


def _build(language: Language, *, tests: bool) -> bool:
    try:
        built_s = run(language, language.build)
        tested_s = run(language, language.tests) if tests else 0.0
    except BuildFailed as error:
        print(f"FAILED  {error}")
        return False
    if language.build:
        print(f"{language.name}: built in {built_s:.0f} s, its unit tests took {tested_s:.0f} s")
    return True


async def _run(
    languages: Sequence[Language], cases: Sequence[Case], certificates: Certificates
) -> dict[tuple[str, str], Result]:
    places = asyncio.Semaphore(AT_A_TIME)
    results: dict[tuple[str, str], Result] = {}

    async def one(language: Language, case: Case) -> None:
        async with places:
            kind = Play if case.gateway is None else GatewayPlay
            play = kind(case, language.program(), certificates)
            results[case.case, language.name] = await _played(play)

    async with asyncio.TaskGroup() as group:
        for case in cases:
            for language in languages:
                group.create_task(one(language, case))
    return results


def _print_table(
    languages: Sequence[Language],
    cases: Sequence[Case],
    results: dict[tuple[str, str], Result],
    *,
    verbose: bool,
) -> None:
    wide = max((len(case.case) for case in cases), default=0)
    print(f"{'case':<{wide}}", *(f"{language.name:>8}" for language in languages))
    for case in cases:
        row = [results[case.case, language.name] for language in languages]
        marks = [f"{'FAILED' if r.failure else f'{r.seconds:.1f}':>8}" for r in row]
        print(f"{case.case:<{wide}}", *marks)
    for (case_name, language_name), result in sorted(results.items()):
        if result.failure is not None:
            print(f"FAILED  {case_name} {language_name}: {result.failure}")
            if verbose:
                print(result.trace)


if __name__ == "__main__":
    sys.exit(main())
