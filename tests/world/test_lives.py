"""A topic that is deleted and created again begins at its first message, for clients of its former
life too.

A gateway of real components in simulated worlds. The history checker judges each run: D1 and C2
find undelivered messages of the next life, G1 remains of the former one.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any

import pytest

from broker_core.broker.topics.directory import TopicDirectory
from broker_core.names import Group, Topic
from proxy.core.records.parked_key import parked_topic
from proxy.core.records.record import ownership_topic
from testkit.simulation.world import World as SimulatedWorld
from testkit.simulation.world import simulate
from tests.mutants.clients import Worker
from tests.mutants.scenarios import KEYS, RULES, judge
from tests.mutants.world import GROUP, TOPIC, Events, RunningProxy, World
from tests.support.variants import first_of

Play = Callable[[World], Coroutine[Any, Any, None]]


def history_of(play: Play, *, seed: int = 1, **rules: Any) -> Events:
    """Return the events of one run; *rules* are settings of the topic."""

    async def run(simulated: SimulatedWorld) -> Events:
        world = World(simulated, {**RULES, **rules})
        await world.start()
        await play(world)
        return simulated.events

    return simulate(run, seed=seed)


def violations(events: Events) -> dict[str, list[str]]:
    """Return the checker's findings."""
    return {name: each.examples for name, each in judge(events).violations.items()}


def stored(events: Events) -> int:
    """Return the number of messages that were certainly sent."""
    return sum(event["e"] == "send_ok" for event in events)


def last_life(events: Events) -> set[str]:
    """Return the messages of the topic's last life."""
    begun = max(at for at, event in enumerate(events) if event.get("what") == "created")
    return {event["msg"] for event in events[begun:] if event["e"] == "send_ok"}


def handled(events: Events) -> set[str]:
    """Return the messages that a handler saw."""
    return {event["msg"] for event in events if event["e"] == "handle_end"}


def begun_since(events: Events, *, settle_s: float = 8) -> set[str]:
    """Return the messages whose handling began some time after the start of the last life."""
    created_ns = max(event["t_ns"] for event in events if event.get("what") == "created")
    return {
        event["msg"]
        for event in events
        if event["e"] == "handle_start" and event["t_ns"] > created_ns + settle_s * 1e9
    }


def twins() -> tuple[Topic, Topic]:
    """Return the topics of ownership records and of parked messages."""
    group = Group(GROUP)
    parked = parked_topic(group, TOPIC)
    return parked, ownership_topic(group, TOPIC)


async def until_parked(proxy: RunningProxy, copies: int, *, within_s: int = 60) -> None:
    """Wait for that number of parked copies."""
    for _ in range(within_s * 5):
        if await proxy.parked() == copies:
            return
        await asyncio.sleep(0.2)
    raise AssertionError(f"{await proxy.parked()} copies are parked, not {copies}")


@contextmanager
def stopped(world: World, proxy: RunningProxy) -> Iterator[None]:
    """Send SIGSTOP, then SIGCONT."""
    node = world.simulated.nodes[proxy.name]
    world.simulated.nemesis.write("nemesis", what="stop", target=proxy.name, phase="begin")
    node.pause()
    try:
        yield
    finally:
        node.resume()
        world.simulated.nemesis.write("nemesis", what="stop", target=proxy.name, phase="end")


def hire(world: World, proxy: RunningProxy, how_many: int = 3, **habits: Any) -> None:
    """Start clients of *proxy*."""
    for number in range(how_many):
        worker = Worker(world, proxy, f"{proxy.name}-{number}", sloppy=False, **habits)
        world.start_client(worker.name, worker.run())


def send(world: World, messages: int) -> None:
    """Send messages of a key one after the other."""
    world.send(*(KEYS[number % len(KEYS)] for number in range(messages)))


