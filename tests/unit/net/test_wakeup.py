from __future__ import annotations

import asyncio

import pytest

from broker_core.tasks import cancel_and_wait, spawn
from proxy.net.wakeup import Signal


async def test_firing_wakes_all_waiting_tasks_and_no_later_ones() -> None:
    signal = Signal()
    waiting = [spawn(signal.wait(5), name=f"waiter {n}") for n in range(3)]
    await asyncio.sleep(0)
    signal.fire()
    signal.fire()
    assert await asyncio.gather(*waiting) == [True] * 3
    assert await signal.wait(0.01) is False


async def test_firing_without_waiting_tasks_is_not_remembered() -> None:
    signal = Signal()
    signal.fire()
    assert await signal.wait(0) is False


async def test_timed_out_and_cancelled_waits_are_forgotten() -> None:
    signal = Signal()
    assert await signal.wait(0.001) is False
    waiting = spawn(signal.wait(5), name="waiter")
    await asyncio.sleep(0)
    assert signal.waiters == 1
    await cancel_and_wait(waiting)
    assert waiting.cancelled()
    assert signal.waiters == 0
    signal.fire()


async def test_firing_soon_fires_once_for_several_calls() -> None:
    signal, fired = Signal(), 0

    def condition() -> bool:
        nonlocal fired
        fired += 1
        return True

    waiting = spawn(signal.wait(5, until=condition), name="waiter")
    await asyncio.sleep(0)
    signal.fire_soon(0.001)
    signal.fire_soon(0.001)
    assert not waiting.done()
    assert await waiting is True
    assert fired == 1


async def test_a_task_with_a_condition_sleeps_until_it_is_met() -> None:
    signal, met = Signal(), False
    waiting = spawn(signal.wait(5, until=lambda: met), name="waiter")
    await asyncio.sleep(0)
    signal.fire()
    await asyncio.sleep(0)
    assert not waiting.done()
    met = True
    signal.fire()
    assert await waiting is True


@pytest.mark.failing_tasks
async def test_a_condition_that_fails_hits_its_own_task_alone() -> None:
    signal = Signal()

    def fails() -> bool:
        raise ValueError("a bug")

    one = spawn(signal.wait(5, until=fails), name="one")
    other = spawn(signal.wait(5), name="other")
    await asyncio.sleep(0)
    signal.fire()
    assert await other is True
    with pytest.raises(ValueError, match="a bug"):
        await one
