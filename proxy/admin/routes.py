"""Serves operations with aiohttp: requests become ``Call`` objects, errors JSON objects."""

from __future__ import annotations

import asyncio
import math
from collections.abc import Awaitable, Callable, Iterable, Mapping
from contextlib import aclosing
from functools import partial
from typing import Any
from urllib.parse import unquote_to_bytes

import orjson
import structlog
from aiohttp import web
from aiohttp.http_exceptions import ContentEncodingError, HttpProcessingError
from pydantic import BaseModel

from broker_core.errors import RemotingError
from proxy.admin.checking import Malformed, body_of, query_of
from proxy.admin.guard import SECURITY_HEADERS, Guard
from proxy.admin.operations import (
    EVENTS,
    JSON,
    NDJSON,
    TEXT,
    UNANSWERED,
    Call,
    ErrorAnswer,
    Following,
    Operation,
)
from proxy.errors import (
    Forbidden,
    NotAllowed,
    OrderlaneError,
    Overloaded,
    OwnedElsewhere,
    Unavailable,
    UnknownName,
    WrongState,
)
from proxy.net.tls import common_name
from proxy.operator.request_models import Listed, Streamed

#: Header of a 421 response: addresses of the proxies that own other queues.
OWNERS = "Orderlane-Owners"
MAX_BODY_BYTES = 1 << 20
_LONGEST_REASON = 200
_WRONG_ENCODING = (
    "the request body is cut short, or not in the encoding that its Content-Encoding names"
)
#: Encodings of bodies that are inflated.
_ENCODINGS = frozenset({"", "identity", "gzip", "deflate"})
_POLICY = "Content-Security-Policy"

_SEE = web.AppKey("see", str)

_log = structlog.get_logger("admin")

_Served = Callable[[web.Request], Awaitable[web.StreamResponse]]


def application(
    operations: Iterable[Operation],
    guard: Guard,
    *,
    body_within_s: float | None = None,
    see: str = "/api/openapi.json",
) -> web.Application:
    """Return an application that serves *operations*, authorized by *guard*.

    Other requests get 404, which names the path *see*, or 405, and one whose body takes longer than
    *body_within_s* (None: no limit) gets 408.
    """
    made = web.Application(middlewares=[_errors], client_max_size=MAX_BODY_BYTES)
    made[_SEE] = see
    made.on_response_prepare.append(_secured)
    for operation in operations:
        served = _served(operation, guard, body_within_s)
        methods = [operation.method]
        if operation.method == "GET" and operation.media == TEXT:
            methods.append("HEAD")  # by which some load balancers probe
        for method in methods:
            made.router.add_route(method, operation.path, served, expect_handler=_expected)
    return made


async def _secured(_request: web.Request, response: web.StreamResponse) -> None:
    own_policy = response.headers.get(_POLICY)
    response.headers.update(SECURITY_HEADERS)
    if own_policy is not None:  # a page, which loads further files
        response.headers[_POLICY] = own_policy


def _served(operation: Operation, guard: Guard, body_within_s: float | None) -> _Served:
    async def serve(request: web.Request) -> web.StreamResponse:
        shown = _certificate_name(request)
        who = guard.check(
            operation.path,
            request.match_info,
            request.headers,
            certificate=shown,
            client=request.remote or "unknown",
        )
        call = await _call(request, operation, who, body_within_s)
        guard.check_topics(who, call.path, call.named_topics, client=call.remote)
        answer = await operation.handle(call)
        if isinstance(answer, web.StreamResponse):
            return answer
        if operation.media == NDJSON:
            return await _stream(request, answer, partial(guard.spend, who))
        if operation.media == EVENTS:
            names, headers = request.match_info, request.headers
            return await _follow(
                request,
                answer,
                partial(guard.still_allows, operation.path, names, headers, certificate=shown),
                partial(guard.spend, who),
            )
        if isinstance(answer, Listed):
            response = _json(answer.rows)
            _name_missing(response, answer.unanswered)
        else:
            response = web.Response(text=answer) if operation.media == TEXT else _json(answer)
        guard.spend(who, response.content_length or 0)
        return response

    return serve


def _name_missing(response: web.StreamResponse, unanswered: Mapping[str, str]) -> None:
    if unanswered:
        response.headers[UNANSWERED] = ", ".join(sorted(unanswered))


def _certificate_name(request: web.Request) -> str | None:
    if request.transport is None:
        return None
    return common_name(request.transport.get_extra_info("peercert"))


async def _call(
    request: web.Request, operation: Operation, who: str | None, body_within_s: float | None
) -> Call:
    query = body = None
    if operation.query is not None:
        query = query_of(_query_items(request), operation.query)
    elif request.query:
        raise Malformed(f"{request.method} {operation.path} takes no query parameters")
    if operation.body is not None:
        # Pages of other sites can send forms and plain text only, without a CORS preflight.
        if request.content_type != JSON:
            raise web.HTTPUnsupportedMediaType(text=f"send the request with Content-Type: {JSON}")
        encoding = request.headers.get("Content-Encoding", "").strip().lower()
        if encoding not in _ENCODINGS:
            raise web.HTTPUnsupportedMediaType(
                text="unknown Content-Encoding: send the body as it is, or with gzip or deflate"
            )
        body = body_of(await _read(request, body_within_s), operation.body)
    return Call(
        path=dict(request.match_info),
        query=query,
        body=body,
        remote=request.remote or "unknown",
        principal=who,
    )


def _query_items(request: web.Request) -> list[tuple[str, str]]:
    """Return the query parameters. Raises Malformed for bytes that aiohttp would replace."""
    try:
        unquote_to_bytes(request.rel_url.raw_query_string).decode()
    except UnicodeError:
        raise Malformed("the query string should be UTF-8") from None
    return list(request.query.items())


