"""Runs of ``orderlane doctor GROUP`` against a gateway."""

from __future__ import annotations

import asyncio
from typing import Any

import orjson

from testkit.eventually import eventually
from testkit.gateway import GROUP
from tests.integration.operator.queue_site import Site
from thin_client.message import Message

WHY = ("--reason", "the bank is closed")
TEN_MINUTES_MS = [600_000]


async def findings(it: Site, *more: str, http: str | None = None) -> list[dict[str, Any]]:
    """Return the findings, after checking that the exit code reflects them."""
    where = ("--nameserver", it.gateway.cluster.nameserver)
    code, out, err = await it.verb("doctor", GROUP, *where, *more, "-o", "json", http=http)
    assert code in (0, 1), err
    found = list(orjson.loads(out))
    assert code == bool(found)
    return found


async def first(it: Site, *more: str, http: str | None = None) -> dict[str, Any]:
    """Return the first finding, after checking that it is one or two sentences."""
    found = await findings(it, *more, http=http)
    assert found, "nothing found"
    assert found[0]["sentence"].startswith(found[0]["what"])
    assert "\n" not in found[0]["sentence"]
    return found[0]


async def until_found(it: Site) -> dict[str, Any]:
    """Wait for a finding and return the first."""
    for _ in range(100):
        if found := await findings(it):
            return found[0]
        await asyncio.sleep(0.2)
    raise AssertionError("nothing found")


async def until_unfinished(it: Site, count: int) -> None:
    await eventually(
        lambda: sum(each.unfinished for each in it.gateway.statistics()) == count, within_s=20
    )


def failed(it: Site) -> int:
    """Return the number of messages that wait for their retry."""
    return sum(each.retrying for each in it.gateway.statistics())


async def failing(message: Message) -> None:
    raise ValueError(f"no account {message.body.decode()}")
