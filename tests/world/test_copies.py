"""Copies of messages: whatever a message looks like, a redrive gives back what was sent."""

from __future__ import annotations

import asyncio
import random
import struct
from collections.abc import Coroutine, Mapping
from dataclasses import dataclass, field
from typing import Any

import pytest

from broker_core.client import BrokerClient
from broker_core.names import QueueName, Topic
from broker_core.remoting.codes import RequestCode
from broker_core.remoting.compression import SYS_COMPRESSED, deflate
from broker_core.remoting.headers import SendMessageHeader
from broker_core.remoting.message import StoredMessage
from testkit.simulation.world import ClientNode, ProxyNode, World, simulate
from thin_client import AsyncConsumer, Message, Reject

GROUP, TOPIC = "billing", Topic("orders")
QUEUE = QueueName(TOPIC, "broker-a", 0)
_KEYS = f"/api/groups/{GROUP}/topics/{TOPIC}/keys"
_LETTERS = f"/api/groups/{GROUP}/dead-letters"


def noise(size: int) -> bytes:
    """Text of *size* bytes that nobody can compress much."""
    chance = random.Random(size)
    return bytes(
        chance.choice(b"abcdefghijklmnopqrstuvwxyzABCDEFGHIJ0123456789-") for _ in range(size)
    )


@dataclass(frozen=True)
class Sent:
    """A message as a client of RocketMQ sends it: encoded properties, and the body as it goes."""

    properties: bytes
    body: bytes = b"body"
    sys_flag: int = 0
    plain: bytes = field(default=b"", repr=False)
    """What the body is when it is inflated."""

    @property
    def shown(self) -> bytes:
        """The body that handlers see."""
        return self.plain or self.body


def _properties(key: bytes, *more: tuple[bytes, bytes]) -> bytes:
    pairs = [(b"KEYS", key), (b"UNIQ_KEY", b"ID-%d" % len(more)), *more]
    return b"".join(b"%s\x01%s\x02" % pair for pair in pairs if pair[1])


_COMPRESSED = b"compressed " * 2000
MESSAGES = {
    "a separator in the key": Sent(_properties(b"k\x01x")),
    "a separator in the tag": Sent(_properties(b"k1", (b"TAGS", b"a\x01b"))),
    "a separator in a value": Sent(_properties(b"k2", (b"colour", b"red\x01blue"))),
    "a key that is no text": Sent(_properties(b"k3\xff\xfe")),
    "a value that is no text": Sent(_properties(b"k4", (b"colour", b"\xff\x80"))),
    "no key": Sent(_properties(b"", (b"colour", b"red"))),
    "a name twice": Sent(_properties(b"k5", (b"colour", b"red"), (b"colour", b"blue"))),
    "a property as long as any": Sent(_properties(b"k6", (b"long", noise(32_600)))),
    "a long property of few letters": Sent(_properties(b"k7", (b"long", b"x" * 32_600))),
    "a key as long as any": Sent(_properties(b"k8" + noise(32_600))),
    "properties that leave some room": Sent(_properties(b"k9", (b"long", noise(31_000)))),
    "names of the gateway": Sent(
        _properties(
            b"k10",
            (b"ORDERLANE_OFFSET", b"99"),
            (b"ORDERLANE_EPOCH", b"7"),
            (b"ORDERLANE_SENT", b"p!"),
            (b"ORDERLANE_CHAIN", b"!"),
            (b"DLQ_ORIGIN_TOPIC", b"elsewhere"),
            (b"DLQ_ORIGIN_MESSAGE_ID", b"another"),
        )
    ),
    "names of a redriven message": Sent(
        _properties(
            b"k11",
            (b"ORDERLANE_REDRIVES", b"3"),
            (b"ORDERLANE_REDRIVEN_GROUP", b"other"),
            (b"ORDERLANE_FIRST_ID", b"ID"),
        )
    ),
    "names of the broker": Sent(
        _properties(
            b"k12",
            (b"WAIT", b"false"),
            (b"RETRY_TOPIC", b"elsewhere"),
            (b"REAL_TOPIC", b"elsewhere"),
            (b"PGROUP", b"p"),
            (b"__SHARDINGKEY", b"k12"),
        )
    ),
    "a compressed body": Sent(
        _properties(b"k13", (b"colour", b"red")),
        deflate(_COMPRESSED, SYS_COMPRESSED),
        SYS_COMPRESSED,
        _COMPRESSED,
    ),
    "a compressed body with long properties": Sent(
        _properties(b"k14", (b"long", noise(32_600))),
        deflate(_COMPRESSED, SYS_COMPRESSED),
        SYS_COMPRESSED,
        _COMPRESSED,
    ),
    "a body as long as any with long properties": Sent(
        _properties(b"k15", (b"long", noise(32_600))), noise(65_000)
    ),
}

Seen = tuple[bytes, str | None, bytes | None, str | None, dict[str, str]]


class Desk:
    """Handles what it gets, once it is mended; knows what it saw of each message by its place."""

    def __init__(self) -> None:
        self.broken = True
        self.rejected: list[Seen] = []
        self.done: list[Seen] = []

    async def __call__(self, message: Message) -> None:
        seen = (message.body, message.key, message.order_key, message.tag, message.properties)
        (self.rejected if self.broken else self.done).append(seen)
        if self.broken:
            raise Reject


