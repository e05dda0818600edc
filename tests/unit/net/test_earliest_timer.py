"""The timer with many deadlines fires once at the earliest, and can be set again."""

from __future__ import annotations

import asyncio

from broker_core.clock import now_ns
from proxy.net.earliest_timer import EarliestTimer
from testkit.eventually import eventually

MS = 1_000_000
FAR_NS = 3600 * 1_000_000_000


async def test_it_rings_for_the_earliest_time_whichever_came_first() -> None:
    for times in ((FAR_NS, 10 * MS), (10 * MS, FAR_NS)):
        rung = asyncio.Event()
        timer = EarliestTimer(rung.set)
        for time in times:
            timer.set(now_ns() + time)
        await asyncio.wait_for(rung.wait(), 10)
        assert not timer.is_set


async def test_a_past_deadline_fires_at_once_and_again_when_set_again() -> None:
    rings: list[bool] = []
    timer = EarliestTimer(lambda: rings.append(timer.is_set))
    timer.set(now_ns() - FAR_NS)
    await eventually(lambda: rings == [False])
    timer.set(now_ns() + MS)
    await eventually(lambda: rings == [False, False])


async def test_the_callback_may_set_the_timer() -> None:
    rings: list[int] = []

    def ring() -> None:
        rings.append(now_ns())
        if len(rings) < 3:
            timer.set(now_ns() + MS)

    timer = EarliestTimer(ring)
    timer.set(now_ns())
    await eventually(lambda: len(rings) == 3)


async def test_a_stopped_one_does_not_ring() -> None:
    rings: list[str] = []
    timer, other = (
        EarliestTimer(lambda: rings.append("stopped")),
        EarliestTimer(lambda: rings.append("other")),
    )
    timer.set(now_ns() + MS)
    other.set(now_ns() + 5 * MS)
    timer.stop()
    timer.stop()
    await eventually(lambda: rings == ["other"])
