"""Redrives of dead letters by an operator."""

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
#: Long enough that no lock or reply expires when the machine stalls for seconds.
PATIENT = {"renewal_s": 0.5, "trust_s": 9.0, "request_timeout_s": 5.0}


async def ask(at: Addresses, gateway: Gateway, what: str, **asked: Any) -> dict[str, Any]:
    """Return the proxy's answer to an operator."""
    path = f"/api/groups/{gateway.group}/dead-letters{what}"
    body = None if what.startswith("?") or not what else orjson.dumps({"reason": "a test", **asked})
    answer: dict[str, Any] = orjson.loads(
        await asyncio.to_thread(ask_proxy, at.http, path, body=body, timeout_s=20)
    )
    return answer


async def until_sent(at: Addresses, gateway: Gateway, count: int) -> None:
    """Wait until the running redrive has sent *count* messages."""
    async with asyncio.timeout(60):
        while (await ask(at, gateway, "?limit=1"))["redrive"]["sent"] < count:  # noqa: ASYNC110
            await asyncio.sleep(0.02)


async def bodies(gateway: Gateway, *, stored: int = 0) -> list[int]:
    """Return the bodies in the topic's only queue, in order: at least *stored* messages."""
    await shown_end(gateway.client, gateway.queue(0), stored=stored)
    pulled = await gateway.client.pull(
        gateway.queue(0), group=Group("reader"), offset=0, suspend_ms=0
    )
    return [int(each.body) for each in pulled.messages]
