"""Simulated processes: they start, handle signals, and die."""

from __future__ import annotations

import asyncio

import pytest

from testkit.simulation.world import Died, ProxyNode, World, simulate
from tests.world.stage import Stage, play


@pytest.mark.parametrize("steps", [0, 1])
def test_a_signal_to_a_proxy_that_still_starts_kills_it(steps: int) -> None:
    async def main(world: World) -> None:
        world.write_settings([])
        await world.start({"broker-a": {}})
        proxy = world.add(ProxyNode, "proxy-0")
        starting = asyncio.get_running_loop().create_task(proxy.start())
        for _ in range(steps + 1):
            await asyncio.sleep(0)
        await proxy.stop()
        assert not proxy.lives_now
        with pytest.raises(Died):
            await starting
        await proxy.start()
        assert proxy.lives_now
        await proxy.stop()
        assert world.failures == []

    simulate(main, seed=steps)


def test_a_second_signal_stops_a_proxy_at_once() -> None:
    """Like ``orderlane proxy``: it no longer waits for its clients."""

    async def main(stage: Stage) -> None:
        await stage.start(
            groups=[{"name": "billing", "topics": [{"name": "orders", "order_key": "KEY"}]}],
            topics={"orders": 1},
        )
        stage.habits.work_for(20.0)
        stage.consume("consumer", "billing")
        await stage.send("orders", ["a"], 2)
        await stage.until(lambda: stage.of("handle_start"))
        proxy = stage.world.proxies[0]
        first = asyncio.get_running_loop().create_task(proxy.stop())
        await asyncio.sleep(1)
        assert proxy.lives_now, "it waits for its client"
        await proxy.stop()
        assert not proxy.lives_now
        with pytest.raises(Died):
            await first
        await proxy.start()
        stage.habits.cure()
        await stage.until(lambda: len(stage.of("finish")) == 2)
        assert stage.world.failures == []

    assert play(main) == {}
