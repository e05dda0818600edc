"""A gateway with content for every page of the console, and access to the pages."""

from __future__ import annotations

import asyncio
import hashlib
from collections import defaultdict
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from broker_core.names import Topic
from broker_core.remoting.message import OutgoingMessage
from broker_core.tasks import spawn
from proxy.app import Proxy
from testkit.eventually import eventually
from testkit.gateway import Gateway, run_gateway
from thin_client import AsyncConsumer, Message

LETTERS = Topic("letters")
TOKEN = "an-operators-token"
#: Keys by the state of their messages.
PARKED, FAILING, HELD, SPARE = "parked-1", "failing-1", "held-1", "held-2"


@dataclass(slots=True)
class Site:
    """A prepared gateway; ``url`` is the console's."""

    gateway: Gateway
    proxy: Proxy
    url: str
    over: asyncio.Event
    """Set: held messages are released."""
    repaired: asyncio.Event
    """Set: failing messages of the group shipping succeed."""
    shipped: defaultdict[str | None, list[int]]
    """Offsets handled by shipping, by key."""


@asynccontextmanager
async def prepared(folder: Path, **overrides: Any) -> AsyncIterator[Site]:
    """Run a gateway with parked, failing and held keys, dead letters, and a client."""
    rules = {"max_deliveries": 2, "retry_intervals_ms": [50]}
    topic = {**rules, "on_exhausted": "park", "order_key": "$.id"}
    async with (
        run_gateway(folder, queues=4, topic=topic, ownership={"drain_s": 0.5}) as gateway,
        AsyncExitStack() as stack,
    ):
        groups = gateway.settings["groups"]
        slow = {**rules, "max_deliveries": 1000, "retry_intervals_ms": [600_000]}
        groups[0]["topics"].append({"name": LETTERS, **rules, "on_exhausted": "dead_letter"})
        groups[0]["topics"][0]["visibility_timeout_s"] = 600
        groups.append(
            {"name": "shipping", "topics": [{"name": gateway.topic, "order_key": "KEY", **slow}]}
        )
        await gateway.client.create_topic(LETTERS, queues=1)
        proxy, at = await gateway.start_proxy(**overrides)
        over, repaired = asyncio.Event(), asyncio.Event()
        shipped: defaultdict[str | None, list[int]] = defaultdict(list)

        async def handle(message: Message) -> None:
            if message.key in (HELD, SPARE):
                await over.wait()
            elif message.key in (PARKED, "dead-0", "dead-1", "dead-2"):
                raise ValueError("the address has no street")

        async def ship(message: Message) -> None:
            if message.key in (FAILING, PARKED) and not repaired.is_set():
                raise ValueError("the carrier does not answer")
            shipped[message.key].append(message.json()["n"])

        token = {"token": TOKEN} if "tokens" in overrides else {}
        clients = [("worker-1", handle, gateway.group), ("shipper-1", ship, "shipping")]
        for name, handler, group in clients:
            client = AsyncConsumer(at.thrift, group=group, client_id=name, concurrency=8, **token)
            running = spawn(client.run(handler, handle_signals=False), name=name)
            stack.push_async_callback(_ended, running)
        stack.callback(over.set)
        body = '{{"id": "{key}", "n": {n}, "city": "Zürich", "lines": [1, 2, 3]}}'
        await gateway.send([PARKED, HELD, SPARE, FAILING, *"abcdefgh"] * 5, body=body)
        (letters,) = await gateway.client.queues(LETTERS)
        for number in range(3):
            letter = OutgoingMessage(topic=LETTERS, body=b"\x00\xffraw", key=f"dead-{number}")
            await gateway.client.send(letters, letter)
        await eventually(lambda: _is_prepared(proxy, gateway), within_s=30)
        yield Site(gateway, proxy, f"http://{at.http}", over, repaired, shipped)


async def _ended(running: asyncio.Task[None]) -> None:
    """Stop the client after one turn at most: its pull may wait 10 s at the proxy for nothing."""
    while not running.done():
        running.cancel()
        await asyncio.sleep(0)


def _is_prepared(proxy: Proxy, gateway: Gateway) -> bool:
    lane = proxy.lanes.find(gateway.group)
    if lane is None or not {gateway.topic, LETTERS} <= lane.counts.keys():
        return False
    return lane.counts[gateway.topic].parked > 4 and lane.counts[LETTERS].dead_lettered.total() > 2


def with_token() -> dict[str, Any]:
    """Return settings of a proxy that requires a token, like one that is not on loopback."""
    known = {"name": "anna", "sha256": hashlib.sha256(TOKEN.encode()).hexdigest()}
    return {"listen.http": "0.0.0.0:0", "tokens": [known]}
