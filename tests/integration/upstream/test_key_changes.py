"""The order key changes under load: older messages of a key come first, other keys do not wait."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest
import yaml

from testkit.eventually import eventually
from testkit.gateway import Gateway, run_gateway
from tests.support.consumers import consuming
from thin_client.message import Message

KEYS = [f"k{number % 40}" for number in range(80)]
SHOPS = [f"s{number}" for number in range(5)]


def _write(gateway: Gateway, path: Path, **of_topic: Any) -> None:
    group = gateway.settings["groups"][0]
    topic = {**group["topics"][0], **of_topic}
    path.write_text(yaml.safe_dump({"groups": [{**group, "topics": [topic]}]}))


async def _send(gateway: Gateway) -> None:
    for shop in SHOPS:
        await gateway.send(KEYS, body='{{"id": "{key}", "n": {n}, "shop": "' + shop + '"}}')


def _begun(gateway: Gateway, order_key: str) -> int:
    """Return the number of queues in which the change has begun."""
    told = gateway.events("order_key")
    return len({e["queue"] for e in told if e["order_key"] == order_key})


def _through(gateway: Gateway, order_key: str) -> int:
    """Return the number of queues in which the change has ended."""
    told = gateway.events("order_key")
    return len({e["queue"] for e in told if e["through"] and e["order_key"] == order_key})


@pytest.mark.slow
async def test_the_order_key_changes_there_and_back_under_load(tmp_path: Path) -> None:
    """Changing back needs a higher version; queues keep their owners."""
    async with run_gateway(tmp_path, queues=4) as gateway:
        path = tmp_path / "orderlane.yaml"
        _write(gateway, path, order_key="KEY")
        proxy, addresses = await gateway.start_proxy(file=path)

        begun = asyncio.Event()

        async def work(_: Message) -> None:
            await begun.wait()  # so that older messages are left when it begins
            await asyncio.sleep(0.005)

        async with consuming(gateway, addresses.thrift, "one", handle=work):
            for order_key, version in (("$.shop", 0), ("KEY", 1)):
                await _send(gateway)
                _write(gateway, path, order_key=order_key, order_key_version=version)
                proxy.reload()
                await eventually(lambda: _begun(gateway, order_key) == 4, within_s=30)  # noqa: B023
                begun.set()
                await _send(gateway)
                await eventually(lambda: _through(gateway, order_key) == 4, within_s=60)  # noqa: B023
                begun.clear()
            begun.set()
            await eventually(gateway.all_finished, within_s=60)
        report = gateway.verify()
        assert report.violations == {}
        assert report.counts.duplicates == 0
        assert len(gateway.events("own+")) == 4
        assert {each["order"] for each in gateway.events("deliver")} >= {*SHOPS, *KEYS}
        assert any(each.get("next_order") in SHOPS for each in gateway.events("deliver"))


@pytest.mark.slow
async def test_older_settings_serve_no_queue_until_their_version_is_raised(
    tmp_path: Path,
) -> None:
    async with run_gateway(tmp_path, queues=2) as gateway:
        path = tmp_path / "orderlane.yaml"
        _write(gateway, path, order_key="KEY")
        first, addresses = await gateway.start_proxy(file=path)
        async with consuming(gateway, addresses.thrift, "one"):
            await _send(gateway)
            _write(gateway, path, order_key="$.shop")
            first.reload()
            await eventually(lambda: _through(gateway, "$.shop") == 2, within_s=60)
        await gateway.close_proxy(first)
        _write(gateway, path, order_key="KEY")
        second, addresses = await gateway.start_proxy(file=path)
        lane = next(iter(second.lanes))
        async with consuming(gateway, addresses.thrift, "two"):
            await eventually(lambda: len(lane.refused) == 2, within_s=30)
            assert gateway.statistics() == []
            assert all("order_key_version: 1" in why for why, _ in lane.refused.values())
            _write(gateway, path, order_key="KEY", order_key_version=1)
            second.reload()
            await _send(gateway)
            await eventually(lambda: _through(gateway, "KEY") == 2, within_s=60)
            await eventually(gateway.all_finished, within_s=60)
        assert not lane.refused
        assert gateway.verify().violations == {}
