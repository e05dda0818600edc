"""Clients of broadcast groups at one proxy: they follow their group's settings, and are forgotten
once away.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

import structlog

from proxy.lane.group_lane import GroupLane
from proxy.lane.lanes import Lanes, member_settings
from proxy.observe.logs import NoisyLog

_noisy = NoisyLog(structlog.get_logger("broadcast"))


def follow_group(lanes: Lanes, lane: GroupLane, changed: Callable[[GroupLane], None]) -> None:
    """Apply new settings of *lane* to the lanes of its clients; *changed* is called for each."""
    for member in lanes.members(lane.name):
        member.apply(member_settings(lane.settings, member.name))
        changed(member)


async def leave_clients(
    lanes: Lanes, forget: Callable[[GroupLane], Awaitable[None]], *, leave_after_s: float
) -> None:
    """Forget clients away for longer than *leave_after_s*. Runs until cancelled."""
    while True:
        await asyncio.sleep(leave_after_s)
        for lane in lanes.members():
            what = "cannot forget a client of a broadcast group; retrying"
            with _noisy.confined(lane.name, what, group=lane.name):
                if lane.presence.joined or lane.presence.wanted(leave_after_s=leave_after_s):
                    continue
                if lanes.leave_member(lane):
                    await forget(lane)


async def give_up_clients(
    lanes: Lanes, lane: GroupLane, give_up: Callable[[GroupLane], Awaitable[None]]
) -> None:
    """Give up the clients of the removed group of *lane*, before the group itself."""
    for member in lanes.members(lane.name):
        if lanes.retire(member.name) is None:
            continue  # forgotten meanwhile
        await give_up(member)
        lanes.drop(member.name)
