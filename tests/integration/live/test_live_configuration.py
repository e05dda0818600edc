"""Settings that change under load: no loss, no repeats, no order violation."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import aiohttp
import orjson
import pytest
import yaml

from proxy.listening import Addresses
from testkit.eventually import eventually
from testkit.gateway import Gateway, run_gateway
from tests.support.consumers import consuming
from thin_client.errors import Refused

KEYS = [f"k{number % 40}" for number in range(400)]
#: No lock expires even if the machine is suspended for seconds.
PATIENT = {"renewal_s": 0.5, "trust_s": 9.0, "request_timeout_s": 5.0}


class File:
    """The settings file of the gateway's proxies."""

    def __init__(self, gateway: Gateway, folder: Path) -> None:
        self.gateway = gateway
        self.path = folder / "orderlane.yaml"
        self.group: dict[str, Any] = gateway.settings["groups"][0]
        self.write([self.group])

    def write(self, groups: list[dict[str, Any]]) -> None:
        self.path.write_text(yaml.safe_dump({"groups": groups}))

    def with_topic(self, *, max_leased_jobs: int = 4096, **others: Any) -> dict[str, Any]:
        """Return the group with other settings of its topic."""
        topics = [{**self.group["topics"][0], **others}]
        return {**self.group, "max_leased_jobs": max_leased_jobs, "topics": topics}


@pytest.mark.slow
async def test_limits_time_outs_and_policies_change_under_load(tmp_path: Path) -> None:
    """Leases, chains and locks stay: each queue has one owner, and each message one delivery."""
    async with run_gateway(tmp_path, lock=PATIENT) as gateway:
        file = File(gateway, tmp_path)
        proxy, addresses = await gateway.start_proxy(file=file.path)
        changes = [
            file.with_topic(visibility_timeout_s=30.0, max_pull_batch=3),
            file.with_topic(visibility_timeout_s=6.0, max_jobs_in_memory=50, max_leased_jobs=7),
            file.with_topic(max_jobs_per_key_in_memory=1, retry_intervals_ms=[1], tags="* || x"),
            file.with_topic(on_exhausted="block", max_deliveries=1),
        ]
        async with consuming(gateway, addresses.thrift, "one"):
            for change in changes:
                await gateway.send(KEYS)
                file.write([change])
                proxy.reload()
                topic, limit = change["topics"][0], change["max_leased_jobs"]
                await eventually(lambda: _goes_by(gateway, topic, limit), within_s=30)  # noqa: B023
            await gateway.send(KEYS)
            await eventually(gateway.all_finished, within_s=60)
        report = gateway.verify()
        assert report.violations == {}
        assert report.counts.duplicates == 0
        assert len(gateway.events("own+")) == len(gateway.statistics()), "no lock was given back"


def _goes_by(gateway: Gateway, topic: dict[str, Any], limit: int) -> bool:
    """Return whether all queues follow these rules, including a longer lease."""
    told = [*gateway.events("own+"), *gateway.events("rules")]
    newest = {each["queue"]: each for each in told}
    visibility_ms = topic.get("visibility_timeout_s", 5.0) * 1000
    return len(newest) == 8 and all(
        (each["visibility_ms"], each["max_leased"]) == (visibility_ms, limit)
        for each in newest.values()
    )


async def test_a_topic_comes_and_goes_under_load(tmp_path: Path) -> None:
    async with run_gateway(tmp_path, queues=4, lock=PATIENT) as gateway:
        file = File(gateway, tmp_path)
        proxy, addresses = await gateway.start_proxy(file=file.path)
        await gateway.client.create_topic("more", queues=2)  # type: ignore[arg-type]
        more = {**file.group["topics"][0], "name": "more"}
        lane = proxy.lanes.find(gateway.group)
        assert lane is not None
        async with consuming(gateway, addresses.thrift, "one"):
            await gateway.send(KEYS)
            file.write([{**file.group, "topics": [*file.group["topics"], more]}])
            proxy.reload()
            await eventually(lambda: len(lane.statistics()) == 6, within_s=30)
            await gateway.send(KEYS)
            file.write([file.group])
            proxy.reload()
            await eventually(lambda: len(lane.statistics()) == 4, within_s=30)
            assert "more" not in lane.counts
            await eventually(gateway.all_finished, within_s=60)
        report = gateway.verify()
        assert report.violations == {}
        assert report.counts.duplicates == 0


@pytest.mark.failing_tasks
async def test_the_last_group_is_removed_with_all_that_it_had_and_comes_back(
    tmp_path: Path,
) -> None:
    """Clients may finish their leased messages; then the proxy forgets the group."""
    async with run_gateway(tmp_path, queues=2, lock=PATIENT) as gateway:
        file = File(gateway, tmp_path)
        proxy, addresses = await gateway.start_proxy(file=file.path)
        with pytest.raises(Refused, match=gateway.group):  # noqa: PT012  # as any unknown group
            async with consuming(gateway, addresses.thrift, "one"):
                await gateway.send(KEYS)
                await eventually(lambda: len(gateway.events("deliver")) > 50, within_s=30)
                file.write([])
                proxy.reload()
                await eventually(lambda: proxy.lanes.find(gateway.group) is None, within_s=60)
        assert gateway.statistics() == []
        assert {each["reason"] for each in gateway.events("own-")} == {"handed over"}
        assert f'"{gateway.group}"' not in await _get(addresses, "/metrics")
        file.write([file.group])
        proxy.reload()
        await eventually(lambda: proxy.lanes.find(gateway.group) is not None, within_s=60)
        async with consuming(gateway, addresses.thrift, "two"):
            await eventually(gateway.all_finished, within_s=60)
        report = gateway.verify()
        assert report.violations == {}
        assert report.counts.duplicates == 0


async def test_a_bad_file_changes_nothing_and_everybody_can_read_why(tmp_path: Path) -> None:
    async with run_gateway(tmp_path, queues=1) as gateway:
        file = File(gateway, tmp_path)
        proxy, addresses = await gateway.start_proxy(file=file.path)
        file.write([{**file.group, "max_leased": 1}])
        proxy.reload()
        config: dict[str, Any] = {"problems": []}
        async with asyncio.timeout(30):
            while not config["problems"]:
                config = orjson.loads(await _get(addresses, "/api/config"))
        assert "did you mean max_leased_jobs?" in config["problems"][0]
        assert config["groups"] == [{"group": gateway.group, "source": "file"}]
        assert 'orderlane_config_bad{source="file"} 1.0' in await _get(addresses, "/metrics")


async def _get(addresses: Addresses, path: str) -> str:
    async with (
        aiohttp.ClientSession() as session,
        session.get(f"http://{addresses.http}{path}") as answer,
    ):
        return await answer.text()
