from __future__ import annotations

import asyncio
from collections.abc import Callable

import pytest

from broker_core.tasks import spawn
from broker_core.time_slices import TimeSlices

MS = 1_000_000


class Machine:
    """Records the pass of the loop in which work was done, by a clock that only work advances."""

    def __init__(self) -> None:
        self.now_ns = 0
        self.passes = 0
        self.done: list[tuple[str, int]] = []
        self.turns = TimeSlices(10 * MS, clock=lambda: self.now_ns)

    def work(self, name: str, ms: int = 4) -> Callable[[], str]:
        def work() -> str:
            self.now_ns += ms * MS
            self.done.append((name, self.passes))
            return name

        return work

    async def go_on(self, passes: int) -> None:
        for _ in range(passes):
            self.passes += 1
            await asyncio.sleep(0)


async def test_no_pass_begins_work_beyond_its_slice_and_all_is_done_in_order() -> None:
    machine = Machine()
    for name in "abcdefgh":
        machine.turns.run(machine.work(name))
    assert machine.done == [("a", 0), ("b", 0), ("c", 0)]

    await machine.go_on(5)

    assert "".join(name for name, _ in machine.done) == "abcdefgh"
    passes = [number for _, number in machine.done]
    assert [passes.count(number) for number in sorted(set(passes))] == [3, 3, 2]


async def test_who_comes_while_others_wait_comes_after_them() -> None:
    machine = Machine()
    for name in "abcde":
        machine.turns.run(machine.work(name))
    machine.turns.run(machine.work("late", ms=0))

    await machine.go_on(2)

    assert "".join(name for name, _ in machine.done) == "abcdelate"


async def test_where_there_is_little_to_do_all_is_done_at_once() -> None:
    machine = Machine()
    for number in range(20):
        machine.turns.run(machine.work(str(number), ms=2))
        await machine.go_on(1)
    assert [number for _, number in machine.done] == list(range(20))


@pytest.mark.failing_tasks
async def test_a_result_comes_back_and_so_does_what_went_wrong_also_later() -> None:
    machine = Machine()

    def fail() -> str:
        raise ValueError("no such record")

    assert await machine.turns.result(machine.work("now", ms=20)) == "now"
    later = spawn(machine.turns.result(machine.work("later")), name="waiting")
    failing = spawn(machine.turns.result(fail), name="waiting")
    assert await later == "later"
    with pytest.raises(ValueError, match="no such record"):
        await failing
    with pytest.raises(ValueError, match="no such record"):
        await machine.turns.result(fail)


async def test_work_of_a_cancelled_task_is_not_done_and_delays_no_other() -> None:
    machine = Machine()
    machine.turns.run(machine.work("long", ms=20))
    machine.turns.run(machine.work("longer", ms=20))
    gone = spawn(machine.turns.result(machine.work("gone")), name="waiting")
    stays = spawn(machine.turns.result(machine.work("stays")), name="waiting")
    await asyncio.sleep(0)
    gone.cancel()
    assert await stays == "stays"
    assert [name for name, _ in machine.done] == ["long", "longer", "stays"]


async def test_work_that_fails_does_not_stop_what_comes_after_it() -> None:
    machine = Machine()
    told: list[str] = []
    asyncio.get_running_loop().set_exception_handler(
        lambda _, context: told.append(str(context.get("exception")))
    )
    machine.turns.run(machine.work("long", ms=20))
    machine.turns.run(lambda: 1 // 0)
    machine.turns.run(machine.work("next"))
    await machine.go_on(4)
    assert [name for name, _ in machine.done] == ["long", "next"]
    assert len(told) == 1
    assert "by zero" in told[0]
