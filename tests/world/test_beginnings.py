"""The first offset of a group is kept, even if everything crashes before its first records."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any

import pytest

from testkit.simulation.world import World as SimulatedWorld
from testkit.simulation.world import simulate
from tests.mutants.clients import Worker
from tests.mutants.scenarios import KEYS, RULES
from tests.mutants.world import GROUP, TOPIC, Events, RunningProxy, World
from tests.world.stage import Stage, play

Play = Callable[[World], Coroutine[Any, Any, None]]


class LatestWorld(World):
    """The group begins at the latest message."""

    def change(self, **rules: Any) -> None:
        topic = {"name": str(TOPIC), "order_key": "KEY", **self._rules, **rules}
        group = {"name": GROUP, "start_from": "latest", "topics": [topic]}
        self.simulated.write_settings([group])


def history_of(play: Play, seed: int) -> Events:
    async def run(simulated: SimulatedWorld) -> Events:
        world = LatestWorld(simulated, RULES)
        await world.start()
        await play(world)
        return simulated.events

    return simulate(run, seed=seed)


def hire(world: World, proxy: RunningProxy) -> None:
    for number in range(2):
        worker = Worker(world, proxy, f"{proxy.name}-{number}", sloppy=False)
        world.start_client(worker.name, worker.run())


async def _owned(world: World, queues: int) -> None:
    while sum(event["e"] == "own+" for event in world.simulated.events) < queues:  # noqa: ASYNC110
        await asyncio.sleep(0.001)


def _all_die(power: bool, queues: int) -> Play:
    async def play(world: World) -> None:
        world.send(*KEYS, *KEYS)  # before the group existed
        await asyncio.sleep(5)
        left = await world.start_proxy("left")
        hire(world, left)
        await _owned(world, queues)
        left.kill()
        await world.restart_broker(power=power)
        await asyncio.sleep(3)
        right = await world.start_proxy("right")
        hire(world, right)
        await asyncio.sleep(20)
        world.send(*KEYS)
        await asyncio.sleep(30)
        await right.close()

    return play


@pytest.mark.parametrize("seed", [1, 2])
@pytest.mark.parametrize("power", [False, True])
@pytest.mark.parametrize("queues", [1, 2])
def test_latest_stays_latest_where_broker_and_proxy_die_before_the_first_record(
    queues: int, power: bool, seed: int
) -> None:
    events = history_of(_all_die(power, queues), seed)
    sent = [event["msg"] for event in events if event["e"] == "send_ok"]
    handled = {event["msg"] for event in events if event["e"] == "handle_end"}
    assert handled == set(sent[2 * len(KEYS) :])


@pytest.mark.parametrize("ahead_s", [0, 120], ids=["one clock", "a proxy's clock ahead"])
def test_a_waiting_group_gets_the_first_messages_of_a_new_topic(ahead_s: int) -> None:
    async def main(stage: Stage) -> None:
        topics = [{"name": "orders", "order_key": "KEY"}]
        group = {"name": "billing", "start_from": "latest", "topics": topics}
        await stage.start(groups=[group], topics={"mail": 1})
        stage.world.proxies[0].jump_clock(ahead_s)
        stage.consume("consumer", "billing")
        await asyncio.sleep(30)
        await stage.world.make_topic("orders", 1)
        await stage.send("orders", ["a", "b"], 50)
        await stage.until(lambda: len(stage.of("finish", outcome="ok")) == 50)

    assert play(main) == {}
