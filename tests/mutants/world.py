"""A gateway in virtual time: real proxies over a broker in memory, with clients that misbehave.

The proxies are whole but for their sockets: clients call the service itself, and the broker's
client is a model. All of them write into one history, in the order in which it happened.
"""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine, Iterable, Mapping
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any
from unittest.mock import patch

from thrift.protocol.TCompactProtocol import TCompactProtocolAcceleratedFactory
from thrift.TSerialization import deserialize, serialize

from broker_core import clock
from broker_core.names import Group, QueueName
from broker_core.remoting.key_hash import java_hash
from broker_core.tasks import cancel_and_wait, spawn
from proxy.app import Proxy
from proxy.core.order_key import key_text
from proxy.errors import OrderlaneError
from proxy.settings import Settings
from proxy.upstream.key_desk import KeyDesk, KeyWish
from proxy.upstream.offset_desk import OffsetDesk, ResetWish
from proxy.upstream.owner_book import OwnerBook
from proxy.upstream.parking import Parking
from tests.mutants.brokers import Broker, Client, Member
from thrift_idl import consumer_service

GROUP = "billing"
_LINGER_MS = 10_000
_COMPACT = TCompactProtocolAcceleratedFactory()

Events = list[dict[str, Any]]


class Pen:
    """The history of one process; times rise with every event."""

    def __init__(self, events: Events, node: str) -> None:
        self.enabled = True
        self._events, self._node = events, node

    def write(self, event: str, **fields: Any) -> None:
        """One event."""
        self.write_many(event, (fields,))

    def write_many(self, event: str, each: Iterable[Mapping[str, Any]]) -> None:
        """Several of one kind."""
        if self.enabled:
            last_ns = self._events[-1]["t_ns"] if self._events else 0
            head = {"e": event, "t_ns": max(clock.now_ns(), last_ns + 1), "node": self._node}
            self._events += [{**head, **fields} for fields in each]

    def close(self) -> None:
        """It ended by its own will."""
        self.write("stop")


@dataclass
class Reply:
    """Where an answer goes."""

    connection: Any
    answer: asyncio.Future[Any]
    on_lost: Any = None

    def __call__(self, result: Any) -> None:
        if not self.answer.done():
            sent = serialize(result, _COMPACT)  # the proxy gives text to the codec as bytes
            self.answer.set_result(deserialize(type(result)(), sent, _COMPACT))


class RunningProxy:
    """One process."""

    def __init__(self, world: World, name: str, settings: Settings) -> None:
        self.name = name
        self.history = Pen(world.events, name)
        self.dead = False

        def client(**given: Any) -> Client:
            return Client(world.broker, name, given["on_consumers_changed"])

        with patch("proxy.app.BrokerClient", client), patch("proxy.app.Membership", Member):
            self._proxy = Proxy(settings, history=self.history)
        self.client: Any = self._proxy._client
        self._connections = 0

    async def start(self) -> None:
        """Serve; it listens nowhere."""

        async def listen(*_where: Any) -> str:
            return "nowhere:0"

        with patch.object(self._proxy._listening, "_listen", listen):
            await self._proxy.start()

    def connect(self) -> Any:
        """A client's connection."""
        self._connections += 1
        self._proxy._thrift.open[self._connections] = None  # type: ignore[assignment]
        return SimpleNamespace(
            connection_id=self._connections,
            home=self.name,
            address="client",
            pulls=lambda _group, _client: None,
        )

    async def call(self, method: str, request: Any, connection: Any) -> Any:
        """One call of a client; None if the proxy fails or dies meanwhile."""
        if self.dead:
            return None
        reply = Reply(connection, asyncio.get_running_loop().create_future())
        arguments = getattr(consumer_service, f"{method}_args")(request=request)
        try:
            self._proxy._consumers.entries()[method].method(arguments, reply)  # type: ignore[arg-type]
            async with asyncio.timeout(2 * _LINGER_MS / 1000):
                result = await reply.answer
        except Exception:  # a proxy with a bug in it
            await asyncio.sleep(0.1)
            return None
        return None if self.dead else result.success

    def apply(self, settings: Settings) -> None:
        """Other settings hold, of the groups."""
        for lane in self._proxy.lanes:
            lane.apply(settings.groups[0])

    def cut(self, *, off: bool) -> None:
        """The link to the broker is cut, or whole again."""
        self.client.cut_off = off

    def parked(self) -> int:
        """How many copies of parked messages wait here."""
        return sum(each.view(key)["copies"] for each in self._parkings() for key in [*each.keys()])

    async def redrive(self) -> None:
        """An operator wants all parked keys to go on."""
        parked = [key for each in self._parkings() for key in list(each.keys())]
        for key in sorted({str(key_text(key)) for key in parked}):
            for _ in range(50):
                if await self.act("redrive", key):
                    break
                await asyncio.sleep(0.2)

    async def act(self, verb: str, key: str, **more: Any) -> bool:
        """An operator does something to a key; False if that cannot be now."""
        desk = KeyDesk(self._proxy._context, self._proxy._ownerships)
        try:
            if verb in ("pause", "resume"):
                do = desk.pause if verb == "pause" else desk.resume
                await do(GROUP, "orders", key, by="operator", reason="so")
            else:
                wish = KeyWish(key, "operator", "so", **more)
                await desk.act(GROUP, "orders", verb, wish)
        except OrderlaneError:
            return False
        return True

    async def base(self, queue: QueueName) -> int:
        """Where the group stands in *queue*."""
        rows = (await self._offsets().show(GROUP, queue.topic))["queues"]
        return next(int(row["base"]) for row in rows if row["queue"] == queue.qid)

    async def move(self, queue: QueueName, *, to: int, expect: int) -> bool:
        """An operator has the group go on at *to* if it stands at *expect*; False if that cannot
        be now.
        """
        wish = ResetWish("operator", "so", to_offset=to, expect=expect)
        try:
            await self._offsets().reset(GROUP, queue.topic, queue.qid, wish)
        except OrderlaneError:
            return False
        return True

    def _offsets(self) -> OffsetDesk:
        proxy = self._proxy
        book = OwnerBook(self.client, proxy._context.log)
        return OffsetDesk(proxy._context, proxy.lanes, proxy._ownerships, book)

    def _parkings(self) -> list[Parking]:
        return list(self._proxy._parkings())

    def kill(self) -> None:
        """``kill -9``."""
        self.dead = self.client.dead = True
        self.history.enabled = False
        self.client.broker.members.pop(self.name, None)
        self.client.tell(Group(GROUP))

    async def close(self) -> None:
        """``SIGTERM``."""
        self._proxy._thrift.open.clear()
        await self._proxy.close()
        self.dead = True


