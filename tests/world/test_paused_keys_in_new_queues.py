"""A paused key stays paused when its topic gets further queues, to which producers then send it."""

from __future__ import annotations

import asyncio

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
