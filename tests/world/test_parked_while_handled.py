"""A key that is parked while a client handles its first message (D1: all messages come back)."""

from __future__ import annotations

import asyncio

import pytest

from tests.world.stage import Stage, play

KEYS = "/api/groups/billing/topics/orders/keys"


@pytest.mark.parametrize("ends", ["fails", "expires"])
def test_its_messages_are_copied_once_that_ends(ends: str) -> None:
    async def main(stage: Stage) -> None:
        rules = {"name": "orders", "order_key": "KEY", "on_exhausted": "block"}
        await stage.start(
            groups=[{"name": "billing", "topics": [rules]}], topics={"orders": 1}, proxies=1
        )
        stage.habits.work_for(2.0)
        stage.habits.failing.add(("billing", "a"))
        stage.consume("consumer", "billing")
        await stage.send("orders", ["a"], 3)
        await stage.until(lambda: stage.of("deliver", order="a"))
        await stage.act(f"{KEYS}/park", key="a")
        await asyncio.sleep(0.5)
        assert not stage.of("ack_ok")
        if ends == "expires":
            stage.world.nodes["consumer"].kill()
        await stage.until(lambda: len(stage.of("finish", outcome="parked")) == 3)
        stage.habits.cure()
        if ends == "expires":
            stage.consume("consumer", "billing")
        await stage.act(f"{KEYS}/redrive", key="a")
        await stage.until(lambda: stage.of("unpark", order="a"))

    assert play(main) == {}
