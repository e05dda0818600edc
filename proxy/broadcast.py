"""Clients of broadcast groups at one proxy: they follow their group, and are left once gone."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

import structlog

from proxy.lane.group_lane import GroupLane
from proxy.lane.lanes import Lanes, member_settings

_log = structlog.get_logger("broadcast")


def follow_group(lanes: Lanes, lane: GroupLane, changed: Callable[[GroupLane], None]) -> None:
    """The settings of *lane* changed: those of its clients do; *changed* is told of each."""
    for member in lanes.members(lane.name):
        member.apply(member_settings(lane.settings, member.name))
        changed(member)


async def leave_clients(
    lanes: Lanes, forget: Callable[[GroupLane], Awaitable[None]], *, leave_after_s: float
) -> None:
    """Keep nothing of clients that were not here for so long. Runs until it is cancelled."""
    while True:
        await asyncio.sleep(leave_after_s)
        for lane in lanes.members():
            if lane.presence.joined or lane.presence.wanted(leave_after_s=leave_after_s):
                continue
            try:
                if lanes.leave_member(lane):
                    await forget(lane)
            except Exception:  # the next client, and the next round, have nothing to do with it
                _log.exception("client of a broadcast group not left", group=lane.name)


async def give_up_clients(
    lanes: Lanes, lane: GroupLane, give_up: Callable[[GroupLane], Awaitable[None]]
) -> None:
    """The group of *lane* was removed: its clients go first."""
    for member in lanes.members(lane.name):
        if lanes.retire(member.name) is None:
            continue  # it was left meanwhile
        await give_up(member)
        lanes.drop(member.name)
