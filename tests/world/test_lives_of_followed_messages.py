"""An operator who follows the messages of a topic sees all of a topic that is created again."""

from __future__ import annotations

from typing import Any

import pytest

from tests.world.stage import Stage, play

NAMES = tuple(f"k{number}" for number in range(6))


async def page(stage: Stage, **query: Any) -> dict[str, Any]:
    asked = "&".join(f"{name}={value}" for name, value in query.items())
    (proxy,) = stage.world.proxies
    status, found = await stage.world.http(proxy, f"/api/topics/orders/messages?{asked}")
    assert status == 200, found
    assert isinstance(found, dict)
    return found


@pytest.mark.parametrize(("queues", "count"), [(2, 3), (2, 40), (1, 40), (4, 40)])
def test_however_many_queues_and_messages_it_has(queues: int, count: int) -> None:
    async def main(stage: Stage) -> None:
        await stage.start(groups=[], topics={"orders": 2})
        await stage.send("orders", NAMES, 20)
        found = await page(stage, start="end")
        assert found["messages"] == []
        await stage.send("orders", NAMES, 2)
        found = await page(stage, positions=found["positions"])
        assert len(found["messages"]) == 2
        await stage.world.delete_topic("orders")
        await stage.world.make_topic("orders", queues)
        await stage.send("orders", NAMES, count)
        found = await page(stage, positions=found["positions"])
        assert (len(found["messages"]), found["complete"]) == (count, True)
        await stage.send("orders", NAMES, 2)
        assert len((await page(stage, positions=found["positions"]))["messages"]) == 2

    play(main)
