"""A topic that is deleted and created again begins at its first message, whoever knew the old one.

A gateway of real parts in simulated worlds. The history checker judges each run: D1 and C2 find
messages of the next life that nobody gets, G1 what is left of the former one.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from testkit.simulation.world import World as SimulatedWorld
from testkit.simulation.world import simulate
from tests.mutants.clients import Worker
from tests.mutants.scenarios import KEYS, RULES, judge
from tests.mutants.world import Events, RunningProxy, World

Play = Callable[[World], Coroutine[Any, Any, None]]


def history_of(play: Play, *, seed: int = 1, **rules: Any) -> Events:
    """The events of one run; *rules* are settings of the topic."""

    async def run(simulated: SimulatedWorld) -> Events:
        world = World(simulated, {**RULES, **rules})
        await world.start()
        await play(world)
        return simulated.events

    return simulate(run, seed=seed)


def violations(events: Events) -> dict[str, list[str]]:
    """What the checker finds."""
    return {name: each.examples for name, each in judge(events).violations.items()}


def stored(events: Events) -> int:
    """Number of messages that were sent for sure."""
    return sum(event["e"] == "send_ok" for event in events)


def last_life(events: Events) -> set[str]:
    """Messages of the topic's last life."""
    begun = max(at for at, event in enumerate(events) if event.get("what") == "created")
    return {event["msg"] for event in events[begun:] if event["e"] == "send_ok"}


def handled(events: Events) -> set[str]:
    """Messages that a handler saw."""
    return {event["msg"] for event in events if event["e"] == "handle_end"}


@contextmanager
def stopped(world: World, proxy: RunningProxy) -> Iterator[None]:
    """SIGSTOP, then SIGCONT."""
    node = world.simulated.nodes[proxy.name]
    world.simulated.nemesis.write("nemesis", what="stop", target=proxy.name, phase="begin")
    node.pause()
    try:
        yield
    finally:
        node.resume()
        world.simulated.nemesis.write("nemesis", what="stop", target=proxy.name, phase="end")


def hire(world: World, proxy: RunningProxy, how_many: int = 3, **habits: Any) -> None:
    """Clients of *proxy*."""
    for number in range(how_many):
        worker = Worker(world, proxy, f"{proxy.name}-{number}", sloppy=False, **habits)
        world.start_client(worker.name, worker.run())


def send(world: World, messages: int) -> None:
    """One message of a key after the other."""
    world.send(*(KEYS[number % len(KEYS)] for number in range(messages)))


@pytest.mark.parametrize("again", [5, 10, 15, 40])
@pytest.mark.parametrize("after_s", [0.0, 0.2, 8.0])
def test_all_messages_of_the_next_life_come_however_many_the_former_one_had(
    again: int, after_s: float
) -> None:
    async def play(world: World) -> None:
        hire(world, await world.start_proxy("left"))
        send(world, 10)
        await asyncio.sleep(12)
        await world.recreate(after_s=after_s)
        send(world, again)
        await world.finished(within_s=60)

    events = history_of(play)
    assert violations(events) == {}
    assert stored(events) == 10 + again
    assert last_life(events) <= handled(events)


async def _restarted(world: World) -> None:
    """Nobody owns the queues while the topic changes: the next owner has only the records."""
    left = await world.start_proxy("left")
    hire(world, left)
    send(world, 10)
    await asyncio.sleep(12)
    await left.close()
    await world.recreate(after_s=1)
    send(world, 15)
    hire(world, await world.start_proxy("right"))
    await world.finished(within_s=90)


async def _killed(world: World) -> None:
    """As before, and the last owner left no word."""
    left = await world.start_proxy("left")
    hire(world, left)
    send(world, 10)
    await asyncio.sleep(2)
    left.kill()
    await world.recreate(after_s=0)
    send(world, 15)
    hire(world, await world.start_proxy("right"))
    await world.finished(within_s=90)


async def _cut_off(world: World) -> None:
    """The owner hears nothing of it, another one takes over, and the first comes back."""
    left = await world.start_proxy("left")
    hire(world, left)
    send(world, 24)
    await asyncio.sleep(12)
    left.cut(off=True)
    await world.recreate(after_s=1)
    send(world, 24)
    await asyncio.sleep(15)
    hire(world, await world.start_proxy("right"))
    await asyncio.sleep(30)
    left.cut(off=False)
    send(world, 24)
    await world.finished(within_s=90)


async def _paused(world: World) -> None:
    """The owner stands still over it, and finds as many messages as there were."""
    left = await world.start_proxy("left")
    hire(world, left)
    send(world, 12)
    await asyncio.sleep(12)
    with stopped(world, left):
        await world.recreate(after_s=0.5)
        send(world, 12)
        await asyncio.sleep(20)
    await world.finished(within_s=90)


async def _joined(world: World) -> None:
    """Queues go from hand to hand meanwhile."""
    hire(world, await world.start_proxy("left"))
    send(world, 24)
    await asyncio.sleep(8)
    hire(world, await world.start_proxy("right"))
    await asyncio.sleep(1.5)
    await world.recreate(after_s=0)
    send(world, 24)
    await world.finished(within_s=90)


async def _often(world: World) -> None:
    """Several lives, each with fewer messages than the one before."""
    left = await world.start_proxy("left")
    hire(world, left)
    for messages in (30, 18, 12, 6):
        send(world, messages)
        await asyncio.sleep(9)
        await world.recreate(after_s=0.3)
    send(world, 24)
    await world.finished(within_s=90)


@pytest.mark.parametrize(
    ("play", "sent"),
    [
        (_restarted, 25),
        (_killed, 25),
        (_cut_off, 72),
        (_paused, 24),
        (_joined, 48),
        (_often, 90),
    ],
)
def test_the_next_life_is_whole_whatever_its_owners_went_through(play: Play, sent: int) -> None:
    events = history_of(play)
    assert violations(events) == {}
    assert stored(events) == sent
    assert last_life(events) <= handled(events)
