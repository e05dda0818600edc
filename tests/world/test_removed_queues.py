"""Queues that an operator removes from a topic, and adds again: handed over, not lost.

D5 of the history checker finds repetitions after a clean end, D1 skipped messages.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any

import pytest

from testkit.simulation.world import World as SimulatedWorld
from testkit.simulation.world import simulate
from tests.mutants.clients import Worker
from tests.mutants.scenarios import KEYS, RULES, judge
from tests.mutants.world import QUEUES, TOPIC, Events, RunningProxy, World

Play = Callable[[World], Coroutine[Any, Any, None]]


def history_of(play: Play) -> Events:
    async def run(simulated: SimulatedWorld) -> Events:
        world = World(simulated, RULES)
        await world.start()
        await play(world)
        return simulated.events

    return simulate(run, seed=1)


def hire(world: World, proxy: RunningProxy, **habits: Any) -> None:
    for number in range(3):
        worker = Worker(world, proxy, f"{proxy.name}-{number}", sloppy=False, **habits)
        world.start_client(worker.name, worker.run())


async def _resize(world: World, queues: int) -> None:
    await world.simulated.make_topic(TOPIC, queues)


async def _removed(world: World) -> None:
    hire(world, await world.start_proxy("left"))
    world.send(*KEYS, *KEYS)
    await asyncio.sleep(12.5)
    await _resize(world, 1)
    await asyncio.sleep(20)
    await _resize(world, 2)
    await asyncio.sleep(2)
    world.send(*KEYS)
    await world.finished()


async def _removed_at_work(world: World) -> None:
    """Remove it while clients hold messages of it; finished ones count."""
    hire(world, await world.start_proxy("left"), work_s=1.5, batch=1)
    world.send(*KEYS, *KEYS)
    await asyncio.sleep(3.2)
    await _resize(world, 1)
    await asyncio.sleep(20)
    await _resize(world, 2)
    await world.finished()


async def _removed_for_another(world: World) -> None:
    """Add it again at a proxy that did not own it."""
    left = await world.start_proxy("left")
    hire(world, left)
    world.send(*KEYS, *KEYS)
    await asyncio.sleep(12.5)
    await _resize(world, 1)
    await asyncio.sleep(10)
    await left.close()
    await _resize(world, 2)
    hire(world, await world.start_proxy("right"))
    world.send(*KEYS)
    await world.finished()


@pytest.mark.parametrize("play", [_removed, _removed_at_work, _removed_for_another])
def test_a_queue_that_is_removed_is_handed_over(play: Play) -> None:
    events = history_of(play)
    assert {name: each.examples for name, each in judge(events).violations.items()} == {}
    of_queue = [event for event in events if event.get("queue") == QUEUES[1].qid]
    assert {e["reason"] for e in of_queue if e["e"] == "own-"} == {"handed over"}
    first, again, *_ = [event for event in of_queue if event["e"] == "own+"]
    assert again["hold_until_ns"] <= again["t_ns"], "it waits for leases of the owner before"
    assert again["begin"] >= first["begin"]
    handled = [event["msg"] for event in events if event["e"] == "handle_end"]
    assert sorted(handled) == sorted(set(handled))
