"""A broker whose answers a test scripts, registered at a real nameserver."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager

from broker_core.client.connection_pool import ConnectionPool
from broker_core.names import Topic
from broker_core.remoting.codes import RequestCode
from broker_core.remoting.command import RemotingCommand
from broker_core.remoting.nameserver_headers import RegisterBrokerHeader
from broker_core.remoting.route_bodies import BrokerRegistration, Perm, TopicConfig
from broker_core.remoting_channel import Handler
from broker_core.remoting_server import RemotingServer

Answers = dict[int, Handler]


class Pulse:
    """Wakes all current waiters."""

    def __init__(self) -> None:
        self._next = asyncio.Event()

    def beat(self) -> None:
        self._next.set()
        self._next = asyncio.Event()

    async def wait(self) -> None:
        await self._next.wait()


class ScriptedBroker:
    """A broker that answers with ``on[code] = handler``.

    ``asked`` has every request in order, and ``seen`` wakes at each.
    """

    def __init__(self, name: str, nameserver: str) -> None:
        self.name = name
        self.on: Answers = {}
        self.asked: list[RemotingCommand] = []
        self.seen = Pulse()
        self.address = ""
        self._nameserver = nameserver
        self._pool = ConnectionPool()
        self._topics: dict[Topic, TopicConfig] = {}
        self.server = self._new_server()

    async def start(self, port: int = 0) -> None:
        self.address = await self.server.listen("127.0.0.1", port)

    async def restart(self, port: int = 0) -> None:
        """End all connections, continue at another port, and register there."""
        await self.server.close(grace_s=0)
        self.server = self._new_server()
        await self.start(port)
        await self.register()

    async def add_topic(self, topic: str, *, queues: int, perm: int = Perm.READ_WRITE) -> None:
        name = Topic(topic)
        self._topics[name] = TopicConfig(
            topic=name, read_queues=queues, write_queues=queues, perm=perm
        )
        await self.register()

    async def register(self) -> None:
        header = RegisterBrokerHeader(
            broker_name=self.name,
            broker_addr=self.address,
            cluster_name="test",
            broker_id=0,
            ha_server_addr="",
        )
        body = BrokerRegistration(topics=self._topics).to_json()
        command = RemotingCommand(RequestCode.REGISTER_BROKER, ext=header.to_ext(), body=body)
        answer = await self._pool.request(self._nameserver, command, timeout_s=20)
        assert answer.code == 0, answer.remark

    async def close(self) -> None:
        await self._pool.close()
        await self.server.close(grace_s=0)

    def answer(self, code: int, make: Callable[[RemotingCommand], RemotingCommand]) -> None:
        """Answer *code* with what *make* returns for a request."""
        self.on[code] = lambda request, _: make(request)

    def codes(self) -> list[int]:
        return [request.code for request in self.asked]

    def _new_server(self) -> RemotingServer:
        return RemotingServer(_Recorded(self))


class _Recorded(dict[int, Handler]):
    """Looks up handlers in the script, and records the requests."""

    def __init__(self, broker: ScriptedBroker) -> None:
        super().__init__()
        self._broker = broker

    def get(self, code: int, default: object = None) -> Handler | None:  # type: ignore[override]
        handler = self._broker.on.get(code)
        if handler is None:
            return None

        def record(request: RemotingCommand, channel: object) -> object:
            self._broker.asked.append(request)
            self._broker.seen.beat()
            return handler(request, channel)  # type: ignore[arg-type]

        return record  # type: ignore[return-value]


@asynccontextmanager
async def scripted_broker(nameserver: str, name: str = "broker-a") -> AsyncIterator[ScriptedBroker]:
    broker = ScriptedBroker(name, nameserver)
    await broker.start()
    yield broker
    await broker.close()
