"""Checks for clients of broadcast groups that have been absent too long."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import Any

import pytest

from broker_core.names import Group, QueueName, Topic
from broker_core.tasks import spawn
from proxy.lane.lanes import Lanes
from proxy.upstream.client_sweep import ClientSweep
from testkit.lanes import GROUP, TOPIC, group_settings, make_lane

NOW_MS = 1_800_000_000_000


class Brokers:
    """Brokers that keep offsets of *clients* and nothing else."""

    def __init__(self, *clients: str) -> None:
        self.clients = clients
        self.client_id = "proxy-1"
        self.deletions = self

    def another(self, _client_id: str) -> Brokers:
        return self

    async def close(self) -> None:
        pass

    async def consumers(self) -> list[tuple[Group, Topic]]:
        return [(Group(f"{GROUP}%{name}"), Topic(TOPIC)) for name in self.clients]

    async def topics(self) -> list[Topic]:
        return [Topic(TOPIC)]

    async def queues(self, topic: Topic, *, fresh: bool = False) -> list[QueueName]:
        return []


class Sweep(ClientSweep):
    """Forgets each client that it may."""

    forgotten: list[tuple[Group, int]]

    async def _forget(
        self, lane: Any, client: Any, name: Any, consumed: Any, since_ms: int
    ) -> bool:
        self.forgotten.append((name, since_ms))
        return since_ms > NOW_MS - 3_600_000  # only as one of too many


def sweep(brokers: Brokers, lanes: Lanes | None = None, **settings: Any) -> Sweep:
    lanes = Lanes(make_lane) if lanes is None else lanes
    lanes.add(group_settings(mode="broadcast", **settings))
    clock = SimpleNamespace(steady_ms=lambda ms: ms)
    context: Any = SimpleNamespace(client=brokers, clock_jumps=clock)
    made = Sweep(context, lanes)
    made.forgotten = []
    return made


async def test_clients_that_another_proxy_forgot_are_remembered_no_more() -> None:
    brokers = Brokers("a", "b", "c")
    looking = sweep(brokers, max_clients=2)
    assert await looking.sweep(now_ms=NOW_MS) == [f"{GROUP}%a"]
    assert looking.looked_up == 2
    brokers.clients = ()
    await looking.sweep(now_ms=NOW_MS)
    assert looking.looked_up == 0


async def test_clients_of_a_removed_group_are_remembered_no_more() -> None:
    lanes = Lanes(make_lane)
    looking = sweep(Brokers("a", "b", "c"), lanes, max_clients=2)
    await looking.sweep(now_ms=NOW_MS)
    lanes.retire(GROUP)
    lanes.drop(GROUP)
    await looking.sweep(now_ms=NOW_MS)
    assert looking.looked_up == 0


async def test_the_longest_time_until_a_client_is_forgotten_never_passes() -> None:
    looking = sweep(Brokers("a"), forget_after_s=1.7e308)
    assert await looking.sweep(now_ms=NOW_MS) == []
    assert looking.forgotten == [(f"{GROUP}%a", 0)]


async def test_a_failed_check_is_not_the_last(monkeypatch: pytest.MonkeyPatch) -> None:
    brokers, checks = Brokers(), asyncio.Queue[int]()
    looking = sweep(brokers)

    async def fail(*, now_ms: int) -> list[Group]:
        await checks.put(now_ms)
        raise ZeroDivisionError("a bug")

    monkeypatch.setattr(looking, "sweep", fail)
    running = spawn(looking.run(), name="checks")
    async with asyncio.timeout(86_400):
        for _ in range(3):
            await checks.get()
    running.cancel()
    with pytest.raises(asyncio.CancelledError):
        await running
