"""A log older than its proxies: after a restore, new messages get offsets that the group has
already finished in the original. None of them may be skipped.

A gateway of real components in simulated worlds; the copy is made beside the running broker, by the
same code as ``orderlane store export``.
"""

from __future__ import annotations

import asyncio
import shutil
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from broker_core.broker.restoring import restored_table
from broker_core.broker.topics.topics import Topics
from broker_core.clock import wall_ms
from broker_core.store.exporting import export_store
from broker_core.store.importing import import_store
from tests.mutants.world import Events, RunningProxy, World
from tests.world.test_lives import handled, hire, history_of, send, stopped, until_parked

Play = Callable[[World], Coroutine[Any, Any, None]]


class Copy:
    """A copy of the broker's data, made while it runs."""

    def __init__(self, world: World) -> None:
        self._world = world
        (self._broker,) = world.simulated.brokers
        self._folder = Path(self._broker.folder)
        self._backup = self._folder / "backup"
        export_store(self._folder / "data", self._backup, version="test")

    async def restore(self) -> None:
        """Kill the broker, and start it with this copy."""
        async with self.restoring():
            pass

    @asynccontextmanager
    async def restoring(self) -> AsyncIterator[None]:
        """Restore while the block runs with the broker killed."""
        self._broker.kill()
        yield
        shutil.rmtree(self._folder / "data")
        restored = partial(restored_table, now_ms=wall_ms())
        import_store(self._backup, self._folder / "data", restored=restored)
        self._world.simulated.nemesis.write("nemesis", what="restore", target=self._broker.name)
        await self._broker.start()


def sent_since(events: Events) -> set[str]:
    """Return the messages that were certainly sent after the last restore."""
    begun = max(at for at, event in enumerate(events) if event.get("what") == "restore")
    return {event["msg"] for event in events[begun:] if event["e"] == "send_ok"}


def first_deliveries(events: Events, wanted: set[str]) -> dict[str, list[int]]:
    """Return the numbers of *wanted* messages by order key, in the order of their first
    delivery.
    """
    seen, orders = set[str](), dict[str, list[int]]()
    for event in events:
        if event["e"] == "deliver" and (msg := event["msg"]) in wanted and msg not in seen:
            seen.add(msg)
            orders.setdefault(event["order"], []).append(int(msg.rpartition("@")[2]))
    return orders


def assert_nothing_is_skipped(events: Events, *, sent: int) -> None:
    new = sent_since(events)
    assert len(new) == sent
    assert new <= handled(events)
    assert all(each == sorted(each) for each in first_deliveries(events, new).values())


async def _behind(world: World) -> tuple[RunningProxy, Copy]:
    """Return a proxy that has read further than a copy of the log, and the copy."""
    left = await world.start_proxy("left")
    hire(world, left)
    send(world, 10)
    await asyncio.sleep(12)
    copy = Copy(world)
    send(world, 20)
    await asyncio.sleep(12)
    return left, copy


@pytest.mark.parametrize("again", [5, 15, 40])
def test_a_running_proxy_delivers_all_messages_after_a_restore(again: int) -> None:
    async def play(world: World) -> None:
        _, copy = await _behind(world)
        await copy.restore()
        send(world, again)
        await world.finished(within_s=90)

    assert_nothing_is_skipped(history_of(play), sent=again)


@pytest.mark.slow
@pytest.mark.parametrize("again", [15, 40])
def test_a_proxy_that_was_stopped_during_the_restore_skips_nothing(again: int) -> None:
    async def play(world: World) -> None:
        left, copy = await _behind(world)
        with stopped(world, left):
            await copy.restore()
            send(world, again)
            await asyncio.sleep(15)
        await world.finished(within_s=120)

    assert_nothing_is_skipped(history_of(play), sent=again)


@pytest.mark.slow
def test_another_proxy_takes_over_meanwhile_and_the_former_owner_returns() -> None:
    async def play(world: World) -> None:
        left, copy = await _behind(world)
        with stopped(world, left):
            await copy.restore()
            hire(world, await world.start_proxy("right"))
            send(world, 24)
            await asyncio.sleep(45)
        send(world, 24)
        await world.finished(within_s=120)

    assert_nothing_is_skipped(history_of(play), sent=48)


