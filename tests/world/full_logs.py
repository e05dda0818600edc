"""Brokers with a small log, and traffic that fills it."""

from __future__ import annotations

import asyncio

from testkit.simulation.clients import Flow
from tests.world.stage import Stage

#: Brokers keep about three files; retention runs once a minute.
SMALL = {
    "segment_bytes": 256 * 1024,
    "max_message_bytes": 128 * 1024,
    "retention_bytes": 512 * 1024,
}


KEYS = "/api/groups/billing/topics/orders/keys"


async def others_fill_the_log(stage: Stage) -> None:
    """Send 3 MB in half a minute, during which retention runs twice."""
    await stage.producer.send_natively(Flow("busy", ("k",), 0.5, 60, body_bytes=50_000))
    await asyncio.sleep(130)
