"""Looks at the clocks of this process, and tells of jumps: leases, locks and ages go by them."""

from __future__ import annotations

import asyncio

import structlog

from broker_core.clock import now_ns, wall_ms
from proxy.core.ownership.clock_jumps import ClockJumps, JumpKind

_LOOK_S = 0.5

_log = structlog.get_logger("clock")


async def watch_clocks(jumps: ClockJumps) -> None:
    """Keep *jumps* until cancelled."""
    while True:
        for jump in jumps.look(now_ns=now_ns(), wall_ms=wall_ms()):
            if jump.kind is JumpKind.STOOD_STILL:
                _log.warning("the process stood still", seconds=jump.by_ms / 1000)
            else:
                _log.warning("the wall clock was moved", seconds=jump.by_ms / 1000)
        await asyncio.sleep(_LOOK_S)
