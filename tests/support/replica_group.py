"""A nameserver and a master with slaves inside the test process."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any
from unittest.mock import patch

from broker_core.broker import Broker, BrokerSettings, server
from broker_core.broker.replicas import slave
from broker_core.client.broker_client import BrokerClient
from broker_core.client.connection_pool import ConnectionPool
from broker_core.errors import ConnectionLost
from broker_core.names import Group, QueueName, Topic
from broker_core.nameserver.server import NameServer
from broker_core.remoting.codes import RequestCode
from broker_core.remoting.command import RemotingCommand
from broker_core.remoting.headers import PullFlag, PullMessageHeader
from broker_core.remoting.message import decode_messages
from broker_core.tls import ClientContext
from testkit.eventually import eventually, until

SEGMENT_BYTES = 128 * 1024
_SMALL = {"segment_bytes": SEGMENT_BYTES, "max_message_bytes": 32 * 1024}
TOPIC = Topic("orders")
READERS = Group("readers")


class ReplicaGroup:
    """Brokers by id, 0 for the master; each keeps its folder and port over restarts."""

    def __init__(self, folder: Path, nameserver: NameServer, settings: dict[str, Any]) -> None:
        self.nameserver = nameserver
        self.brokers: dict[int, Broker] = {}
        files = settings.get("client_tls")
        self._tls = None if files is None else ClientContext(files, "client_tls")
        self.pool = ConnectionPool(tls=self._tls)
        self._folder = folder
        self._settings = settings
        self._ports: dict[int, int] = {}
        self._clients: list[BrokerClient] = []

    def log_files(self, number: int) -> dict[str, bytes]:
        """Return the log files of one broker."""
        files = (self.folder(number) / "commitlog").iterdir()
        return {path.name: path.read_bytes() for path in files if path.name.isdigit()}

    def folder(self, number: int) -> Path:
        """Return the data folder of one broker."""
        return self._folder / f"broker-{number}"

    async def start(self, number: int, *, role: str | None = None, **settings: Any) -> Broker:
        """Start one broker. *role*: by default master for 0, slave for others."""
        role = role or ("slave" if number else "master")
        broker = Broker(
            BrokerSettings(
                **{
                    "data": self.folder(number),
                    "listen": f"127.0.0.1:{self._ports.get(number, 0)}",
                    "nameserver": (self.nameserver.address,),
                    "role": role,
                    "broker_id": 0 if role == "master" else number or 9,
                    **_SMALL,
                    **(self._settings if role == "master" else self._tls_settings()),
                    **settings,
                }
            )
        )
        await broker.start()
        self._ports[number] = int(broker.address.rpartition(":")[2])
        self.brokers[number] = broker
        return broker

    def _tls_settings(self) -> dict[str, Any]:
        names = ("tls", "client_tls")
        return {name: self._settings[name] for name in names if name in self._settings}

    async def stop(self, number: int, *, crash: bool = False) -> None:
        """Close one broker, or end it as ``kill -9`` would."""
        broker = self.brokers.pop(number)
        await (broker.abandon() if crash else broker.close())

    async def client(self) -> BrokerClient:
        """Return a client that is closed with the group."""
        client = BrokerClient(
            nameservers=[self.nameserver.address],
            client_id="client-1",
            tls=self._tls,
            request_timeout_s=20,
        )
        await client.start()
        self._clients.append(client)
        return client

    async def bodies(self, number: int, queue_id: int = 0, topic: Topic = TOPIC) -> list[bytes]:
        """Return the bodies that one broker serves of a queue, whatever its role."""
        found: list[bytes] = []
        while True:
            header = PullMessageHeader(
                consumer_group=READERS,
                topic=topic,
                queue_id=queue_id,
                queue_offset=len(found),
                max_msg_nums=4096,
                sys_flag=PullFlag.SUBSCRIPTION,
                commit_offset=0,
                suspend_timeout_millis=0,
                subscription="*",
                sub_version=0,
            )
            answer = await self.ask(number, RequestCode.PULL_MESSAGE, header.to_ext())
            if answer.code != 0:
                return found
            found += [message.body for message in decode_messages(answer.body)]

    async def ask(
        self, number: int, code: int, ext: dict[str, str] | None = None, body: bytes = b""
    ) -> RemotingCommand:
        """Send a request to one broker's address."""
        return await self.pool.request(
            self.brokers[number].address,
            RemotingCommand(code, ext=ext or {}, body=body),
            timeout_s=10,
        )

    async def queues(self, *, count: int = 1) -> list[QueueName]:
        """Create the topic."""
        client = await self.client()
        await client.create_topic(TOPIC, queues=count)
        return await client.queues(TOPIC, fresh=True)

    async def until_served(self, number: int, bodies: list[bytes], queue_id: int = 0) -> None:
        """Wait until one broker serves exactly these bodies."""

        async def served() -> bool:
            try:
                return await self.bodies(number, queue_id) == bodies
            except ConnectionLost:  # it is opening its store again
                return False

        await until(served)

    async def until_slaves(self, count: int) -> None:
        """Wait until the master has *count* slaves."""
        replica = self.brokers[0].components.replica
        await eventually(lambda: replica.available == 1 + count)

    async def close(self) -> None:
        for client in self._clients:
            await client.close()
        await self.pool.close()
        for broker in self.brokers.values():
            await broker.close()


@asynccontextmanager
async def replica_group(folder: Path, **settings: Any) -> AsyncIterator[ReplicaGroup]:
    """Open a group without brokers. *settings* apply to its masters, TLS to all."""
    nameserver = NameServer("127.0.0.1", 0, tls=settings.get("tls"))
    await nameserver.start()
    group = ReplicaGroup(folder, nameserver, settings)
    try:
        with (
            patch.multiple(slave, AGAIN_S=0.05, TABLES_EVERY_NS=50_000_000),
            patch.multiple(server, SAVE_EVERY_S=0.1),
        ):
            yield group
    finally:
        await group.close()
        await nameserver.close()
