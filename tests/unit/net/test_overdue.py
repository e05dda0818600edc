"""Time limits of many items: the first to begin is the first due; no items, no timer."""

from __future__ import annotations

import asyncio

from proxy.net.overdue import Overdue
from testkit.eventually import eventually


async def test_items_are_late_once_in_order_and_ended_ones_are_not() -> None:
    late: list[str] = []
    overdue = Overdue[str](0.1, late.append)
    began_s = asyncio.get_running_loop().time()
    for who in "abc":
        overdue.begin(who)
    overdue.end("b")
    overdue.end("absent")
    await asyncio.sleep(0.05)
    overdue.begin("a")  # it is active already: its time limit continues
    overdue.begin("d")
    await eventually(lambda: late == ["a", "c", "d"])
    assert asyncio.get_running_loop().time() - began_s >= 0.149
    assert len(overdue) == 0
    overdue.begin("e")
    await eventually(lambda: late == ["a", "c", "d", "e"])


async def test_the_callback_may_begin_and_end_others() -> None:
    late: list[str] = []

    def tell(who: str) -> None:
        late.append(who)
        overdue.end("b")
        if len(late) == 1:
            overdue.begin("a")

    overdue = Overdue[str](0.02, tell)
    overdue.begin("a")
    overdue.begin("b")
    await eventually(lambda: late == ["a", "a"])
    overdue.begin("c")
    await eventually(lambda: late == ["a", "a", "c"])


async def test_after_close_no_item_is_late() -> None:
    late: list[str] = []
    overdue = Overdue[str](0.01, late.append)
    overdue.begin("a")
    overdue.close()
    await asyncio.sleep(0.05)
    assert (late, len(overdue)) == ([], 0)


async def test_an_item_whose_end_fails_delays_no_other() -> None:
    late: list[int] = []

    def end(item: int) -> None:
        late.append(1 // item)

    overdue = Overdue[int](0.1, end)
    for item in (0, 1):
        overdue.begin(item)
    await eventually(lambda: late == [1])
    assert not overdue.has_timer
