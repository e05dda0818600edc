"""The state of queues that are not there for a while outlives retention (K1)."""

from __future__ import annotations

import asyncio

import pytest

from tests.world.full_logs import KEYS, SMALL, others_fill_the_log
from tests.world.stage import Stage, play
from tests.world.test_kept_state import ORDERS

NAMES = tuple(f"k{number}" for number in range(8))
NEWER = {**ORDERS, "order_key": "$.id", "order_key_version": 1}


async def begin(stage: Stage, *, proxies: int = 1) -> None:
    await stage.start(
        groups=[{"name": "billing", "topics": [ORDERS]}],
        topics={"orders": 2, "busy": 1},
        brokers={"broker-a": SMALL},
        proxies=proxies,
    )
    stage.consume("consumer", "billing")
    await stage.send("orders", NAMES, 16)
    await stage.until(lambda: len(stage.of("finish")) == 16)


async def pause(stage: Stage, verb: str = "pause", *, proxy: int = 0) -> None:
    for key in NAMES:
        await stage.act(f"{KEYS}/{verb}", key=key, proxy=proxy)


@pytest.mark.parametrize("restarted", [False, True])
def test_a_queue_that_is_removed_for_a_while(restarted: bool) -> None:
    async def main(stage: Stage) -> None:
        await begin(stage)
        await pause(stage)
        stage.world.write_settings([{"name": "billing", "topics": [NEWER]}])
        await stage.until(lambda: len(stage.of("order_key")) >= 2)
        await asyncio.sleep(3)
        await stage.world.make_topic("orders", 1)
        await stage.until(lambda: stage.of("own-", reason="handed over"))
        if restarted:
            await stage.world.proxies[0].stop()
            await stage.world.proxies[0].start()
        await others_fill_the_log(stage)
        await others_fill_the_log(stage)
        owned = len(stage.of("own+"))
        await stage.world.make_topic("orders", 2)
        await stage.until(lambda: len(stage.of("own+")) > owned)
        again = stage.of("own+")[-1]
        assert (again["queue"], again.get("forgotten")) == ("broker-a_1", None)
        assert (again["key_version"], again["epoch"] > 0) == (2, True)
        await stage.send("orders", NAMES, 16)
        await asyncio.sleep(10)
        assert len(stage.of("deliver")) == 16
        await pause(stage, "resume")
        await stage.until(lambda: len(stage.of("finish")) == 32)

    assert play(main) == {}


@pytest.mark.parametrize("restarted", [False, True])
def test_a_topic_that_does_not_exist_for_a_while(restarted: bool) -> None:
    """Its pauses are kept: they are of names."""

    async def main(stage: Stage) -> None:
        await begin(stage)
        await pause(stage)
        await stage.world.delete_topic("orders")
        stage.world.nemesis.write("topic", topic="orders", what="deleted")
        if restarted:
            await stage.world.proxies[0].stop()
            await stage.world.proxies[0].start()
        await others_fill_the_log(stage)
        await others_fill_the_log(stage)
        owned = len(stage.of("own+"))
        await stage.world.make_topic("orders", 2)
        stage.world.nemesis.write("topic", topic="orders", what="created")
        await stage.until(lambda: len(stage.of("own+")) == owned + 2)
        await stage.send("orders", NAMES, 16)
        await asyncio.sleep(10)
        assert len(stage.of("deliver")) == 16
        await pause(stage, "resume")
        await stage.until(lambda: len(stage.of("finish")) == 32)

    assert play(main) == {}
