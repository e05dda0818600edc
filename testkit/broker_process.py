"""A nameserver and a broker inside the test's own process, on free ports of the loopback."""

from __future__ import annotations

import asyncio
from abc import ABC, abstractmethod
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from broker_core.broker import Broker, BrokerSettings
from broker_core.client.broker_client import BrokerClient
from broker_core.names import QueueName, Topic
from broker_core.nameserver.server import NameServer
from broker_core.tls import ClientContext

SMALL_SEGMENT_BYTES = 8 * 1024 * 1024


class AnyCluster(ABC):
    """Brokers of any kind under a test: addresses, clients, and a broker that can be restarted."""

    broker_name = "broker-a"

    def __init__(self, nameserver: str) -> None:
        self.nameserver = nameserver
        #: TLS of the clients; None: without TLS.
        self.client_tls: ClientContext | None = None
        self._clients: list[BrokerClient] = []

    @abstractmethod
    async def start_broker(self) -> None:
        """Start the broker on the same data and port as before."""

    @abstractmethod
    async def stop_broker(self, *, crash: bool = False) -> None:
        """Close the broker, or end it like ``kill -9``."""

    async def restart_broker(self, *, crash: bool = False) -> None:
        await self.stop_broker(crash=crash)
        await self.start_broker()

    async def client(self, client_id: str = "client-1", **options: Any) -> BrokerClient:
        """Return a started client that is closed with the cluster."""
        # Long timeouts, so that a busy machine does not fail the test's own requests.
        given = {"tls": self.client_tls, "request_timeout_s": 20.0, **options}
        client = BrokerClient(nameservers=[self.nameserver], client_id=client_id, **given)
        await client.start()
        self._clients.append(client)
        return client

    async def create_topic(self, topic: str, *, queues: int = 4) -> list[QueueName]:
        """Create *topic* and return its queues."""
        client = await self.client("topic-maker")
        await client.create_topic(Topic(topic), queues=queues)
        return await client.queues(Topic(topic), fresh=True)

    async def close(self) -> None:
        for client in self._clients:
            await client.close()


class Cluster(AnyCluster):
    """The embedded nameserver and broker."""

    def __init__(self, data: Path, nameserver: NameServer, settings: dict[str, Any]) -> None:
        super().__init__(nameserver.address)
        self.data = data
        self.broker: Broker
        self._settings = settings
        self._port = 0

    def configure(self, **settings: Any) -> None:
        """Set these fields of BrokerSettings from the broker's next start on."""
        self._settings = {**self._settings, **settings}

    @property
    def broker_address(self) -> str:
        return self.broker.address

    async def start_broker(self) -> None:
        self.broker = Broker(
            BrokerSettings(
                **{
                    "data": self.data,
                    "listen": f"127.0.0.1:{self._port}",
                    "nameserver": (self.nameserver,),
                    "broker_name": self.broker_name,
                    "segment_bytes": SMALL_SEGMENT_BYTES,
                    **self._settings,
                }
            )
        )
        await self.broker.start()
        self._port = int(self.broker.address.rpartition(":")[2])

    async def stop_broker(self, *, crash: bool = False) -> None:
        if crash:
            await self.broker.abandon()
        else:
            await self.broker.close()
        await asyncio.sleep(0.01)  # its clients notice the change

    async def close(self) -> None:
        await super().close()
        await self.broker.close()


@asynccontextmanager
async def run_broker(tmp_path: Path, **settings: Any) -> AsyncIterator[Cluster]:
    """Run nameserver and broker; *settings* are fields of BrokerSettings, over small local
    defaults.

    Both use the ``tls`` of these settings, and clients connect by their ``client_tls``. The test
    must leave the broker running (``stop_broker`` is followed by ``start_broker``).
    """
    nameserver = NameServer("127.0.0.1", 0, tls=settings.get("tls"))
    await nameserver.start()
    cluster = Cluster(tmp_path / "data", nameserver, settings)
    if "client_tls" in settings:
        cluster.client_tls = ClientContext(settings["client_tls"], "client_tls")
    try:
        await cluster.start_broker()
        try:
            yield cluster
        finally:
            await cluster.close()
    finally:
        await nameserver.close()
