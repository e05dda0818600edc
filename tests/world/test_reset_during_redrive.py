"""An operator moves a group in a queue while parked keys of that queue are redriven."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from testkit.simulation.world import World as SimulatedWorld
from testkit.simulation.world import simulate
from tests.mutants.clients import Worker
from tests.mutants.scenarios import KEYS, RULES, judge
from tests.mutants.world import Events, RunningProxy, World

PARK = {**RULES, "on_exhausted": "park", "max_deliveries": 2}


def hire(world: World, proxy: RunningProxy, how_many: int = 3, **habits: Any) -> None:
    for number in range(how_many):
        worker = Worker(world, proxy, f"{proxy.name}-{number}", sloppy=False, **habits)
        world.start_client(worker.name, worker.run())


async def until_parked(proxy: RunningProxy, copies: int) -> None:
    for _ in range(300):
        if await proxy.parked() == copies:
            return
        await asyncio.sleep(0.2)
    raise AssertionError(f"{await proxy.parked()} copies are parked, not {copies}")


def history_of(after_s: float, *, more: bool, killed: bool, seed: int = 1) -> Events:
    """Return a history in which the redriven key's queue is moved to its end, *after_s* after the
    start of the redrive.
    """

    async def play(world: World) -> None:
        fails = {"poison"}
        left = await world.start_proxy("left")
        hire(world, left, fails=fails, work_s=0.7)
        here = world.queue_of("poison")
        world.send(*(["poison"] * 6))
        world.send(*KEYS)
        await until_parked(left, 6)
        fails.clear()
        await left.redrive()
        if more:
            world.send("poison", "poison", *KEYS)
        await asyncio.sleep(after_s)
        base = await left.base(here)
        await left.move(here, to=base + (2 if more else 0), expect=base)
        if killed:
            await asyncio.sleep(0.3)
            left.kill()
            hire(world, left := await world.start_proxy("right"), fails=fails)
        world.send("poison", *KEYS)
        await until_parked(left, 0)
        world.send("poison")
        await world.finished(within_s=90)

    async def run(simulated: SimulatedWorld) -> Events:
        world = World(simulated, PARK)
        await world.start()
        await play(world)
        return simulated.events

    return simulate(run, seed=seed)


@pytest.mark.parametrize("more", [False, True])
@pytest.mark.parametrize("killed", [False, True])
@pytest.mark.parametrize("after_s", [0.1, 1.6])
def test_a_reset_during_a_redrive_keeps_parked_messages_in_order(
    after_s: float, killed: bool, more: bool
) -> None:
    events = history_of(after_s, more=more, killed=killed)
    assert any(event["e"] == "reset" for event in events)
    found = {name: each.examples for name, each in judge(events).violations.items()}
    assert {name: each for name, each in found.items() if name != "I1"} == {}
