"""A queue is taken over whose window is full of messages that its former owner spilled.

The next owner reads what the former one had in memory before it refills anything.
"""

from __future__ import annotations

import asyncio

import pytest

from tests.world.stage import Stage, play
from tests.world.stuck_worlds import StuckWorld, group

SMALL = {"max_jobs_in_memory": 20, "max_jobs_per_key_in_memory": 4}


@pytest.mark.parametrize("order_key", ["QID", None])
@pytest.mark.parametrize("how", ["stop", "kill"])
def test_its_keys_have_become_one(order_key: str | None, how: str) -> None:
    """The queue of a single key is not read past a full window."""
    world = StuckWorld({"orders": 1}, [group(orders=SMALL)], seconds=60.0, proxies=2)
    world.client(concurrency=4)
    world.act(0.0, "work", seconds=0.2)
    world.send("orders", ["hot"] * 10 + ["stuck"], 200)
    world.stick("stuck")
    world.act(5.0, "settings", group="billing", topic="orders", change={"order_key": order_key})
    world.act(10.0, how, node="proxy-0", for_s=60.0)
    world.play().kept()


@pytest.mark.parametrize("paused", [False, True])
def test_an_operator_acts_on_it_though_it_has_no_clients(paused: bool) -> None:
    keys = "/api/groups/billing/topics/orders/keys"

    async def main(stage: Stage) -> None:
        await stage.start(groups=[group(orders=SMALL)], topics={"orders": 1}, proxies=2)
        client = stage.consume("client", "billing")
        stage.habits.stuck.update({("billing", "hot"), ("billing", "late")})
        await stage.send("orders", ["hot"], 100)
        await stage.send("orders", ["late"], 1)
        await stage.until(lambda: len(stage.of("handle_start")) == 2)
        if paused:
            await stage.act("/api/groups/billing/pause")
        client.kill()
        stage.world.proxies[0].kill()
        await stage.act(f"{keys}/park", proxy=1, key="hot")
        await asyncio.sleep(5)  # its messages are copied
        stage.habits.cure()
        await stage.act(f"{keys}/redrive", proxy=1, key="hot")
        if paused:
            await stage.act("/api/groups/billing/resume", proxy=1)
        stage.consume("client", "billing", proxy=1)
        await stage.until(lambda: len({e["msg"] for e in stage.of("handle_end")}) == 101)

    assert play(main) == {}
