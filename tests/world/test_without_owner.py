"""Parked keys of a crashed owner are shown and redriven at another proxy."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from tests.world.stage import Stage, play

RULES = {
    "name": "orders",
    "order_key": "KEY",
    "max_deliveries": 1,
    "on_exhausted": "park",
    "visibility_timeout_s": 4,
}
KEYS = "/api/groups/billing/topics/orders/keys"


async def group(stage: Stage, proxy: int) -> dict[str, Any]:
    """Return the group as the console of a proxy gets it."""
    status, answer = await stage.world.http(stage.world.proxies[proxy], "/api/overview", None)
    assert status == 200
    return dict(answer["groups"]["billing"])


@pytest.mark.parametrize("at_once", [True, False])
def test_parked_keys_of_a_crashed_owner_are_shown_and_redriven(at_once: bool) -> None:
    """A verb waits until the lock of the owner expires; figures come from its records."""

    async def main(stage: Stage) -> None:
        await stage.start(
            groups=[{"name": "billing", "topics": [RULES]}], topics={"orders": 2}, proxies=2
        )
        stage.habits.failing.add(("billing", "a"))
        consumer = stage.consume("consumer", "billing")
        await stage.send("orders", ["a", "b"], 6)
        await stage.until(lambda: len(stage.of("finish")) == 6)
        await asyncio.sleep(2)  # a record has them
        assert (await group(stage, 1))["figures"]["parked_keys"] is None  # only the owner knows
        stage.world.proxies[0].kill()
        consumer.kill()
        stage.habits.cure()
        if not at_once:
            await asyncio.sleep(45)
            seen = await group(stage, 1)
            assert {each["owned"] for each in seen["others"]} == {"gone"}
            assert (seen["figures"]["parked"], seen["figures"]["parked_keys"]) == (3, 1)
            assert seen["state"]["word"] in ("parked", "no clients")
        answer = await stage.act(f"{KEYS}/redrive", proxy=1, key="a")
        assert (answer["state"], answer["copies"]) == ("redriven", 3)
        stage.consume("consumer", "billing", proxy=1)
        await stage.until(lambda: stage.of("unpark", order="a"))

    assert play(main) == {}
