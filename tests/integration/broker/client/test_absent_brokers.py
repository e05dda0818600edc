"""Topics whose brokers are not registered at the moment: they are away, not unknown."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest

from broker_core.client import BrokerClient
from broker_core.client import routes as client_routes
from broker_core.errors import BrokerError, NotConnected
from broker_core.names import Topic
from broker_core.nameserver.server import NameServer
from tests.integration.broker.client.scripted_broker import scripted_broker

ORDERS, OTHERS = Topic("orders"), Topic("others")


@pytest.fixture
async def nameserver() -> AsyncIterator[NameServer]:
    nameserver = NameServer()
    await nameserver.start()
    yield nameserver
    await nameserver.close()


@pytest.fixture
async def client(nameserver: NameServer) -> AsyncIterator[BrokerClient]:
    client = BrokerClient(nameservers=[nameserver.address], client_id="operator@1#1")
    await client.start()
    yield client
    await client.close()


async def test_a_topic_is_not_unknown_while_its_broker_restarts(
    nameserver: NameServer, client: BrokerClient
) -> None:
    async with scripted_broker(nameserver.address, "broker-b") as other:
        await other.add_topic("others", queues=1)
        async with scripted_broker(nameserver.address) as broker:
            await broker.add_topic("orders", queues=2)
            assert len(await client.writable_queues(ORDERS)) == 2
        for _ in range(2):
            with pytest.raises(NotConnected, match="orders: its broker broker-a is not registered"):
                await client.writable_queues(ORDERS, fresh=True)
        async with scripted_broker(nameserver.address) as broker:
            await broker.add_topic("orders", queues=2)
            assert len(await client.writable_queues(ORDERS, fresh=True)) == 2


async def test_no_topic_is_unknown_while_no_broker_is_registered(
    nameserver: NameServer, client: BrokerClient
) -> None:
    """A proxy that has just started does not know which brokers there were."""
    with pytest.raises(NotConnected, match="no broker is registered at 127"):
        await client.writable_queues(ORDERS)


async def test_a_topic_that_its_registered_broker_does_not_have_is_unknown(
    nameserver: NameServer, client: BrokerClient
) -> None:
    async with scripted_broker(nameserver.address) as broker:
        await broker.add_topic("orders", queues=2)
        assert len(await client.writable_queues(ORDERS)) == 2
    async with scripted_broker(nameserver.address) as broker:
        await broker.add_topic("others", queues=1)
        for topic in (ORDERS, Topic("never")):
            with pytest.raises(BrokerError, match="No topic route"):
                await client.writable_queues(topic, fresh=True)


async def test_a_topic_is_unknown_once_its_broker_has_stayed_away(
    nameserver: NameServer, client: BrokerClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with scripted_broker(nameserver.address, "broker-b") as other:
        await other.add_topic("others", queues=1)
        async with scripted_broker(nameserver.address) as broker:
            await broker.add_topic("orders", queues=2)
            await client.writable_queues(ORDERS)
        with pytest.raises(NotConnected):
            await client.writable_queues(ORDERS, fresh=True)
        later_ns = client_routes.now_ns() + 121_000_000_000
        monkeypatch.setattr(client_routes, "now_ns", lambda: later_ns)
        with pytest.raises(BrokerError, match="No topic route"):
            await client.writable_queues(ORDERS, fresh=True)
