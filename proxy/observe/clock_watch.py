"""Detects and logs clock jumps, because leases, locks and ages depend on the clocks."""

from __future__ import annotations

import asyncio

import structlog

from broker_core.clock import now_ns, wall_ms
from proxy.core.ownership.clock_jumps import ClockJumps, JumpKind

_LOOK_S = 0.5

_log = structlog.get_logger("clock")


async def watch_clocks(jumps: ClockJumps) -> None:
    """Feed *jumps* with clock readings until cancelled, and log each jump."""
    while True:
        for jump in jumps.look(now_ns=now_ns(), wall_ms=wall_ms()):
            if jump.kind is JumpKind.STOOD_STILL:
                _log.warning("the process was suspended", seconds=jump.by_ms / 1000)
            else:
                _log.warning("the wall clock jumped", seconds=jump.by_ms / 1000)
        await asyncio.sleep(_LOOK_S)
