"""Simulated processes: they start, heed signals, and die."""

from __future__ import annotations

import asyncio

import pytest

from testkit.simulation.world import Died, ProxyNode, World, simulate


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
