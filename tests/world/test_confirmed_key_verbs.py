"""A confirmed verb on a key survives a crash of the owner, however soon it comes."""

from __future__ import annotations

import asyncio

import pytest

from testkit.simulation.world import World as SimulatedWorld
from testkit.simulation.world import simulate
from tests.mutants.world import World
from tests.world.test_reset_during_redrive import KEYS, PARK, hire, until_parked


@pytest.mark.parametrize("after_s", [0.0, 0.05, 0.5])
def test_a_confirmed_redrive_goes_on_at_the_next_owner(after_s: float) -> None:
    async def run(simulated: SimulatedWorld) -> None:
        world = World(simulated, PARK)
        await world.start()
        fails = {"poison"}
        left = await world.start_proxy("left")
        hire(world, left, fails=fails, work_s=0.7)
        world.send(*(["poison"] * 6), *KEYS)
        await until_parked(left, 6)
        fails.clear()
        await left.redrive()
        await asyncio.sleep(after_s)
        left.kill()
        hire(world, right := await world.start_proxy("right"), fails=fails)
        await until_parked(right, 0)
        await world.finished(within_s=90)

    simulate(run, seed=1)


@pytest.mark.parametrize("after_s", [0.0, 0.05, 0.5])
def test_a_key_that_was_parked_by_an_operator_stays_parked(after_s: float) -> None:
    async def run(simulated: SimulatedWorld) -> None:
        world = World(simulated, PARK)
        await world.start()
        left = await world.start_proxy("left")
        hire(world, left, fails={"poison"}, work_s=0.7)
        world.send(*(["poison"] * 6))
        for _ in range(100):
            if await left.act("park", "poison", reason="broken"):
                break
            await asyncio.sleep(0.1)
        await asyncio.sleep(after_s)
        left.kill()
        hire(world, right := await world.start_proxy("right"))  # its handlers would not fail
        await until_parked(right, 6)

    simulate(run, seed=1)
