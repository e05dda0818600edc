"""A group in broadcast mode and its clients."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from broker_core.tasks import spawn
from proxy.app import Proxy
from testkit.gateway import Gateway
from thin_client.aio import AsyncConsumer
from thin_client.message import Message

#: Messages of each client, by key.
Got = dict[str, list[str]]


@asynccontextmanager
async def client(gateway: Gateway, address: str, name: str, got: Got) -> AsyncIterator[None]:
    """A thin client that records handled messages."""

    async def handle(message: Message) -> None:
        got[str(message.key)].append(message.message_id)

    consumer = AsyncConsumer(address, group=gateway.group, client_id=name)
    running = spawn(consumer.run(handle, handle_signals=False), name=f"consumer {name}")
    try:
        yield
    finally:
        consumer.stop()
        await running


def count(got: Got) -> int:
    return sum(map(len, got.values()))


def left(proxy: Proxy) -> bool:
    """Return True if no client is served any more; ownership would check only every
    five seconds.
    """
    for lane in proxy.lanes:
        proxy.on_wanted(lane)
    return not proxy.lanes.members()


def broadcast(gateway: Gateway, **settings: object) -> None:
    gateway.settings["groups"][0]["mode"] = "broadcast"
    gateway.settings.update(settings)
