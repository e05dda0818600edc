"""Routes for the dead letters of a group: what is there, send them back, stop that."""

from __future__ import annotations

from collections.abc import Awaitable
from typing import Any

import orjson
from aiohttp import web

from broker_core.errors import RemotingError
from proxy.errors import OrderlaneError, UnknownName
from proxy.upstream.dead_letter_desk import DeadLetterDesk, Wish

_PLACE = "/api/groups/{group}/dead-letters"
#: Messages a second: more is no limit at all.
_MOST = 1_000_000
MOST_SHOWN = 10_000
VERBS = frozenset({"redrive", "stop"})


def dead_letter_routes(desk: DeadLetterDesk) -> list[web.RouteDef]:
    """``GET …/dead-letters?limit=&topic=&key=&all=``, and ``POST …/dead-letters/VERB`` with a JSON
    object, which may be empty.
    """

    async def show(request: web.Request) -> web.Response:
        asked = request.query
        limit = asked.get("limit", "100")
        if not (limit.isascii() and limit.isdecimal() and 0 < int(limit) <= MOST_SHOWN):
            return _bad(f"limit should be a number from 1 to {MOST_SHOWN:,}")
        wish = Wish(
            limit=int(limit),
            topic=asked.get("topic"),
            key=asked.get("key"),
            everything=asked.get("all") == "true",
        )
        return await _answer(desk.show(request.match_info["group"], wish))

    async def act(request: web.Request) -> web.Response:
        group, verb = request.match_info["group"], request.match_info["verb"]
        if verb not in VERBS:
            known = ", ".join(sorted(VERBS))
            return _bad(f"dead letters have no verb {verb!r}: only {known}")
        try:
            asked = orjson.loads(await request.read() or b"{}")
        except orjson.JSONDecodeError:
            asked = None
        if not isinstance(asked, dict):
            return _bad("the request should be a JSON object")
        if verb == "stop":
            return await _answer(desk.stop(group))
        return await _redrive(desk, group, asked, remote=request.remote or "unknown")

    return [web.get(_PLACE, show), web.post(f"{_PLACE}/{{verb}}", act)]


async def _redrive(
    desk: DeadLetterDesk, group: str, asked: dict[str, Any], *, remote: str
) -> web.Response:
    rate, skip = asked.get("rate", 0), asked.get("skip", [])
    if type(rate) not in (int, float) or not 0 <= rate <= _MOST:
        return _bad(f"rate should be messages a second, from 0 (no limit) to {_MOST:,}")
    if not isinstance(skip, list) or not all(isinstance(each, str) for each in skip):
        return _bad('skip should be a list of dead letters, such as ["broker-a_0@17"]')
    return await _answer(
        desk.redrive(
            group,
            by=str(asked.get("by") or remote),
            rate=rate,
            skip=skip,
            dry_run=asked.get("dry_run") is True,
        )
    )


async def _answer(asked: Awaitable[dict[str, Any]]) -> web.Response:
    try:
        return web.Response(body=orjson.dumps(await asked), content_type="application/json")
    except OrderlaneError as error:
        status = 404 if isinstance(error, UnknownName) else 409
        return web.Response(status=status, text=f"{error}\n")
    except RemotingError as error:
        return web.Response(status=503, text=f"the brokers do not answer as they should: {error}\n")


def _bad(sentence: str) -> web.Response:
    return web.Response(status=400, text=f"{sentence}\n")
