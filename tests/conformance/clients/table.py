"""Run cases with clients, many at a time, and report the results."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from broker_core.tasks import spawn
from testkit.thin_clients.languages import Language
from tests.conformance.clients.cases import Case
from tests.conformance.clients.certificates import Certificates
from tests.conformance.clients.gateway_play import GatewayPlay
from tests.conformance.clients.player import CaseFailed, Play
from tests.conformance.clients.standstills import Standstills

#: Cases at a time: they mostly wait.
AT_A_TIME = 8
#: The same for cases with a gateway, which runs in this process: more would only wait for it, and
#: short locks would expire.
GATEWAYS_AT_A_TIME = 4
#: Maximum plays of a case: a failure during a standstill of this process is repeated.
PLAYS = 3
Results = Mapping[tuple[str, str], "Result"]


@dataclass(frozen=True, slots=True)
class Result:
    """The result of one case with one client."""

    seconds: float
    failure: str | None = None
    trace: str = ""
    stood_still: tuple[str, ...] = ()
    """Earlier failures not caused by the client, and why."""


async def played(play: Play) -> Result:
    """Run one case to its end; a failure is a result."""
    began = time.monotonic()
    failure = None
    try:
        await play.run()
    except CaseFailed as error:
        failure = str(error)
    except Exception as error:  # of the harness: other cases continue
        failure = f"{type(error).__name__}: {error}"
    trace = f"{play.trace.text()}\n{play.errors.decode(errors='replace')[-3000:]}"
    return Result(time.monotonic() - began, failure, trace)


async def judged(play: Callable[[], Awaitable[Result]], standstills: Standstills) -> Result:
    """Return the result of *play*, repeated if it fails while this process, which runs the proxies,
    is late itself: then answers came later than the case specifies. A client that fails each time
    has failed; excused failures are reported.
    """
    excused: list[str] = []
    while True:
        began = time.monotonic()
        result = await play()
        late_s = standstills.longest_since(began)
        if result.failure is None or not late_s or len(excused) == PLAYS - 1:
            return replace(result, stood_still=tuple(excused))
        excused.append(f"{result.failure} (the proxies were stalled for {late_s:.2f} s)")


async def run_cases(
    languages: Sequence[Language], cases: Sequence[Case], certificates: Certificates
) -> Results:
    """Run every case with every client."""
    places: dict[type[Play], asyncio.Semaphore] = {Play: asyncio.Semaphore(AT_A_TIME)}
    places[GatewayPlay] = asyncio.Semaphore(GATEWAYS_AT_A_TIME)
    results: dict[tuple[str, str], Result] = {}
    standstills = Standstills()

    async def one(language: Language, case: Case) -> None:
        kind = Play if case.gateway is None else GatewayPlay
        async with places[kind]:
            results[case.case, language.name] = await judged(
                lambda: played(kind(case, language.program(), certificates)), standstills
            )

    watch = spawn(standstills.watch(), name="standstills")
    async with asyncio.TaskGroup() as group:
        for case in cases:
            for language in languages:
                group.create_task(one(language, case))
    watch.cancel()
    return results


def table_lines(
    languages: Sequence[Language], cases: Sequence[Case], results: Results, *, verbose: bool
) -> Iterator[str]:
    """Return case by language with seconds, then the failures as sentences."""
    wide = max((len(case.case) for case in cases), default=0)
    yield " ".join([f"{'case':<{wide}}", *(f"{language.name:>8}" for language in languages)])
    for case in cases:
        row = [results[case.case, language.name] for language in languages]
        marks = [f"{'FAILED' if r.failure else f'{r.seconds:.1f}':>8}" for r in row]
        yield " ".join([f"{case.case:<{wide}}", *marks])
    for (case_name, language_name), result in sorted(results.items()):
        for each in result.stood_still:
            yield f"AGAIN   {case_name} {language_name}: {each}"
        if result.failure is not None:
            yield f"FAILED  {case_name} {language_name}: {result.failure}"
            if verbose:
                yield result.trace
