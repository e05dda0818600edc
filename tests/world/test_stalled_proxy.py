"""A proxy that stood still charges no attempt to leases that expired meanwhile (D3b)."""

from __future__ import annotations

import asyncio

import pytest

from tests.world.stage import Stage, play

RULES = {
    "name": "orders",
    "order_key": "KEY",
    "visibility_timeout_s": 4,
    "max_deliveries": 1,
    "on_exhausted": "dead_letter",
}


@pytest.mark.parametrize("stall_s", [6.0, 12.0])
def test_a_stall_of_the_proxy_uses_up_no_delivery(stall_s: float) -> None:
    """The client holds the messages all the time. The lock outlives 6 s, but not 12 s."""

    async def main(stage: Stage) -> None:
        await stage.start(
            groups=[{"name": "billing", "topics": [RULES]}], topics={"orders": 1}, proxies=1
        )
        stage.habits.work_for(2.0)
        stage.consume("consumer", "billing")
        await stage.send("orders", ["a", "b", "c"], 6)
        await stage.until(lambda: len(stage.of("deliver")) >= 3)
        (proxy,) = stage.world.proxies
        proxy.pause()
        await asyncio.sleep(stall_s)
        proxy.resume()
        await stage.until(lambda: len(stage.of("finish")) == 6)
        assert {each["outcome"] for each in stage.of("finish")} == {"ok"}
        assert {each["attempt"] for each in stage.of("deliver")} == {1}
        assert not stage.of("expire", counted=True)

    assert play(main) == {}


def test_a_lease_that_expires_while_the_proxy_runs_is_charged() -> None:
    async def main(stage: Stage) -> None:
        await stage.start(
            groups=[{"name": "billing", "topics": [RULES]}], topics={"orders": 1}, proxies=1
        )
        stage.habits.work_for(2.0)
        stage.consume("consumer", "billing")
        await stage.send("orders", ["a"], 1)
        await stage.until(lambda: stage.of("deliver"))
        stage.world.nodes["consumer"].pause()
        await asyncio.sleep(6)
        await stage.until(lambda: stage.of("finish"))
        assert [each["outcome"] for each in stage.of("finish")] == ["dlq"]
        assert [each.get("counted") for each in stage.of("expire")] == [None]

    assert play(main) == {}
