"""The end of a proxy takes a bounded time, whatever the number of groups and whatever hangs."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest
from structlog.testing import capture_logs

from broker_core.client import BrokerClient
from broker_core.clock import now_ns
from proxy.app import Proxy
from proxy.upstream.ownership import owned_queue
from testkit.eventually import eventually
from testkit.gateway import Gateway, run_gateway

GROUPS = 40
QUEUES = 4


async def started(gateway: Gateway, **settings: Any) -> Proxy:
    """Start a proxy that owns all queues of all groups."""
    topic = {"name": gateway.topic, "order_key": "KEY"}
    groups = [{"name": f"group-{number}", "topics": [topic]} for number in range(GROUPS)]
    proxy, _ = await gateway.start_proxy(groups=groups, **settings)
    for lane in proxy.lanes:
        lane.pulled(None, now_ns=now_ns())
    await eventually(lambda: owned(proxy) == GROUPS * QUEUES, within_s=60)
    return proxy


def owned(proxy: Proxy) -> int:
    return sum(len(lane.buffer) for lane in proxy.lanes)


async def test_the_queues_of_many_groups_are_handed_over_together(tmp_path: Path) -> None:
    async with run_gateway(tmp_path, queues=QUEUES) as gateway:
        proxy = await started(gateway)
        began_ns = now_ns()
        with capture_logs() as logs:
            await gateway.close_proxy(proxy)
        assert now_ns() - began_ns < 5e9
        assert not [each for each in logs if each["log_level"] in ("warning", "error")]
        assert owned(proxy) == 0
        locks = gateway.cluster.broker.components.locks  # type: ignore[attr-defined]
        assert len(locks) == 0, "the next owner need not wait"


@pytest.mark.parametrize("hangs", ["some", "all"])
async def test_hand_overs_that_hang_are_abandoned_and_reported(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, hangs: str
) -> None:
    real = owned_queue.write_end

    async def write_end(context: Any, lane: Any, pipeline: Any, *, to: str) -> bool:
        if hangs == "all" or lane.name == "group-7":
            await asyncio.Event().wait()
        return await real(context, lane, pipeline, to=to)

    monkeypatch.setattr(owned_queue, "write_end", write_end)
    async with run_gateway(tmp_path, queues=QUEUES) as gateway:
        proxy = await started(gateway, ownership={"drain_s": 3})
        began_ns = now_ns()
        with capture_logs() as logs:
            await gateway.close_proxy(proxy)
        assert 3e9 < now_ns() - began_ns < 15e9
        (report,) = [each for each in logs if "not handed over within" in each["event"]]
        groups = GROUPS if hangs == "all" else 1
        assert (report["groups"], report["queues"]) == (groups, groups * QUEUES)
        left = [task.get_name() for task in asyncio.all_tasks() if "hand over" in task.get_name()]
        assert left == []


async def test_a_broker_that_no_longer_answers_does_not_prolong_the_end(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each group would wait for its own timeout, one after the other."""
    async with run_gateway(tmp_path, queues=QUEUES) as gateway:
        proxy = await started(gateway, ownership={"drain_s": 3})

        async def hangs(*_: Any, **__: Any) -> None:
            await asyncio.Event().wait()

        monkeypatch.setattr(BrokerClient, "unregister", hangs)
        began_ns = now_ns()
        with capture_logs() as logs:
            await gateway.close_proxy(proxy)
        assert now_ns() - began_ns < 15e9
        assert any("not handed over within" in each["event"] for each in logs)