@dataclass
class World:
    """What a scenario drives. *rules* are settings of the group's topic."""

    rules: dict[str, Any] = field(default_factory=dict)
    events: Events = field(default_factory=list)
    proxies: list[RunningProxy] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.broker = Broker()
        self.sender = Pen(self.events, "sender")
        self.nemesis = Pen(self.events, "nemesis")
        self._settings = self._with()
        self._clients: list[asyncio.Task[None]] = []

    def _with(self, **rules: Any) -> Settings:
        topic = {"name": "orders", "order_key": "KEY", **self.rules, **rules}
        return Settings.model_validate({"groups": [{"name": GROUP, "topics": [topic]}]})

    def change(self, **rules: Any) -> None:
        """Other settings of the topic, for all proxies that live and for those to come."""
        self._settings = self._with(**rules)
        for proxy in self.proxies:
            if not proxy.dead:
                proxy.apply(self._settings)

    async def start_proxy(self, name: str) -> RunningProxy:
        """One more."""
        proxy = RunningProxy(self, name, self._settings)
        self.proxies.append(proxy)
        await proxy.start()
        return proxy

    def queue_of(self, key: str) -> QueueName:
        """Where messages of *key* go."""
        return self.broker.queues[abs(java_hash(key)) % len(self.broker.queues)]

    def send(self, *keys: str) -> None:
        """One message of each key."""
        for key in keys:
            queue = self.queue_of(key)
            stored = self.broker.append(queue, key)
            about = {"msg": stored.message_id, "topic": queue.topic, "key": key}
            self.sender.write("send", **about)
            place = {"queue": queue.qid, "offset": stored.queue_offset}
            self.sender.write("send_ok", **about, **place)

    def start_client(self, run: Coroutine[Any, Any, None]) -> None:
        """A client goes to work until its proxy ends."""
        self._clients.append(spawn(run, name="client"))

    async def finished(self, *, within_s: float = 120) -> None:
        """Wait until all is finished and committed, or the time is over; then stop everything."""
        loop = asyncio.get_running_loop()
        end = loop.time() + within_s
        while loop.time() < end and not self._committed():  # noqa: ASYNC110  # in no time
            await asyncio.sleep(1)
        for proxy in self.proxies:
            if not proxy.dead:
                await proxy.close()
        await cancel_and_wait(*self._clients)

    def _committed(self) -> bool:
        committed = self.broker.committed
        return all(
            committed.get((Group(GROUP), queue), 0) == len(self.broker.logs[queue])
            for queue in self.broker.queues
        )
