"""Check that every broken client fails the case written for it."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Sequence

from tests.conformance.clients.broken.__main__ import BROKEN
from tests.conformance.clients.cases import Case
from tests.conformance.clients.certificates import Certificates
from tests.conformance.clients.player import Play
from tests.conformance.clients.table import Result, played

#: Most of these cases wait in vain, because broken clients omit the expected event.
_PATIENCE_S = 5.0
_AT_A_TIME = 20


async def run_broken(cases: Sequence[Case], certificates: Certificates) -> tuple[int, int, str]:
    """Return how many defects were detected, how many were missed, and a table."""
    by_name = {case.case: case for case in cases}
    named = {name: broken for name, broken in BROKEN.items() if broken.case in by_name}
    places = asyncio.Semaphore(_AT_A_TIME)

    async def one(name: str) -> Result:
        command = [sys.executable, "-m", "tests.conformance.clients.broken", name]
        play = Play(by_name[named[name].case], command, certificates, patience_s=_PATIENCE_S)
        async with places:
            return await played(play)

    results = await asyncio.gather(*(one(name) for name in named))
    lines = []
    for (name, broken), result in zip(named.items(), results, strict=True):
        verdict = "NOT SEEN" if result.failure is None else "seen"
        why = result.failure or broken.what
        text = f"{verdict:<8} {result.seconds:5.1f}  {name:<30} {broken.case:<36} {why}"
        lines.append(text[:180])
    missed = sum(result.failure is None for result in results)
    return len(results) - missed, missed, "\n".join(lines)
