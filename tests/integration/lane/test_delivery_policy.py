"""The delivery policy over proxies, topics, parked keys and hand-overs, judged by the histories."""

from __future__ import annotations

from pathlib import Path

from testkit.eventually import eventually
from testkit.gateway import run_gateway
from tests.support.consumers import consuming

KEYS = [f"key-{number}" for number in range(60) for _ in range(1 + number % 7)]


async def test_order_holds_while_the_policy_changes_and_a_proxy_leaves(tmp_path: Path) -> None:
    topic = {"max_jobs_in_memory": 40, "max_jobs_per_key_in_memory": 2}
    async with run_gateway(tmp_path, topic=topic) as gateway:
        gateway.settings["groups"][0]["hand_out"] = "longest_chain"
        first, at = await gateway.start_proxy()
        second, other = await gateway.start_proxy()
        async with consuming(gateway, at.thrift, "a"), consuming(gateway, other.thrift, "b"):
            await gateway.send(KEYS)
            await eventually(lambda: len(gateway.events("deliver")) >= 40, within_s=60)
            [lane] = second.lanes
            lane.apply(lane.settings.model_copy(update={"hand_out": "oldest"}))
            await gateway.send(KEYS)
            lane.apply(lane.settings.model_copy(update={"hand_out": "longest_chain"}))
            await gateway.close_proxy(first)
            await eventually(gateway.all_finished, within_s=120)
    report = gateway.verify()
    assert report.violations == {}
    assert report.counts.duplicates == 0
