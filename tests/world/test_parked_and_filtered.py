"""Parked messages are delivered, also if they would be filtered when they were read now."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from testkit.simulation.clients import Flow
from tests.world.full_logs import KEYS
from tests.world.stage import Stage, play


@pytest.mark.parametrize(
    ("before", "after", "properties"),
    [
        ({"pressure_traffic": "pass"}, {"pressure_traffic": "drop"}, {"isPressureTraffic": "true"}),
        ({}, {"tags": "paid"}, {}),
    ],
    ids=["shadow traffic", "tags"],
)
def test_the_next_owner_reads_parked_messages(
    before: dict[str, Any], after: dict[str, Any], properties: dict[str, str]
) -> None:
    topic = {"name": "orders", "order_key": "KEY", "max_deliveries": 1}

    async def main(stage: Stage) -> None:
        groups = [{"name": "billing", "topics": [{**topic, **before}]}]
        await stage.start(groups=groups, topics={"orders": 1}, proxies=2)
        stage.habits.failing.add(("billing", "k"))
        stage.consume("consumer", "billing")
        await stage.producer.send(Flow("orders", ("k",), 0.01, 5, properties=properties))
        await stage.until(lambda: len(stage.of("finish", outcome="parked")) == 5)
        stage.world.write_settings([{"name": "billing", "topics": [{**topic, **after}]}])
        await asyncio.sleep(10)
        stage.world.nodes["consumer"].kill()
        stage.world.proxies[0].kill()
        stage.habits.cure()
        stage.consume("consumer", "billing", proxy=1)
        await stage.until(lambda: stage.of("own+", node="proxy-1", queue="broker-a_0p"))
        await stage.act(f"{KEYS}/redrive", key="k", proxy=1)
        await stage.until(lambda: stage.of("unpark", order="k"))
        assert len(stage.of("finish", outcome="ok")) == 5

    assert play(main) == {}