@first_of("again", [40, 5, 10, 15], count=2)
@first_of("after_s", [0.2, 0.0, 8.0], count=2)
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
    """Change the topic while its queues have no owner: the next owner has only the records."""
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
    """Do the same after the last owner was killed."""
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
    """Change the topic while the owner is cut off; another one takes over, and the first
    returns.
    """
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
    """Pause the owner meanwhile; it finds as many messages as before."""
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
    """Change owners of the queues meanwhile."""
    hire(world, await world.start_proxy("left"))
    send(world, 24)
    await asyncio.sleep(8)
    hire(world, await world.start_proxy("right"))
    await asyncio.sleep(1.5)
    await world.recreate(after_s=0)
    send(world, 24)
    await world.finished(within_s=90)


async def _often(world: World) -> None:
    """Create several lives, each with fewer messages than the one before."""
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


async def _parked(world: World) -> None:
    """Ignore copies of the former life's messages, also once their key is parked again."""
    fails = {"poison"}
    left = await world.start_proxy("left")
    hire(world, left, fails=fails)
    world.send("poison", "poison", "poison")
    send(world, 12)
    await until_parked(left, 3)
    await world.recreate(after_s=0.3)
    world.send("poison", "poison")
    send(world, 12)
    await until_parked(left, 2)
    fails.clear()
    await left.redrive()
    await world.finished(within_s=90)


async def _redriven(world: World) -> None:
    """Change the topic during a redrive, with copies at clients."""
    fails = {"poison"}
    left = await world.start_proxy("left")
    hire(world, left, fails=fails, work_s=1.5)
    world.send(*(["poison"] * 6))
    await until_parked(left, 6)
    fails.clear()
    await left.redrive()
    await asyncio.sleep(2)
    await world.recreate(after_s=0)
    world.send("poison")
    send(world, 12)
    await world.finished(within_s=90)


async def _killed_with_parked(world: World) -> None:
    """Let the next owner find a parked key only in the records of the former life."""
    fails = {"poison"}
    left = await world.start_proxy("left")
    hire(world, left, fails=fails)
    world.send("poison", "poison", "poison")
    await until_parked(left, 3)
    left.kill()
    fails.clear()
    await world.recreate(after_s=0.3)
    world.send("poison", "poison")
    hire(world, await world.start_proxy("right"), fails=fails)
    await world.finished(within_s=90)


async def _leased(world: World) -> None:
    """Let clients handle messages for longer than the topic is away, and ack them then."""
    left = await world.start_proxy("left")
    hire(world, left, slow=frozenset(KEYS[:4]), batch=1)
    send(world, 12)
    await asyncio.sleep(2)
    await world.recreate(after_s=0)
    send(world, 12)
    await world.finished(within_s=120)


async def _spilled(world: World) -> None:
    """Let a stuck key exceed the memory, with no room to read further."""
    left = await world.start_proxy("left")
    hire(world, left, stuck=frozenset({"stuck"}), batch=1)
    world.send(*(["stuck"] * 80))
    await asyncio.sleep(15)
    await world.recreate(after_s=0)
    send(world, 24)
    await world.finished(within_s=150)


async def _without_twins(world: World) -> None:
    """Delete its topics of records and of parked messages as well."""
    fails = {"poison"}
    left = await world.start_proxy("left")
    hire(world, left, fails=fails)
    world.send("poison", "poison")
    send(world, 24)
    await until_parked(left, 2)
    await asyncio.sleep(8)
    for twin in twins():
        await world.simulated.delete_topic(twin)
    await world.recreate(after_s=0.3)
    fails.clear()
    world.send("poison")
    send(world, 12)
    await world.finished(within_s=90)


async def _parked_topic_deleted(world: World) -> None:
    """Delete the topic of parked messages alone, which no other process creates again:
    what is parked later must not wait for it.
    """
    fails = {"poison"}
    left = await world.start_proxy("left")
    hire(world, left, fails=fails)
    world.send("poison", "poison", "poison")
    send(world, 12)
    await until_parked(left, 3)
    await asyncio.sleep(8)
    await world.simulated.delete_topic(twins()[0])
    await asyncio.sleep(15)
    world.send("poison", "poison")
    send(world, 12)
    await until_parked(left, 2)
    fails.clear()
    await left.redrive()
    await until_parked(left, 0)
    world.send("poison")
    await world.finished(within_s=90)


