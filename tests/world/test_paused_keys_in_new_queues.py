"""A paused key stays paused when its topic gets further queues, to which producers then send it."""

from __future__ import annotations

import asyncio

import pytest

from tests.world.full_logs import KEYS
from tests.world.stage import Stage, play

NAMES = tuple(f"k{number}" for number in range(12))
PAUSED = NAMES[:6]


def test_a_key_is_paused_in_queues_that_are_added_later() -> None:
    topics = [{"name": name, "order_key": "KEY"} for name in ("orders", "payments")]

    async def main(stage: Stage) -> None:
        groups = [{"name": "billing", "topics": topics}]
        await stage.start(groups=groups, topics={"orders": 1, "payments": 1})
        stage.consume("consumer", "billing")
        await stage.send("orders", NAMES, 12)
        for key in PAUSED:
            await stage.act(f"{KEYS}/pause", key=key)
        for topic in ("orders", "payments"):
            await stage.world.make_topic(topic, 4)
        await stage.until(lambda: len(stage.of("own+")) == 8)
        begin = len(stage.events)
        await stage.send("orders", NAMES, 40)
        await stage.send("payments", NAMES, 20)
        await asyncio.sleep(10)
        got = [each for each in stage.events[begin:] if each["e"] == "deliver"]
        assert len({each["queue"] for each in got}) > 1  # producers use the new queues
        delivered = {(each["topic"], each["order"]) for each in got}
        assert not {("orders", key) for key in PAUSED} & delivered
        assert {("payments", key) for key in PAUSED} & delivered
        for key in PAUSED:
            await stage.act(f"{KEYS}/resume", key=key)
        await stage.until(lambda: len(stage.of("finish", outcome="ok")) == 72)

    assert play(main) == {}


@pytest.mark.parametrize("names", [["broker-a"], ["broker-a", "broker-b"]], ids=len)
@pytest.mark.parametrize("what", ["key", "group"])
def test_also_if_a_proxy_without_queues_of_the_topic_gets_the_new_ones(
    what: str, names: list[str]
) -> None:
    """It knows the pause only from the records of queues that other proxies own."""

    async def main(stage: Stage) -> None:
        groups = [{"name": "billing", "topics": [{"name": "orders", "order_key": "KEY"}]}]
        named = {name: {} for name in names}
        await stage.start(groups=groups, topics={}, brokers=named, proxies=3)
        await stage.world.make_topic("orders", 1, broker="broker-a")
        for number in range(3):
            stage.consume(f"consumer-{number}", "billing", proxy=number)
        await stage.until(lambda: len(stage.of("own+")) == 1)
        await stage.send("orders", NAMES, 12)
        await stage.until(lambda: len(stage.of("finish", outcome="ok")) == 12)
        (owner,) = (int(each["node"].rpartition("-")[2]) for each in stage.of("own+"))
        if what == "key":
            for key in PAUSED:
                await stage.act(f"{KEYS}/pause", proxy=owner, key=key)
        else:
            await stage.act("/api/groups/billing/pause", proxy=owner)
        begin = len(stage.events)
        await stage.world.make_topic("orders", 3)
        await stage.until(lambda: len({each["node"] for each in stage.of("own+")}) == 3)
        await stage.send("orders", NAMES, 40)
        await asyncio.sleep(10)
        got = [each for each in stage.events[begin:] if each["e"] == "deliver"]
        if what == "group":
            assert not got
            return
        assert len({each["queue"] for each in got}) > 1  # producers use the new queues
        assert not set(PAUSED) & {each["order"] for each in got}

    assert not play(main).keys() & {"R3", "R4"}
