"""An operator who redrives whatever is parked, while proxies are killed under it."""

from __future__ import annotations

import asyncio
from typing import Any

import orjson

from proxy.cli.connect import ask_proxy
from proxy.errors import OrderlaneError
from tests.chaos.site import GROUP, TOPIC, Site

_LOOK_S = 1.0
_PLACE = f"/api/groups/{GROUP}/topics/{TOPIC}/keys"


async def redrive_for_ever(site: Site) -> None:
    """Until cancelled."""
    while True:
        await redrive_all(site)
        await asyncio.sleep(_LOOK_S)


async def redrive_all(site: Site) -> int:
    """Redrive every key that is parked; how many are parked or redriven."""
    parked = 0
    for http in site.https:
        for row in await _ask(http, "parked", None) or []:
            parked += 1
            if row["state"] == "parked":
                await _ask(http, "redrive", orjson.dumps({"key": row["key"], "by": "chaos"}))
    return parked


async def _ask(http: str, what: str, body: bytes | None) -> Any:
    try:
        answer = await asyncio.to_thread(ask_proxy, http, f"{_PLACE}/{what}", body=body)
    except (OrderlaneError, OSError):
        return None  # that proxy is away, or no owner any more
    return orjson.loads(answer)
