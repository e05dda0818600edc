"""Routes for what operators do with single keys: which are parked, park, redrive, stop."""

from __future__ import annotations

from typing import Any

import orjson
from aiohttp import web

from proxy.errors import OrderlaneError, OwnedElsewhere, UnknownName
from proxy.upstream.key_desk import KeyDesk

_PLACE = "/api/groups/{group}/topics/{topic}/keys"
#: Messages a second: more is no limit at all.
_MOST = 1_000_000
#: Header of an answer 421: where the proxies can be asked that own the other queues.
OWNERS = "Orderlane-Owners"
VERBS = frozenset({"park", "redrive", "stop"})


def key_routes(desk: KeyDesk) -> list[web.RouteDef]:
    """``GET …/keys/parked``, and ``POST …/keys/VERB`` with a JSON object that names the key."""

    async def parked(request: web.Request) -> web.Response:
        place = request.match_info
        try:
            return _json(desk.parked(place["group"], place["topic"]))
        except OrderlaneError as error:
            return web.Response(status=404, text=f"{error}\n")

    async def act(request: web.Request) -> web.Response:
        place = request.match_info
        if place["verb"] not in VERBS:
            return _bad(f"keys have no verb {place['verb']!r}: only {', '.join(sorted(VERBS))}")
        try:
            asked = orjson.loads(await request.read())
        except orjson.JSONDecodeError:
            asked = None
        if not isinstance(asked, dict) or not isinstance(asked.get("key"), str):
            return _bad('the request should be a JSON object with "key", a text')
        rate = asked.get("rate", 0)
        if type(rate) not in (int, float) or not 0 <= rate <= _MOST:
            return _bad(f"rate should be messages a second, from 0 (no limit) to {_MOST:,}")
        try:
            done = await desk.act(
                place["group"],
                place["topic"],
                place["verb"],
                asked["key"],
                by=str(asked.get("by") or request.remote or "unknown"),
                reason=str(asked.get("reason") or ""),
                dry_run=asked.get("dry_run") is True,
                rate=rate,
            )
        except OwnedElsewhere as error:
            headers = {OWNERS: ", ".join(error.addresses)} if error.addresses else {}
            return web.Response(status=421, headers=headers, text=f"{error}\n")
        except OrderlaneError as error:
            status = 404 if isinstance(error, UnknownName) else 409
            return web.Response(status=status, text=f"{error}\n")
        return _json(done)

    return [web.get(f"{_PLACE}/parked", parked), web.post(f"{_PLACE}/{{verb}}", act)]


def _json(value: Any) -> web.Response:
    return web.Response(body=orjson.dumps(value), content_type="application/json")


def _bad(sentence: str) -> web.Response:
    return web.Response(status=400, text=f"{sentence}\n")
