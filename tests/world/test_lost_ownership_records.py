"""Ownership records that a broker lost, and that grew again before their owner returned.

An epoch is an offset of these records, so it belongs to one life of them. A gateway of real
components in simulated worlds; D1, C1 and A1 of the history checker find the effects of a stale
epoch or lease.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Coroutine
from typing import Any

import pytest

from broker_core.names import Group, Topic
from proxy.core.records.parked_key import parked_topic
from proxy.core.records.record import ownership_topic
from testkit.simulation.world import World as SimulatedWorld
from testkit.simulation.world import simulate
from tests.mutants.clients import Worker
from tests.mutants.scenarios import KEYS, RULES, judge
from tests.mutants.world import GROUP, QUEUES, TOPIC, Events, RunningProxy, World
from tests.support.variants import first_of

Play = Callable[[World], Coroutine[Any, Any, None]]
RECORDS = ownership_topic(Group(GROUP), TOPIC)
#: A key in the queue of ``poison``.
BEHIND = "stuck"
#: The records of the parked twins.
TWIN_RECORDS = ownership_topic(Group(GROUP), parked_topic(Group(GROUP), TOPIC))


def history_of(play: Play, *, flush: str = "sync", seed: int = 1, **rules: Any) -> Events:
    async def run(simulated: SimulatedWorld) -> Events:
        world = World(simulated, {**RULES, **rules}, flush=flush)
        await world.start()
        await play(world)
        return simulated.events

    return simulate(run, seed=seed)


def hire(world: World, proxy: RunningProxy, how_many: int = 3, **habits: Any) -> list[Worker]:
    workers = [
        Worker(world, proxy, f"{proxy.name}-{number}", sloppy=False, **habits)
        for number in range(how_many)
    ]
    for worker in workers:
        world.start_client(worker.name, worker.run())
    return workers


def send(world: World, messages: int) -> None:
    world.send(*(KEYS[number % len(KEYS)] for number in range(messages)))


async def first_owner(world: World, **habits: Any) -> RunningProxy:
    """Start a proxy that owns the queues in epoch 0; its clients have *habits*."""
    first = await world.start_proxy("first")
    hire(world, first, **habits)
    return first


async def second_owner(world: World, **habits: Any) -> RunningProxy:
    """Start a proxy that owns the queues in an epoch well above 0; its clients have *habits*."""
    first = await world.start_proxy("first")
    hire(world, first)
    for _ in range(8):
        send(world, 12)
        await asyncio.sleep(1.5)
    first.kill()
    second = await world.start_proxy("second")
    hire(world, second, **habits)
    send(world, 12)
    await asyncio.sleep(20)
    return second


async def _deleted(world: World) -> None:
    """Delete the topic of the records while the queues are owned."""
    await second_owner(world)
    await world.simulated.delete_topic(RECORDS)
    send(world, 24)
    await asyncio.sleep(20)
    send(world, 24)
    await world.finished(within_s=60)


async def _deleted_before_a_take_over(world: World) -> None:
    """Give the next owner an epoch below that of earlier commits."""
    second = await second_owner(world)
    second.kill()
    await world.simulated.delete_topic(RECORDS)
    hire(world, await world.start_proxy("third"))
    send(world, 24)
    await world.finished(within_s=60)


async def _deleted_while_cut_off(world: World) -> None:
    """Let the owner return once there are as many records of others as there were of its own."""
    second = await second_owner(world)
    second.cut(off=True)
    await world.simulated.delete_topic(RECORDS)
    hire(world, await world.start_proxy("third"))
    for _ in range(40):
        send(world, 6)
        await asyncio.sleep(1.5)
    second.cut(off=False)
    send(world, 24)
    await world.finished(within_s=60)


async def _parked_before_they_are_deleted(
    world: World, owner: Callable[..., Awaitable[RunningProxy]] = first_owner
) -> RunningProxy:
    """Have a proxy that owns the queues, with three messages of a key parked."""
    fails = {"poison"}
    proxy = await owner(world, fails=fails)
    world.send("poison", "poison", "poison")
    send(world, 24)
    await until_parked(proxy, 3)
    await asyncio.sleep(8)
    await world.simulated.delete_topic(RECORDS)
    fails.clear()
    return proxy


async def _redriven(world: World, proxy: RunningProxy) -> None:
    await asyncio.sleep(15)
    world.send("poison")
    send(world, 12)
    await until_parked(proxy, 4)
    await proxy.redrive()
    await until_parked(proxy, 0)
    await world.finished(within_s=60)


async def _parked_with_an_owner(world: World) -> None:
    await _redriven(world, await _parked_before_they_are_deleted(world))


async def _parked_without_one(world: World) -> None:
    (await _parked_before_they_are_deleted(world)).kill()
    second = await world.start_proxy("second")
    hire(world, second)
    await _redriven(world, second)


async def _deleted_with_the_topic(world: World, *records: Topic) -> None:
    """Delete *records* and the topic while nothing is owned, and park the key again in the next
    life: epochs start over, and the copies of before have offsets of new messages.
    """
    first = await world.start_proxy("first")
    fails = {"poison"}
    hire(world, first, fails=fails)
    world.send(*(["poison"] * 5))
    send(world, 24)
    await until_parked(first, 5)
    await asyncio.sleep(8)
    first.kill()
    for topic in records:
        await world.simulated.delete_topic(topic)
    await world.recreate(after_s=0.3)
    world.send("poison", "poison")
    send(world, 12)
    second = await world.start_proxy("second")
    hire(world, second, fails=fails)
    await until_parked(second, 2)
    fails.clear()
    await second.redrive()
    await until_parked(second, 0)
    world.send("poison")
    await world.finished(within_s=60)


@pytest.mark.parametrize("records", [(RECORDS,), (RECORDS, TWIN_RECORDS)])
def test_copies_of_a_former_life_do_not_count_without_the_records_either(
    records: tuple[Topic, ...],
) -> None:
    """They and their own records name it: none of them is delivered, and none hides a message."""

    async def play(world: World) -> None:
        await _deleted_with_the_topic(world, *records)

    events = history_of(play, on_exhausted="park", max_deliveries=2)
    created = max(at for at, event in enumerate(events) if event.get("what") == "created")
    sent = {event["msg"] for event in events[created:] if event["e"] == "send_ok"}
    done = {
        event["msg"]
        for event in events[created:]
        if event["e"] == "handle_end" and event["outcome"] == "ok"
    }
    assert done == sent


async def _deleted_before_a_redrive(world: World) -> None:
    """Redrive a key behind another one that stays parked, in epochs below those of before, and let
    the next owner continue.
    """
    fails = {"poison", BEHIND}
    first = await world.start_proxy("first")
    hire(world, first)
    for _ in range(8):
        send(world, 12)
        await asyncio.sleep(1.5)
    first.kill()
    second = await world.start_proxy("second")
    hire(world, second, fails=fails)
    world.send("poison", *[BEHIND] * 6)
    await until_parked(second, 7)
    await asyncio.sleep(8)
    await world.simulated.delete_topic(RECORDS)
    send(world, 24)
    await asyncio.sleep(15)
    fails.discard(BEHIND)
    assert await second.act("redrive", BEHIND, rate=0.5)
    await until_parked(second, 4)
    await asyncio.sleep(1.5)
    second.kill()
    third = await world.start_proxy("third")
    hire(world, third, fails=fails)
    await until_parked(third, 1)
    fails.clear()
    await third.redrive()
    await until_parked(third, 0)
    await world.finished(within_s=60)


def test_a_redrive_continues_after_a_take_over_when_epochs_started_over() -> None:
    events = history_of(_deleted_before_a_redrive, on_exhausted="park", max_deliveries=2)
    sent = [event["msg"] for event in events if event["e"] == "send_ok"]
    done = [event for event in events if event["e"] == "handle_end" and event["outcome"] == "ok"]
    assert set(sent) == {event["msg"] for event in done}
    of_key = [event["msg"] for event in done if event["order"] == BEHIND]
    assert len(of_key) == len(set(of_key)) == 6


async def _parked_in_a_higher_epoch(world: World) -> None:
    """Add messages to the key in an epoch below that in which it was parked."""
    second = await _parked_before_they_are_deleted(world, second_owner)
    send(world, 12)  # it notices that its records are gone
    await _redriven(world, second)


async def _parked_in_a_higher_epoch_without_an_owner(world: World) -> None:
    (await _parked_before_they_are_deleted(world, second_owner)).kill()
    third = await world.start_proxy("third")
    hire(world, third)
    await _redriven(world, third)


async def until_parked(proxy: RunningProxy, copies: int) -> None:
    async with asyncio.timeout(60):
        while await proxy.parked() != copies:  # noqa: ASYNC110
            await asyncio.sleep(0.2)


async def _lost_with_the_power(world: World) -> None:
    """Cut the owner off while the tail is lost; it returns once others wrote as much."""
    second = await second_owner(world)
    send(world, 24)
    await asyncio.sleep(1.2)
    second.cut(off=True)
    await world.restart_broker(power=True)
    hire(world, await world.start_proxy("third"))
    for _ in range(20):
        send(world, 6)
        await asyncio.sleep(1.5)
    second.cut(off=False)
    send(world, 24)
    await world.finished(within_s=60)


async def _lost_with_its_owner(world: World) -> None:
    """Lose even the record that began a period: the next one has the same epoch, and receives
    verdicts on leases of the one before.
    """
    first = await world.start_proxy("first")
    hire(world, first)
    send(world, 24)
    await asyncio.sleep(12)
    await first.close()
    send(world, 8)
    await asyncio.sleep(3)
    second = await world.start_proxy("second")
    workers = hire(world, second, 4, batch=1, work_s=26.0)
    while not handed_out(world, second):  # noqa: ASYNC110
        await asyncio.sleep(0.01)
    second.kill()
    await world.restart_broker(power=True)
    third = await world.start_proxy("third")
    for worker in workers:
        worker.go_to(third)
    hire(world, third, 4, batch=1, work_s=26.0)
    await world.finished(within_s=300)


def handed_out(world: World, proxy: RunningProxy) -> bool:
    events = world.simulated.events
    return any(event["e"] == "deliver" and event["node"] == proxy.name for event in events)


@first_of("play", [_deleted, _deleted_before_a_take_over, _deleted_while_cut_off], count=2)
def test_a_queue_continues_when_its_records_start_over(play: Play) -> None:
    """Epochs start over, which no history can show: only the effects are judged."""
    events = history_of(play)
    sent = {event["msg"] for event in events if event["e"] == "send_ok"}
    assert sent == {event["msg"] for event in events if event["e"] == "handle_end"}
    for queue in QUEUES:
        of_queue = [event for event in events if event.get("queue") == queue.qid]
        end = max(event["offset"] + 1 for event in of_queue if event["e"] == "send_ok")
        assert [event["offset"] for event in of_queue if event["e"] == "commit"][-1] == end
        last_done = max(event["t_ns"] for event in of_queue if event["e"] == "finish")
        assert any(event["e"] == "record" and event["t_ns"] > last_done for event in of_queue)


@pytest.mark.parametrize("play", [_parked_with_an_owner, _parked_without_one])
def test_keys_stay_parked_when_their_records_are_deleted(play: Play) -> None:
    """The copies show which keys were parked: no later message overtakes them."""
    events = history_of(play, on_exhausted="park", max_deliveries=2)
    check_all_are_handled(events)
    assert judge(events).violations.keys() <= {"W1"}  # epochs start over


@pytest.mark.parametrize(
    "play", [_parked_in_a_higher_epoch, _parked_in_a_higher_epoch_without_an_owner]
)
def test_messages_parked_in_lower_epochs_than_their_key_are_not_lost(play: Play) -> None:
    """Epochs start over, which no history can show: only the effects are judged."""
    check_all_are_handled(history_of(play, on_exhausted="park", max_deliveries=2))


def check_all_are_handled(events: Events) -> None:
    """Check that each message was handled, those of the parked key in order."""
    sent = [event["msg"] for event in events if event["e"] == "send_ok"]
    done = [event for event in events if event["e"] == "handle_end" and event["outcome"] == "ok"]
    assert set(sent) == {event["msg"] for event in done}
    poison = [event["msg"] for event in events if event.get("key") == "poison"]
    handled = dict.fromkeys(event["msg"] for event in done if event["order"] == "poison")
    assert list(handled) == poison


@pytest.mark.slow
@pytest.mark.parametrize("play", [_lost_with_the_power, _lost_with_its_owner])
@first_of("seed", [1, 2])
def test_a_tail_that_is_lost_and_grows_again_moves_nothing(play: Play, seed: int) -> None:
    events = history_of(play, flush="async", seed=seed)
    assert judge(events).violations.keys() <= {"W1"}  # a lost epoch is granted again