async def _read(request: web.Request, within_s: float | None) -> bytes:
    try:
        async with asyncio.timeout(within_s):
            return await request.read()
    except TimeoutError:
        sentence = f"the request body was not complete within {within_s:g} s"
        raise web.HTTPRequestTimeout(text=sentence) from None
    except (web.PayloadAccessError, web.RequestPayloadError, HttpProcessingError):
        raise Malformed(_WRONG_ENCODING) from None


async def _stream(
    request: web.Request, streamed: Streamed, spend: Callable[[int], None]
) -> web.StreamResponse:
    response = web.StreamResponse(headers={"Content-Type": NDJSON})
    pieces: Any = streamed.pieces
    async with aclosing(pieces):
        first = await anext(pieces, b"")  # an immediate failure is answered like other errors
        _name_missing(response, streamed.unanswered)
        try:
            await response.prepare(request)
            await response.write(first)
            spend(len(first))
            async for piece in pieces:
                await response.write(piece)
                spend(len(piece))
            await response.write_eof()
        except (OrderlaneError, RemotingError) as error:
            # Too late for an error status: abort, so that the reader notices.
            _log.warning("HTTP stream aborted", path=request.path, reason=str(error))
            if request.transport is not None:
                request.transport.abort()
        except ConnectionError:
            pass  # the reader has disconnected
    return response


async def _follow(
    request: web.Request,
    events: Following,
    may_go_on: Callable[[], bool],
    spend: Callable[[int], None],
) -> web.StreamResponse:
    response = web.StreamResponse(headers={"Content-Type": EVENTS})
    # Tells reverse proxies not to buffer the stream.
    response.headers["X-Accel-Buffering"] = "no"
    if request.transport is not None:
        events.call_if_dropped(request.transport.abort)
    pieces = aiter(events)
    try:
        await response.prepare(request)
        async for piece in pieces:
            if not may_go_on():
                break
            await response.write(piece)
            spend(len(piece))
        await response.write_eof()
    except ConnectionError:
        pass  # the reader has disconnected
    finally:
        await pieces.aclose()  # type: ignore[attr-defined]
    return response


@web.middleware
async def _errors(request: web.Request, handler: _Served) -> web.StreamResponse:
    try:
        return await handler(request)
    except Malformed as error:
        return _failed(400, str(error))
    except Overloaded as error:
        return _failed(
            429, str(error), headers={"Retry-After": str(math.ceil(error.retry_after_s))}
        )
    except NotAllowed as error:
        if isinstance(error, Forbidden):
            return _failed(403, str(error))
        return _failed(401, str(error), headers={"WWW-Authenticate": "Bearer"})
    except UnknownName as error:
        return _failed(404, str(error))
    except OwnedElsewhere as error:
        headers = {OWNERS: ", ".join(error.addresses)} if error.addresses else {}
        return _failed(421, str(error), owners=list(error.addresses), headers=headers)
    except Unavailable as error:
        return _failed(503, str(error))
    except WrongState as error:
        return _failed(409, str(error), headers={"Retry-After": "1"} if error.passing else None)
    except OrderlaneError as error:
        return _failed(409, str(error))
    except RemotingError as error:
        return _failed(503, f"a broker or nameserver failed: {error}")
    except web.HTTPException as error:
        return _refused(request, error)
    except Exception as bug:
        _log.error("a request failed", path=request.path, reason=repr(bug), exc_info=bug)
        return _failed(500, "internal error: see the proxy's log")


def malformed(error: BaseException | None) -> web.Response:
    """Return the answer to bytes that are not HTTP. *error* is the parser's: its first line says
    what is wrong, what follows quotes the request.
    """
    if isinstance(error, ContentEncodingError):
        return _failed(400, _WRONG_ENCODING, headers=SECURITY_HEADERS)
    reason = error.message if isinstance(error, HttpProcessingError) else ""
    line = reason.strip().partition("\n")[0].partition(" when reading")[0].strip(" :")
    if not line or not line.isprintable():
        line = "it cannot be parsed"
    sentence = f"the request is not valid HTTP: {line[:_LONGEST_REASON]}"
    return _failed(400, sentence, headers=SECURITY_HEADERS)


async def _expected(request: web.Request) -> web.StreamResponse | None:
    """Answer an Expect header: continue, or refuse the request."""
    if request.headers.get("Expect", "").lower() != "100-continue":
        return _failed(417, "unknown Expect header: only 100-continue is supported")
    await request.writer.write(b"HTTP/1.1 100 Continue\r\n\r\n")
    request.writer.output_size = 0  # the answer has not begun
    return None


def _refused(request: web.Request, error: web.HTTPException) -> web.Response:
    headers = {}
    sentence = error.text or error.reason
    if isinstance(error, web.HTTPMethodNotAllowed):
        allowed = ", ".join(sorted(error.allowed_methods))
        headers = {"Allow": allowed}
        sentence = f"{request.path} supports {allowed}, not {request.method}"
    elif isinstance(error, web.HTTPNotFound):
        sentence = f"unknown path {request.path}: see {request.app[_SEE]}"
    elif isinstance(error, web.HTTPRequestEntityTooLarge):
        sentence = f"the request body exceeds {MAX_BODY_BYTES:,} bytes"
    return _failed(error.status, sentence, headers=headers)


def _failed(
    status: int,
    sentence: str,
    *,
    owners: list[str] | None = None,
    headers: Mapping[str, str] | None = None,
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
    raise TypeError(f"{type(value).__name__} has no JSON form")
