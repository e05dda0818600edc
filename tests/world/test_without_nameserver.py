"""Proxies and brokers while no nameserver answers: what they know of each other has to do."""

from __future__ import annotations

import asyncio

import pytest

from tests.world.test_demand_by_topic import Scene, run


def test_queues_of_a_dead_proxy_are_taken_over() -> None:
    async def act(scene: Scene) -> None:
        world = scene.world
        one, other = world.proxies
        scene.pull("a", ["orders"], 0)
        scene.pull("b", ["orders"], 1)
        scene.send("orders", 50)
        await scene.sent()
        world.nameserver.kill()
        await asyncio.sleep(5)
        one.kill()
        scene.producer.send_by([other.thrift])
        scene.send("orders", 50)
        await scene.sent()
        await asyncio.sleep(20)
        await world.nameserver.start()
        await asyncio.sleep(5)

    scene = run(act)
    assert max(scene.waits_s()) < 15


@pytest.mark.parametrize("refused", [False, True])
def test_a_proxy_goes_on_after_a_restart_of_its_broker(refused: bool) -> None:
    """If the broker had refused records, for a full disk, the proxy once looked for their topic at
    a nameserver before it wrote any, although the broker had room again.
    """

    async def act(scene: Scene) -> None:
        world = scene.world
        (broker,) = world.brokers
        scene.pull("a", ["orders"], 0)
        scene.send("orders", 50)
        await scene.sent()
        world.nameserver.kill()
        if refused:
            scene.send("orders", 50)
            await asyncio.sleep(1)
            world.disk.fill(broker.folder)
            await asyncio.sleep(5)
            world.disk.free(broker.folder)
            await scene.sent()
        await asyncio.sleep(5)
        broker.kill()
        await broker.start()
        scene.send("orders", 50)
        await scene.sent()
        await asyncio.sleep(20)
        await world.nameserver.start()
        await asyncio.sleep(5)

    scene = run(act)
    assert max(scene.waits_s()) < 20
