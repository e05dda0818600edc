"""A world for copies: a broker, a proxy, a RocketMQ producer, and one consumer."""

from __future__ import annotations

import asyncio
import random
import struct
from collections.abc import Awaitable, Callable, Coroutine, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from broker_core.client import BrokerClient
from broker_core.names import Group, QueueName, Topic
from broker_core.remoting.codes import RequestCode
from broker_core.remoting.headers import SendMessageHeader
from broker_core.remoting.message import StoredMessage
from testkit.simulation.world import ClientNode, ProxyNode, World
from thin_client import AsyncConsumer, Message, Reject

GROUP, TOPIC = "billing", Topic("orders")
QUEUE = QueueName(TOPIC, "broker-a", 0)


def noise(size: int) -> bytes:
    """Return incompressible text of *size* bytes."""
    letters = b"abcdefghijklmnopqrstuvwxyzABCDEFGHIJ0123456789-"
    return bytes(random.Random(size).choices(letters, k=size))


@dataclass(frozen=True)
class Sent:
    """A message as a RocketMQ client sends it: encoded properties, and the body on the wire."""

    properties: bytes
    body: bytes = b"body"
    sys_flag: int = 0
    plain: bytes = field(default=b"", repr=False)
    """The inflated body."""

    @property
    def shown(self) -> bytes:
        """The body that handlers see."""
        return self.plain or self.body


Seen = tuple[bytes, str | None, bytes | None, str | None, dict[str, str]]


class Desk:
    """A handler that fails until it is fixed; it records each message by its place."""

    def __init__(self) -> None:
        self.broken = True
        self.stuck = False
        self.begun = 0
        self.rejected: list[Seen] = []
        self.done: list[Seen] = []

    def mend(self) -> None:
        """Handle messages successfully from now on."""
        self.broken = False

    def hold(self) -> None:
        """Hold messages until ``go_on``."""
        self.stuck = True

    def go_on(self) -> None:
        self.stuck = False

    async def __call__(self, message: Message) -> None:
        seen = (message.body, message.key, message.order_key, message.tag, message.properties)
        self.begun += 1
        while self.stuck:  # noqa: ASYNC110  # virtual time costs nothing
            await asyncio.sleep(0.5)
        (self.rejected if self.broken else self.done).append(seen)
        if self.broken:
            raise Reject


class Site:
    """A broker, a proxy, a RocketMQ producer and a consumer in *world*."""

    def __init__(self, world: World, group: str = GROUP) -> None:
        self.world = world
        self.group = group
        self.keys = f"/api/groups/{group}/topics/{TOPIC}/keys"
        self.letters = f"/api/groups/{group}/dead-letters"
        self.desk = Desk()

    async def start(self, policy: str, broker: Mapping[str, Any] | None = None) -> None:
        """Start all of it."""
        world = self.world
        self.rules = {
            "name": str(TOPIC),
            "order_key": "KEY",
            "on_exhausted": policy,
            "missing_key": "by_queue",
        }
        world.write_settings([{"name": self.group, "topics": [self.rules]}])
        await world.start({"broker-a": dict(broker or {})})
        await world.make_topic(TOPIC, 1)
        self.proxy = world.add(ProxyNode, "proxy-0")
        await self.proxy.start()
        self.sender = world.add(ClientNode, "sender")
        process = self.sender.new_process()
        self.client = process.run(
            lambda: BrokerClient(
                nameservers=[world.nameserver.address], client_id="sender@1", request_timeout_s=5
            )
        )
        await self.sender.do(self.client.start())
        consumer = world.add(ClientNode, "consumer")
        made = consumer.new_process().run(
            lambda: AsyncConsumer(self.proxy.thrift, group=self.group, max_run=1)
        )
        consumer.work(made.run(self.desk, handle_signals=False))

    async def change(self, policy: str) -> None:
        """Change the policy for failing messages."""
        self.rules["on_exhausted"] = policy
        self.world.write_settings([{"name": self.group, "topics": [self.rules]}])
        await asyncio.sleep(5)

    async def send(self, sent: Sent) -> None:
        """Send as a batch of one, whose body accepts any bytes."""
        entry = struct.pack(">iIiii", 0, 0, 0, 0, len(sent.body))
        rest = sent.body + struct.pack(">h", len(sent.properties)) + sent.properties
        entry = struct.pack(">i", len(entry) + len(rest)) + entry[4:]
        header = SendMessageHeader(
            producer_group="p",
            topic=TOPIC,
            queue_id=0,
            sys_flag=sent.sys_flag,
            born_timestamp=1,
            batch=True,
        )
        ask = self.client.requests.ask(
            QUEUE.broker, RequestCode.SEND_BATCH_MESSAGE, header.to_v2(), body=entry + rest
        )
        await self.sender.do(ask)

    async def ask(self, path: str, body: dict[str, Any] | None = None) -> Any:
        """Return the proxy's answer, which must not be an error; ask again if it is temporary."""
        if body is not None:
            body = {"by": "me", "reason": "so", **body}
        for _ in range(50):
            status, answer = await self.world.http(self.proxy, path, body)
            if status != 503:
                break
            await asyncio.sleep(0.2)
        assert status == 200, answer
        return answer

    async def parked(self) -> int | None:
        """Return the number of parked copies; None if it is unknown."""
        copies = [row["copies"] for row in await self.ask(f"{self.keys}/parked")]
        return None if None in copies else sum(copies)

    async def redrive_parked(self) -> None:
        """Redrive every parked key."""
        for row in await self.ask(f"{self.keys}/parked"):
            wish = {"key": row["key"], "queue": row["queue"], "by": "me", "reason": "so"}
            for _ in range(50):
                status, _ = await self.world.http(self.proxy, f"{self.keys}/redrive", wish)
                if status == 200:
                    break
                await asyncio.sleep(0.2)  # its records may be in flight

    async def has_letters(self, count: int = 1) -> bool:
        """Return whether *count* dead letters wait."""
        status, answer = await self.world.http(self.proxy, f"{self.letters}?limit=50")
        return status == 200 and bool(answer["waiting"] == count)

    def parks(self, count: int) -> Callable[[], Awaitable[bool]]:
        """Return a condition: *count* copies are parked."""

        async def look() -> bool:
            return await self.parked() == count

        return look

    async def redrive_letters(self, *, skip: Sequence[str] = ()) -> Any:
        """Redrive the dead letters to the end; return the result."""
        await self.ask(f"{self.letters}/redrive", {"skip": list(skip)})
        for _ in range(300):
            shown = (await self.ask(f"{self.letters}?limit=1"))["redrive"]
            if shown["state"] != "running":
                return shown
            await asyncio.sleep(0.2)
        raise AssertionError("the redrive does not end")

    async def stored(self, topic: str) -> list[StoredMessage]:
        """Return the messages in the first queue of *topic*."""
        queue = QUEUE._replace(topic=Topic(topic))
        pull = self.client.pull(queue, group=Group(GROUP), offset=0, max_messages=32, suspend_ms=0)
        return list((await self.sender.do(pull)).messages)


async def until(true: Any, *, within_s: float = 60, what: str = "it") -> None:
    """Return once ``await true()``, or fail."""
    for _ in range(int(within_s * 5)):
        found = true()
        if await found if isinstance(found, Coroutine) else found:
            return
        await asyncio.sleep(0.2)
    raise AssertionError(f"{what} did not happen within {within_s} s")