class Site:
    """A broker, a proxy, a producer of RocketMQ's kind and a consumer in *world*."""

    def __init__(self, world: World) -> None:
        self.world = world
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
        world.write_settings([{"name": GROUP, "topics": [self.rules]}])
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
            lambda: AsyncConsumer(self.proxy.thrift, group=GROUP, max_run=1)
        )
        consumer.work(made.run(self.desk, handle_signals=False))

    async def send(self, sent: Sent) -> None:
        """As a batch of one, whose body takes any bytes."""
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
        """The answer of the proxy; it has to be one."""
        if body is not None:
            body = {"by": "me", "reason": "so", **body}
        status, answer = await self.world.http(self.proxy, path, body)
        assert status == 200, answer
        return answer

    async def parked(self) -> int:
        """Number of parked copies."""
        return sum(row["copies"] for row in await self.ask(f"{_KEYS}/parked"))

    async def redrive_parked(self) -> None:
        """Redrive every parked key."""
        for row in await self.ask(f"{_KEYS}/parked"):
            await self.ask(f"{_KEYS}/redrive", {"key": row["key"], "queue": row["queue"]})

    async def redrive_letters(self) -> Any:
        """Redrive the dead letters to their end; what became of it."""
        await self.ask(f"{_LETTERS}/redrive", {})
        for _ in range(300):
            shown = (await self.ask(f"{_LETTERS}?limit=1"))["redrive"]
            if shown["state"] != "running":
                return shown
            await asyncio.sleep(0.2)
        raise AssertionError("the redrive does not end")

    async def stored(self, topic: str) -> list[StoredMessage]:
        """What stands in the first queue of *topic*."""
        queue = QUEUE._replace(topic=Topic(topic))
        pull = self.client.pull(queue, group=GROUP, offset=0, max_messages=32, suspend_ms=0)  # type: ignore[arg-type]
        return list((await self.sender.do(pull)).messages)


async def until(true: Any, *, within_s: float = 60, what: str = "it") -> None:
    """Return once ``await true()``, or fail."""
    for _ in range(int(within_s * 5)):
        found = true()
        if await found if isinstance(found, Coroutine) else found:
            return
        await asyncio.sleep(0.2)
    raise AssertionError(f"{what} did not happen within {within_s} s")


def _seen(seen: list[Seen]) -> list[Seen]:
    return sorted(seen, key=repr)


async def _send_all(site: Site, messages: Mapping[str, Sent]) -> None:
    for sent in messages.values():
        await site.send(sent)
    desk = site.desk
    await until(lambda: len(desk.rejected) >= len(messages), what="every message to be rejected")


def _check(site: Site, messages: Mapping[str, Sent]) -> None:
    """Handlers saw of each message the same before its copy and after, and what was sent."""
    assert _seen(site.desk.done) == _seen(site.desk.rejected[: len(messages)])
    bodies = sorted(each[0] for each in site.desk.done)
    assert bodies == sorted(sent.shown for sent in messages.values())


async def _parked(world: World, names: list[str]) -> None:
    messages = {name: MESSAGES[name] for name in names}
    site = Site(world)
    await site.start("park", {"max_message_bytes": 65_536 + 22 + 32_767})
    await _send_all(site, messages)

    async def all_parked() -> bool:
        return await site.parked() == len(messages)

    await until(all_parked, what="every message to be parked")
    site.desk.broken = False
    await site.redrive_parked()
    await until(lambda: len(site.desk.done) >= len(messages), what="every message to be handled")
    await asyncio.sleep(3)
    assert await site.ask(f"{_KEYS}/parked") == []
    _check(site, messages)


async def _dead_lettered(world: World, names: list[str]) -> None:
    messages = {name: MESSAGES[name] for name in names}
    site = Site(world)
    await site.start("dead_letter", {"max_message_bytes": 65_536 + 22 + 32_767})
    await _send_all(site, messages)

    async def all_there() -> bool:
        status, answer = await world.http(site.proxy, f"{_LETTERS}?limit=50")
        return status == 200 and answer["waiting"] == len(messages)

    await until(all_there, what="every message to be dead-lettered")
    # Once more: what is redriven and fails again is as it was, too.
    assert (await site.redrive_letters())["state"] == "done"
    await until(lambda: len(site.desk.rejected) >= 2 * len(messages), what="all to come again")
    await until(all_there, what="every message to be dead-lettered again")
    site.desk.broken = False
    shown = await site.redrive_letters()
    assert (shown["state"], shown["sent"]) == ("done", len(messages)), shown
    await until(lambda: len(site.desk.done) >= len(messages), what="every message to be handled")
    _check(site, messages)
    assert _seen(site.desk.rejected[: len(messages)]) == _seen(site.desk.rejected[len(messages) :])


@pytest.mark.parametrize("name", MESSAGES)
def test_what_is_parked_and_redriven_is_what_was_sent(name: str) -> None:
    simulate(lambda world: _parked(world, [name]), seed=1)


@pytest.mark.parametrize("name", MESSAGES)
def test_what_is_dead_lettered_and_redriven_twice_is_what_was_sent(name: str) -> None:
    simulate(lambda world: _dead_lettered(world, [name]), seed=1)


def test_copies_of_all_kinds_stand_in_one_queue() -> None:
    simulate(lambda world: _parked(world, list(MESSAGES)), seed=2)
