"""LOSS: a wall clock that is wrong for some time expires no message."""

from __future__ import annotations

import asyncio

import pytest

from tests.world.stage import Stage, play

HOURS = 3600.0
RULES = {"name": "orders", "order_key": "KEY", "visibility_timeout_s": 4}


@pytest.mark.parametrize("by_hours", [-80.0, -1000.0, 80.0])
@pytest.mark.parametrize("restart_s", [None, 10, 90])
def test_messages_stored_while_a_brokers_clock_is_wrong_outlive_its_correction(
    by_hours: float, restart_s: float | None
) -> None:
    """Retention keeps messages for 72 hours. Files of the log are filled at the wrong time."""

    async def main(stage: Stage) -> None:
        await stage.start(
            brokers={"broker-a": {"segment_bytes": 196_608, "max_message_bytes": 98_304}},
            groups=[{"name": "billing", "topics": [RULES]}],
            topics={"orders": 1},
        )
        (broker,) = stage.world.brokers
        await asyncio.sleep(90)
        broker.jump_clock(by_hours * HOURS)
        await stage.send("orders", ["a", "b", "c"], 12, body_bytes=50_000)
        await asyncio.sleep(restart_s or 90)
        if restart_s:
            broker.kill()
            await broker.start()
        broker.jump_clock(-by_hours * HOURS)
        await asyncio.sleep(150)
        stage.consume("consumer", "billing")
        await stage.until(lambda: len(stage.of("finish")) == 12)
        assert {each["outcome"] for each in stage.of("finish")} == {"ok"}

    assert play(main) == {}
