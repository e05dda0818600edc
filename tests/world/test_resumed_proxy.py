"""A proxy that was drained serves clients once it is resumed."""

from __future__ import annotations

import asyncio

from tests.world.stage import Stage, play

GROUP = "billing"


def test_clients_are_served_after_a_resume() -> None:
    async def main(stage: Stage) -> None:
        groups = [{"name": GROUP, "topics": [{"name": "orders"}]}]
        await stage.start(groups=groups, topics={"orders": 1})
        stage.consume("consumer", GROUP)
        await stage.send("orders", ["a", "b"], 20)
        await stage.until(lambda: len(stage.of("finish", group=GROUP)) == 20)
        await stage.act("/api/owners/drain")
        await asyncio.sleep(5)
        await stage.act("/api/owners/resume")
        await stage.send("orders", ["a", "b"], 20)
        await stage.until(lambda: len(stage.of("finish", group=GROUP)) == 40)

    assert play(main) == {}
