"""Three brokers that elect their master, and a nameserver, in one process or world."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from broker_core.broker import Broker, BrokerSettings
from broker_core.client.broker_client import BrokerClient
from broker_core.client.connection_pool import ConnectionPool
from broker_core.names import Topic
from broker_core.nameserver.server import NameServer
from broker_core.remoting.bodies import table_from_json
from broker_core.remoting.codes import RequestCode
from broker_core.remoting.command import RemotingCommand
from broker_core.remoting.route_bodies import ClusterTable
from testkit.eventually import eventually, until

SEGMENT_BYTES = 128 * 1024
TOPIC = Topic("orders")


class ElectedGroup:
    """Brokers by id, from 1 on."""

    def __init__(self, folder: Path, nameserver: NameServer, settings: dict[str, Any]) -> None:
        self.nameserver = nameserver
        self.brokers: dict[int, Broker] = {}
        self.pool = ConnectionPool()
        self._folder = folder
        self._settings = settings
        self._clients: list[BrokerClient] = []

    def settings(self, number: int) -> BrokerSettings:
        """Return the settings of one broker."""
        addresses = {n: f"127.0.0.1:{21000 + n}" for n in (1, 2, 3)}
        return BrokerSettings(
            **{
                "data": self._folder / f"broker-{number}",
                "listen": addresses[number],
                "nameserver": (self.nameserver.address,),
                "role": "elected",
                "broker_id": number,
                "voters": tuple(f"{n}@{address}" for n, address in addresses.items()),
                "segment_bytes": SEGMENT_BYTES,
                "max_message_bytes": 32 * 1024,
                **self._settings,
            }
        )

    async def start(self, *numbers: int) -> None:
        """Start brokers."""
        for number in numbers:
            broker = Broker(self.settings(number))
            await broker.start()
            self.brokers[number] = broker

    async def stop(self, number: int, *, crash: bool = False) -> None:
        """Close one broker, or end it as ``kill -9`` would."""
        broker = self.brokers.pop(number)
        await (broker.abandon() if crash else broker.close())

    @property
    def serving(self) -> list[int]:
        """Ids of the brokers that serve as master now."""
        return [n for n, each in self.brokers.items() if each.components.replica.serves]

    async def until_served(self) -> int:
        """Wait until one broker serves as master and clients find it; return its id."""
        await eventually(lambda: len(self.serving) == 1, within_s=60)
        (number,) = self.serving
        address = self.brokers[number].address

        async def registered() -> bool:
            return await self._registered() == address

        await until(registered, within_s=10)
        return number

    async def _registered(self) -> str | None:
        """Return the address of the master according to the nameserver."""
        answer = await self.pool.request(
            self.nameserver.address,
            RemotingCommand(RequestCode.GET_BROKER_CLUSTER_INFO),
            timeout_s=10,
        )
        broker = ClusterTable.from_json(answer.body).brokers.get("broker-a")
        return None if broker is None else broker.addresses.get(0)

    async def client(self) -> BrokerClient:
        """Return a client that is closed with the group."""
        client = BrokerClient(
            nameservers=[self.nameserver.address], client_id="client-1", request_timeout_s=5
        )
        await client.start()
        self._clients.append(client)
        return client

    async def ask(
        self, number: int, code: int, ext: dict[str, str] | None = None, body: bytes = b""
    ) -> RemotingCommand:
        """Send a request to one broker's address."""
        return await self.pool.request(
            self.brokers[number].address,
            RemotingCommand(code, ext=ext or {}, body=body),
            timeout_s=10,
        )

    async def figures(self, number: int) -> dict[str, str]:
        """Return the runtime figures of one broker."""
        answer = await self.ask(number, RequestCode.GET_BROKER_RUNTIME_INFO)
        return table_from_json(answer.body)

    async def close(self) -> None:
        for client in self._clients:
            await client.close()
        await self.pool.close()
        for broker in self.brokers.values():
            await broker.close()


@asynccontextmanager
async def elected_group(folder: Path, **settings: Any) -> AsyncIterator[ElectedGroup]:
    """Open a group without brokers."""
    nameserver = NameServer("127.0.0.1", 0)
    await nameserver.start()
    group = ElectedGroup(folder, nameserver, settings)
    try:
        yield group
    finally:
        await group.close()
        await nameserver.close()
