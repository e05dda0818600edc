"""Absent clients of broadcast groups, while other changes happen."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager

import pytest

from broker_core.tasks import cancel_and_wait, spawn
from proxy.broadcast import give_up_clients, leave_clients
from proxy.lane.group_lane import GroupLane
from proxy.lane.lanes import Lanes
from testkit.eventually import eventually
from testkit.lanes import group_settings, make_lane

CLIENTS = ["news%a", "news%b", "news%c"]


def with_clients() -> tuple[Lanes, GroupLane]:
    made = Lanes(make_lane)
    lane = made.add(group_settings("news", mode="broadcast"))
    for client in "abc":
        made.serving("news", None, client)
    return made, lane


def names(lanes: Lanes) -> list[str]:
    return [each.name for each in lanes.members()]


@asynccontextmanager
async def leaving(
    lanes: Lanes, forget: Callable[[GroupLane], Awaitable[None]]
) -> AsyncIterator[asyncio.Task[None]]:
    task = spawn(leave_clients(lanes, forget, leave_after_s=0.01), name="leaving")
    try:
        yield task
    finally:
        await cancel_and_wait(task)


async def test_a_group_removed_while_its_clients_are_forgotten_delays_no_other() -> None:
    lanes, lane = with_clients()
    forgotten: list[str] = []
    given_up: list[str] = []
    go_on = asyncio.Event()

    async def forget(each: GroupLane) -> None:
        forgotten.append(each.name)
        await go_on.wait()

    async def give_up(each: GroupLane) -> None:
        given_up.append(each.name)
        go_on.set()  # the others are checked while this one is given up
        await asyncio.sleep(0.05)

    async with leaving(lanes, forget) as task:
        await eventually(lambda: forgotten == CLIENTS[:1])
        lanes.retire("news")
        await give_up_clients(lanes, lane, give_up)
        lanes.drop("news")
        assert sorted(forgotten + given_up) == CLIENTS, "each once"
        lanes.add(group_settings("other", mode="broadcast"))
        lanes.serving("other", None, "x")
        await eventually(lambda: forgotten[-1] == "other%x")
        assert not task.done()


async def test_a_client_that_cannot_be_forgotten_delays_no_other(
    capfd: pytest.CaptureFixture[str],
) -> None:
    lanes, _ = with_clients()
    forgotten: list[str] = []

    async def forget(each: GroupLane) -> None:
        forgotten.append(each.name)
        if each.name == CLIENTS[0]:
            raise OSError("disk")

    async with leaving(lanes, forget):
        await eventually(lambda: forgotten == CLIENTS)
        lanes.serving("news", None, "d")
        await eventually(lambda: forgotten[-1] == "news%d")
    assert names(lanes) == []
    assert "cannot forget a client" in "".join(capfd.readouterr())
