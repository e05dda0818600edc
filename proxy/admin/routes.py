"""Serves operations with aiohttp: a request becomes a ``Call``, an error one JSON object."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable
from typing import Any

import orjson
import structlog
from aiohttp import web
from pydantic import BaseModel

from broker_core.errors import RemotingError
from proxy.admin.checking import Malformed, body_of, query_of
from proxy.admin.operations import JSON, NDJSON, TEXT, Call, ErrorAnswer, Operation
from proxy.errors import OrderlaneError, OwnedElsewhere, Unavailable, UnknownName

#: Header of an answer 421: where the proxies can be asked that own the other queues.
OWNERS = "Orderlane-Owners"
MAX_BODY_BYTES = 1 << 20

_log = structlog.get_logger("admin")

_Served = Callable[[web.Request], Awaitable[web.StreamResponse]]


def application(operations: Iterable[Operation]) -> web.Application:
    """What serves *operations*; any other request gets 404 or 405."""
    made = web.Application(middlewares=[_errors], client_max_size=MAX_BODY_BYTES)
    for operation in operations:
        made.router.add_route(operation.method, operation.path, _served(operation))
    return made


def _served(operation: Operation) -> _Served:
    async def serve(request: web.Request) -> web.StreamResponse:
        answer = await operation.handle(await _call(request, operation))
        if operation.media == NDJSON:
            return await _stream(request, answer)
        if operation.media == TEXT:
            return answer if isinstance(answer, web.StreamResponse) else web.Response(text=answer)
        return _json(answer)

    return serve


async def _call(request: web.Request, operation: Operation) -> Call:
    query = body = None
    if operation.query is not None:
        query = query_of(list(request.query.items()), operation.query)
    elif request.query:
        raise Malformed(f"{request.method} {operation.path} takes nothing behind the '?'")
    if operation.body is not None:
        # A page of another site can make a browser send a form or a text, and nothing else unasked.
        if request.content_type != JSON:
            raise web.HTTPUnsupportedMediaType(text=f"send it with Content-Type: {JSON}")
        body = body_of(await request.read(), operation.body)
    return Call(
        path=dict(request.match_info), query=query, body=body, remote=request.remote or "unknown"
    )


async def _stream(request: web.Request, pieces: Any) -> web.StreamResponse:
    first = await anext(pieces, b"")  # what fails at once is an error as any other
    response = web.StreamResponse(headers={"Content-Type": NDJSON})
    await response.prepare(request)
    await response.write(first)
    try:
        async for piece in pieces:
            await response.write(piece)
    except (OrderlaneError, RemotingError) as error:
        # Too late for a status: who reads must not take what there is for the whole.
        _log.warning("a stream broke off", path=request.path, reason=str(error))
        if request.transport is not None:
            request.transport.abort()
        return response
    await response.write_eof()
    return response


@web.middleware
async def _errors(request: web.Request, handler: _Served) -> web.StreamResponse:
    try:
        return await handler(request)
    except Malformed as error:
        return _failed(400, str(error))
    except UnknownName as error:
        return _failed(404, str(error))
    except OwnedElsewhere as error:
        headers = {OWNERS: ", ".join(error.addresses)} if error.addresses else {}
        return _failed(421, str(error), owners=list(error.addresses), headers=headers)
    except Unavailable as error:
        return _failed(503, str(error))
    except OrderlaneError as error:
        return _failed(409, str(error))
    except RemotingError as error:
        return _failed(503, f"the brokers do not answer as they should: {error}")
    except web.HTTPException as error:
        return _refused(request, error)
    except Exception as bug:
        _log.error("a request failed", path=request.path, reason=repr(bug), exc_info=bug)
        return _failed(500, "a bug of the proxy: its log says more")


def _refused(request: web.Request, error: web.HTTPException) -> web.Response:
    headers = {}
    sentence = error.text or error.reason
    if isinstance(error, web.HTTPMethodNotAllowed):
        allowed = ", ".join(sorted(error.allowed_methods))
        headers = {"Allow": allowed}
        sentence = f"{request.path} takes {allowed}, not {request.method}"
    elif isinstance(error, web.HTTPNotFound):
        sentence = f"there is no {request.path} here: see /api/openapi.json"
    elif isinstance(error, web.HTTPRequestEntityTooLarge):
        sentence = f"the request has more than {MAX_BODY_BYTES:,} bytes"
    return _failed(error.status, sentence, headers=headers)


def _failed(
    status: int,
    sentence: str,
    *,
    owners: list[str] | None = None,
    headers: dict[str, str] | None = None,
) -> web.Response:
    answer = ErrorAnswer(error=sentence, owners=owners).model_dump(exclude_none=True)
    return web.Response(
        status=status, body=orjson.dumps(answer), content_type=JSON, headers=headers
    )


def _json(value: Any) -> web.Response:
    return web.Response(body=orjson.dumps(value, default=_plain), content_type=JSON)


def _plain(value: Any) -> Any:
    if isinstance(value, BaseModel):
        return value.model_dump(mode="json")
    raise TypeError(f"{type(value).__name__} is no JSON")
