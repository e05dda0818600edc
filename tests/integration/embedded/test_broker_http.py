"""The HTTP port of an embedded broker: probes and metrics, and who may see them."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import aiohttp
import pytest
from prometheus_client.parser import text_string_to_metric_families

from broker_core.broker import Broker, BrokerSettings
from broker_core.errors import BrokerError
from broker_core.names import Group, QueueName, Topic
from broker_core.remoting.message import OutgoingMessage
from proxy.cli.servers import Addresses, running_all
from proxy.embedded.broker_http import BrokerHttp
from proxy.errors import OrderlaneError
from proxy.history.record import NullHistory
from proxy.settings.proxy_settings import ListenSettings, Settings
from testkit.broker_process import Cluster, run_broker

pytestmark = pytest.mark.sockets

ORDERS, BILLING = Topic("orders"), Group("billing")


@asynccontextmanager
async def port_of(broker: Broker) -> AsyncIterator[str]:
    port = BrokerHttp(broker, name="broker-a", address="127.0.0.1:0")
    at = await port.listen()
    try:
        yield at
    finally:
        await port.close()


async def get(at: str, path: str, **headers: str) -> tuple[int, str]:
    async with (
        aiohttp.ClientSession() as session,
        session.get(f"http://{at}{path}", headers=headers) as answer,
    ):
        return answer.status, await answer.text()


async def values_of(at: str) -> dict[str, float]:
    """Return the metrics with the broker's label alone, and refusals by their reason."""
    status, text = await get(at, "/metrics")
    assert status == 200
    return {
        sample.labels.get("reason") or sample.name.removeprefix("orderlane_broker_"): sample.value
        for family in text_string_to_metric_families(text)
        for sample in family.samples
        if sample.labels.get("broker") == "broker-a"
    }


async def send(cluster: Cluster, body: bytes, *, topic: Topic = ORDERS, queue_id: int = 0) -> None:
    client = await cluster.client()
    queue = QueueName(topic, cluster.broker_name, queue_id)
    await client.send(queue, OutgoingMessage(topic, body))


async def test_messages_that_are_sent_and_read_are_counted_with_their_bytes(
    tmp_path: Path,
) -> None:
    async with run_broker(tmp_path) as cluster, port_of(cluster.broker) as at:
        client = await cluster.client()
        await client.create_topic(ORDERS, queues=1)
        before = await values_of(at)
        await send(cluster, b"12345")
        await send(cluster, b"678")
        queue = QueueName(ORDERS, cluster.broker_name, 0)
        pulled = await client.pull(queue, group=BILLING, offset=0, max_messages=32, suspend_ms=0)
        after = await values_of(at)
    assert len(pulled.messages) == 2
    gained = {name: after[name] - before.get(name, 0) for name in after}
    assert (gained["sent_messages_total"], gained["sent_bytes_total"]) == (2, 8)
    assert gained["read_messages_total"] == 2
    assert gained["read_bytes_total"] == gained["log_end_bytes"] > 8
    assert after["disk_total_bytes"] >= after["disk_used_bytes"] > 0
    assert after["disk_free_bytes"] > 0
    assert after["oldest_message_timestamp_seconds"] > 1_700_000_000
    assert after["connections"] >= 1
    assert (after["open"], after["serves_as_master"], after["damaged_messages"]) == (1, 1, 0)


async def test_refused_sends_are_counted_by_reason(tmp_path: Path) -> None:
    async with (
        run_broker(tmp_path, max_message_bytes=1000) as cluster,
        port_of(cluster.broker) as at,
    ):
        await (await cluster.client()).create_topic(ORDERS, queues=1)
        for body, topic in ((bytes(1001), ORDERS), (b"", Topic("nowhere"))):
            with pytest.raises(BrokerError):
                await send(cluster, body, topic=topic)
        values = await values_of(at)
    assert (values["message_illegal"], values["topic_not_exist"]) == (1, 1)
    assert values["sent_messages_total"] == 0


async def test_a_broker_is_ready_while_it_is_open(tmp_path: Path) -> None:
    async with run_broker(tmp_path) as cluster, port_of(cluster.broker) as at:
        assert await get(at, "/readyz") == (200, "ready\n")
        await cluster.broker.close()
        assert await get(at, "/readyz") == (503, "not ready: it is not open\n")
        assert await get(at, "/healthz") == (200, "ok\n")
        assert await values_of(at) == {"open": 0}
        await cluster.broker.start()
        assert await get(at, "/readyz") == (200, "ready\n")


async def test_on_loopback_only_local_host_names_are_served(tmp_path: Path) -> None:
    async with run_broker(tmp_path) as cluster, port_of(cluster.broker) as at:
        status, text = await get(at, "/metrics", Host="rebound.example.com")
        assert (status, "wrong host" in text) == (403, True)
        status, text = await get(at, "/api/groups")
        assert (status, "unknown path /api/groups: see /metrics" in text) == (404, True)


@asynccontextmanager
async def all_running(data: Path, *, http: str) -> AsyncIterator[Addresses]:
    loopback = ListenSettings(thrift="127.0.0.1:0", http="127.0.0.1:0")
    embedded = BrokerSettings(data=data, listen="127.0.0.1:0", http=http)
    settings = Settings(listen=loopback)
    async with running_all(settings, embedded, NullHistory(), nameserver="127.0.0.1:0") as at:
        yield at


async def test_the_proxy_in_the_same_process_reports_the_broker_too(tmp_path: Path) -> None:
    async with all_running(tmp_path / "data", http="127.0.0.1:0") as at:
        beside = await values_of(at["http"])
        alone = await values_of(at["broker_http"])
        _, text = await get(at["http"], "/metrics")
    assert beside["open"] == alone["open"] == 1
    assert beside.keys() <= alone.keys()
    assert 'orderlane_build_info{component="proxy"' in text


async def test_a_port_that_is_taken_is_named_with_its_setting(tmp_path: Path) -> None:
    async with run_broker(tmp_path) as cluster:
        taken = cluster.broker.address
        with pytest.raises(OrderlaneError, match=f"cannot listen on {taken}, its setting http: "):
            async with all_running(tmp_path / "other", http=taken):
                pytest.fail("it listens")