def test_a_key_continues_after_its_parked_messages_were_deleted_with_their_topic() -> None:
    """The copies are gone; later messages of the key arrive, in order."""
    events = history_of(_parked_topic_deleted, on_exhausted="park", max_deliveries=2)
    done = [event for event in events if event["e"] == "handle_end" and event["outcome"] == "ok"]
    sent = [event["msg"] for event in events if event["e"] == "send" and event["key"] == "poison"]
    assert [event["msg"] for event in done if event["order"] == "poison"] == sent[3:]
    assert stored(events) - 3 == len({event["msg"] for event in done})


async def _committed_late(world: World) -> None:
    """Let another client of the group, which knows no lives, commit an offset of the former one."""
    left = await world.start_proxy("left")
    hire(world, left)
    send(world, 24)
    await asyncio.sleep(12)
    await left.close()
    await world.recreate(after_s=0.3)
    await world.commit_as_others(10)
    send(world, 36)
    hire(world, await world.start_proxy("right"))
    await world.finished(within_s=90)


@pytest.mark.parametrize(
    ("play", "sent", "rules"),
    [
        (_parked, 29, {"on_exhausted": "park", "max_deliveries": 2}),
        (_redriven, 19, {"on_exhausted": "park", "max_deliveries": 2}),
        (_killed_with_parked, 5, {"on_exhausted": "park", "max_deliveries": 2}),
        (_leased, 24, {}),
        (_spilled, 104, {"max_jobs_in_memory": 16, "max_jobs_per_key_in_memory": 4}),
        (_without_twins, 39, {"on_exhausted": "park", "max_deliveries": 2}),
        (_committed_late, 60, {}),
    ],
)
def test_nothing_of_the_former_life_counts_wherever_it_stood(
    play: Play, sent: int, rules: dict[str, Any]
) -> None:
    events = history_of(play, **rules)
    assert {name: each for name, each in violations(events).items() if name != "I1"} == {}
    assert stored(events) == sent
    assert last_life(events) <= handled(events)
    assert begun_since(events) <= last_life(events)


@pytest.mark.parametrize("play", [_restarted, _killed, _cut_off, _paused, _joined, _often])
def test_lives_are_distinguished_on_brokers_that_do_not_report_them(
    play: Play, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Like Apache's: lives are distinguished by places in the log."""
    monkeypatch.setattr(TopicDirectory, "life", lambda *_: None)
    events = history_of(play)
    assert last_life(events) <= handled(events)
    assert violations(events).keys() <= {
        "G1"
    }  # they accept an owner's commit from before its check


@first_of("again", [5, 10, 15])
@first_of("after_s", [0.2, 8.0])
def test_all_messages_of_the_next_life_arrive_from_brokers_that_do_not_report_lives(
    again: int, after_s: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(TopicDirectory, "life", lambda *_: None)
    test_all_messages_of_the_next_life_come_however_many_the_former_one_had(again, after_s)


async def _spilled_and_outgrown(world: World, *, after_s: float) -> None:
    """Let the next life have other messages at the spilled offsets of a stuck key, and further
    ones at the read position, while memory has no room to read on.
    """
    left = await world.start_proxy("left")
    hire(world, left, 1, slow=frozenset({"stuck"}), batch=1)
    queue = world.queue_of("stuck")
    others = [key for key in map(str, range(40)) if world.queue_of(key) == queue]
    world.send(*(["stuck"] * 6), *others[:6])
    await asyncio.sleep(after_s)
    await world.recreate(after_s=0)
    world.send(*(others[-5:] * 8))
    await world.finished(within_s=120)


@first_of("after_s", [4.0, 11.8], count=2)
def test_spilled_offsets_are_not_read_in_the_next_life_on_brokers_that_do_not_report_lives(
    after_s: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(TopicDirectory, "life", lambda *_: None)
    rules = {"max_jobs_in_memory": 8, "max_jobs_per_key_in_memory": 2}
    events = history_of(partial(_spilled_and_outgrown, after_s=after_s), **rules)
    new = last_life(events)
    assert new <= handled(events)
    begun = [each for each in events if each["e"] == "handle_start" and each["msg"] in new]
    assert all(each["order"] != "stuck" for each in begun)
