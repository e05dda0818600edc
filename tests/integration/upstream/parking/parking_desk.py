"""A handler that fails keys until they are parked, and the operator's view of them."""

from __future__ import annotations

import asyncio
from collections import defaultdict
from typing import Any

import orjson

from proxy.app import Proxy
from proxy.cli.connect import ask_proxy
from proxy.errors import OrderlaneError
from proxy.listening import Addresses
from proxy.upstream.parking.parked_keys import Parking
from testkit.gateway import HANDED_OVER, Gateway
from thin_client import Message

#: The default of ``on_exhausted``.
PARK = {"max_deliveries": 2, "retry_intervals_ms": [10]}


class Desk:
    """A handler that fails keys while they are ``broken``, and records finished messages."""

    def __init__(self, *broken: str) -> None:
        self.broken = set(broken)
        self.failed: dict[str, int] = defaultdict(int)
        self.done: dict[str, list[int]] = defaultdict(list)  # numbers of messages

    async def __call__(self, message: Message) -> None:
        key, number = message.body.decode().split(":")
        if key in self.broken:
            self.failed[key] += 1
            raise ValueError("broken")
        self.done[key].append(int(number))


async def send(gateway: Gateway, *keys: str) -> None:
    await gateway.send(keys, body="{key}:{n}")


def parking(proxy: Proxy, gateway: Gateway) -> Parking:
    found = proxy.parking(gateway.group, gateway.queue(0))
    assert found is not None
    return found


def copied(proxy: Proxy, gateway: Gateway) -> int:
    """Return the number of messages copied by *proxy*."""
    lane = proxy.lanes.find(gateway.group)
    counts = None if lane is None else lane.counts.get(gateway.topic)
    return 0 if counts is None else counts.parked


def view(proxy: Proxy, gateway: Gateway) -> dict[str, Any]:
    """Return the operator's view of key ``a``."""
    return parking(proxy, gateway).view(b"a")


async def key(at: Addresses, gateway: Gateway, what: str, **asked: Any) -> Any:
    """Return the proxy's answer to an operator."""
    path = f"/api/groups/{gateway.group}/topics/{gateway.topic}/keys/{what}"
    body = orjson.dumps({"reason": "a test", **asked}) if asked else None
    async with asyncio.timeout(60):
        while True:
            try:
                answer = await asyncio.to_thread(ask_proxy, at.http, path, body=body, timeout_s=30)
                return orjson.loads(answer)
            except OrderlaneError as error:
                if HANDED_OVER not in str(error):  # a busy machine may move a queue meanwhile
                    raise
            await asyncio.sleep(0.2)