@pytest.mark.slow
def test_a_proxy_that_starts_after_the_restore_goes_on_where_the_copy_ends() -> None:
    async def play(world: World) -> None:
        left, copy = await _behind(world)
        async with copy.restoring():
            left.kill()
        hire(world, await world.start_proxy("right"))
        send(world, 24)
        await world.finished(within_s=120)

    events = history_of(play)
    assert_nothing_is_skipped(events, sent=24)
    begun = max(at for at, event in enumerate(events) if event.get("what") == "restore")
    repeated = {event["msg"] for event in events[begun:] if event["e"] == "deliver"}
    assert repeated == sent_since(events)  # the records in the copy still count


@pytest.mark.slow
def test_parked_keys_of_the_copy_stay_parked_and_new_messages_follow_them() -> None:
    async def play(world: World) -> None:
        fails = {"poison"}
        left = await world.start_proxy("left")
        hire(world, left, fails=fails)
        world.send("poison", "poison", "poison")
        await until_parked(left, 3)
        await asyncio.sleep(8)
        copy = Copy(world)
        world.send("poison", "poison")
        await until_parked(left, 5)
        await copy.restore()
        world.send("poison", "poison")
        send(world, 12)
        await asyncio.sleep(20)
        await until_parked(left, 5)
        fails.clear()
        await left.redrive()
        await until_parked(left, 0)
        await world.finished(within_s=120)

    events = history_of(play, on_exhausted="park")
    new = sent_since(events)
    assert len(new) == 14
    assert new <= handled(events)


@pytest.mark.slow
def test_a_log_restored_twice_skips_nothing() -> None:
    async def play(world: World) -> None:
        _, copy = await _behind(world)
        for messages in (16, 30):
            await copy.restore()
            send(world, messages)
            await asyncio.sleep(30)
        send(world, 12)
        await world.finished(within_s=120)

    assert_nothing_is_skipped(history_of(play), sent=42)


@pytest.mark.slow
def test_without_a_life_of_its_own_a_restored_log_loses_messages(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The judgement above finds the loss that lives prevent."""
    monkeypatch.setattr(Topics, "continue_lives", lambda *_, **__: None)

    async def play(world: World) -> None:
        left, copy = await _behind(world)
        with stopped(world, left):
            await copy.restore()
            send(world, 40)
            await asyncio.sleep(15)
        await world.finished(within_s=60)

    events = history_of(play)
    assert not sent_since(events) <= handled(events)


def shortest_gap_s(events: Events) -> float:
    """Return the shortest time, over all keys, from a delivery by ``left`` to the next one by
    ``right``.
    """
    given = dict[str, int]()
    gaps = list[float]()
    for event in events:
        if event["e"] == "deliver" and event["node"] == "left":
            given[event["order"]] = event["t_ns"]
        elif event["e"] == "deliver" and event["node"] == "right" and event["order"] in given:
            gaps.append((event["t_ns"] - given.pop(event["order"])) / 1e9)
    return min(gaps)


@pytest.mark.slow
@pytest.mark.parametrize("owned_before", [True, False])
def test_leases_of_an_owner_that_the_copy_does_not_know_end_before_the_next_delivery(
    *, owned_before: bool
) -> None:
    """In the copy, the last owner had ended cleanly, or there was none; in the original, another
    one has leases.
    """

    async def play(world: World) -> None:
        if owned_before:
            first = await world.start_proxy("first")
            hire(world, first)
            send(world, 10)
            await asyncio.sleep(12)
            await first.close()
        copy = Copy(world)
        left = await world.start_proxy("left")
        hire(world, left, work_s=3.0)
        world.send("a", "b")
        await asyncio.sleep(1.5)
        with stopped(world, left):
            await copy.restore()
            hire(world, await world.start_proxy("right"))
            world.send("a", "b", "a", "b")
            await asyncio.sleep(40)
        await world.finished(within_s=120)

    events = history_of(play, visibility_timeout_s=5)
    assert sent_since(events) <= handled(events)
    assert shortest_gap_s(events) > 5
