"""Cells of the conformance table: only a stalled test machine excuses a failure, and not
repeatedly.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from itertools import count

import pytest

from broker_core.tasks import spawn
from tests.conformance.clients.gateway_play import clock_offset_ns
from tests.conformance.clients.standstills import LATE_S, Standstills
from tests.conformance.clients.table import PLAYS, Result, judged


def judge(
    outcomes: list[Result], *, standstills: Standstills, at_play: Callable[[], None]
) -> Result:
    left = iter(outcomes)

    async def play() -> Result:
        at_play()
        return next(left)

    return asyncio.run(judged(play, standstills))


def test_a_failure_counts_if_the_harness_was_in_time() -> None:
    standstills = Standstills()
    standstills.note(time.monotonic() - 1, 5.0)  # before the case began

    result = judge([Result(1, "no ack")], standstills=standstills, at_play=lambda: None)

    assert (result.failure, result.stood_still) == ("no ack", ())


def test_a_failure_during_a_stall_is_reported_and_repeated() -> None:
    standstills = Standstills()
    late = iter([LATE_S, LATE_S / 2])

    result = judge(
        [Result(1, "no ack"), Result(2)],
        standstills=standstills,
        at_play=lambda: standstills.note(time.monotonic() + 0.001, next(late)),
    )

    assert result.failure is None
    assert result.stood_still == ("no ack (the proxies were stalled for 0.15 s)",)


def test_a_client_that_always_fails_is_not_excused() -> None:
    standstills = Standstills()

    result = judge(
        [Result(1, f"no ack {n}") for n in range(PLAYS)],
        standstills=standstills,
        at_play=lambda: standstills.note(time.monotonic() + 0.001, 1.0),
    )

    assert result.failure == f"no ack {PLAYS - 1}"
    assert len(result.stood_still) == PLAYS - 1


def test_a_loop_that_is_kept_busy_is_late() -> None:
    async def run() -> float:
        standstills = Standstills()
        watch = spawn(standstills.watch(), name="standstills")
        await asyncio.sleep(0)
        began = time.monotonic()
        time.sleep(LATE_S + 0.1)  # noqa: ASYNC251 - it is what is looked for
        await asyncio.sleep(0.05)
        watch.cancel()
        return standstills.longest_since(began)

    assert asyncio.run(run()) >= LATE_S


# ---- clocks --------------------------------------------------------------------------------------


@pytest.mark.parametrize(("slept_ns", "expected_ns"), [(0, 0), (5 * 10**9, 5 * 10**9)])
def test_a_stall_between_two_clock_reads_is_not_sleep(
    monkeypatch: pytest.MonkeyPatch, slept_ns: int, expected_ns: int
) -> None:
    stalls = count()  # reads of a clock; the process stalls before most of them
    clock_ns = 10**12

    def look(ahead_ns: int) -> int:
        nonlocal clock_ns
        clock_ns += 50 if 10 < next(stalls) < 20 else 200_000
        return clock_ns + ahead_ns

    monkeypatch.setattr(time, "monotonic_ns", lambda: look(0))
    monkeypatch.setattr(time, "clock_gettime_ns", lambda _: look(slept_ns))

    assert clock_offset_ns() - expected_ns in range(100)
