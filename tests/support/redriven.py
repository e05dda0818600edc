"""Dead letters that are sent back, as an operator asks for it."""

from __future__ import annotations

import asyncio
from typing import Any

import orjson

from broker_core.names import Group
from proxy.cli.connect import ask_proxy
from proxy.listening import Addresses
from proxy.upstream.records.queue_range import shown_end
from testkit.gateway import Gateway

DEAD_LETTERS = {"on_exhausted": "dead_letter"}
#: No lock runs out, and no answer comes too late, where a machine stands still for seconds.
PATIENT = {"renewal_s": 0.5, "trust_s": 9.0, "request_timeout_s": 5.0}


async def ask(at: Addresses, gateway: Gateway, what: str, **asked: Any) -> dict[str, Any]:
    """What the proxy answers an operator."""
    path = f"/api/groups/{gateway.group}/dead-letters{what}"
    body = None if what.startswith("?") or not what else orjson.dumps({"reason": "a test", **asked})
    answer: dict[str, Any] = orjson.loads(
        await asyncio.to_thread(ask_proxy, at.http, path, body=body, timeout_s=20)
    )
    return answer


async def until_sent(at: Addresses, gateway: Gateway, count: int) -> None:
    """Return once the redrive that goes on has sent back so many."""
    async with asyncio.timeout(60):
        while (await ask(at, gateway, "?limit=1"))["redrive"]["sent"] < count:  # noqa: ASYNC110
            await asyncio.sleep(0.02)


async def bodies(gateway: Gateway, *, stored: int = 0) -> list[int]:
    """What stands in the topic, in the order of its only queue: *stored* messages at least."""
    await shown_end(gateway.client, gateway.queue(0), stored=stored)
    pulled = await gateway.client.pull(
        gateway.queue(0), group=Group("reader"), offset=0, suspend_ms=0
    )
    return [int(each.body) for each in pulled.messages]
