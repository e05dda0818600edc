"""A real HTTP server that receives pushed messages and answers as a test specifies."""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field

from aiohttp import web
from multidict import CIMultiDict

Reply = Callable[["Received"], Awaitable[web.StreamResponse]]


@dataclass(frozen=True, slots=True)
class Received:
    """One request. ``request`` is for replies that need the connection."""

    method: str
    path: str
    query: str
    headers: CIMultiDict[str]
    body: bytes
    request: web.Request = field(repr=False)

    @property
    def message_id(self) -> str:
        return self.headers["Orderlane-Message-Id"]


async def says_ok(_received: Received) -> web.StreamResponse:
    """Accept the message."""
    return web.Response()


@dataclass(slots=True)
class Receiver:
    """``replies`` are used first, in order; then ``reply`` answers. ``handling`` counts unanswered
    requests, ``dropped`` those whose sender disconnected meanwhile.
    """

    port: int = 0
    received: list[Received] = field(default_factory=list)
    replies: list[Reply] = field(default_factory=list)
    reply: Reply = says_ok
    handling: int = 0
    most_handled: int = 0
    dropped: int = 0
    peers: set[object] = field(default_factory=set)

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}/orders"

    def answer(self, *replies: Reply) -> None:
        """Answer the next requests with *replies*, one each."""
        self.replies = list(replies)

    def always_answer(self, reply: Reply) -> None:
        """Answer with *reply* from now on."""
        self.reply = reply

    async def handle(self, request: web.Request) -> web.StreamResponse:
        received = Received(
            request.method,
            request.path,
            request.rel_url.raw_query_string,
            CIMultiDict(request.headers),
            await request.read(),
            request,
        )
        assert request.transport is not None
        self.peers.add(request.transport.get_extra_info("peername"))
        self.received.append(received)
        reply = self.replies.pop(0) if self.replies else self.reply
        self.handling += 1
        self.most_handled = max(self.most_handled, self.handling)
        try:
            return await reply(received)
        except asyncio.CancelledError:
            self.dropped += 1
            raise
        finally:
            self.handling -= 1


@asynccontextmanager
async def running_receiver(
    port: int = 0, *, tls: ssl.SSLContext | None = None
) -> AsyncIterator[Receiver]:
    """Run a receiver on *port* (0: any free one)."""
    receiver = Receiver()
    application = web.Application(client_max_size=1 << 26)
    application.router.add_route("*", "/{path:.*}", receiver.handle)
    runner = web.AppRunner(
        application, access_log=None, handler_cancellation=True, shutdown_timeout=0.1
    )
    await runner.setup()
    try:
        await web.TCPSite(runner, "127.0.0.1", port, ssl_context=tls).start()
        receiver.port = runner.addresses[0][1]
        yield receiver
    finally:
        await runner.cleanup()


# ---- replies ------------------------------------------------------------------------------------


def says(status: int = 200, body: bytes = b"", **headers: str) -> Reply:
    """Answer at once; ``Retry_After`` is the header Retry-After."""

    async def reply(_received: Received) -> web.StreamResponse:
        named = {name.replace("_", "-"): value for name, value in headers.items()}
        return web.Response(status=status, body=body, headers=named)

    return reply


def says_json(text: str, status: int = 200) -> Reply:
    return says(status, text.encode(), Content_Type="application/json")


async def says_nothing(_received: Received) -> web.StreamResponse:
    """Never answer."""
    await asyncio.Event().wait()
    raise AssertionError


async def stops_in_the_body(received: Received) -> web.StreamResponse:
    """Send a part of the answer, then nothing."""
    response = web.StreamResponse(headers={"Content-Length": "1000"})
    await response.prepare(received.request)
    await response.write(b"x")
    await asyncio.Event().wait()
    return response


async def drips(received: Received) -> web.StreamResponse:
    """Send the answer slowly and forever, byte by byte."""
    response = web.StreamResponse()
    await response.prepare(received.request)
    while True:
        await response.write(b"x")
        await asyncio.sleep(0.02)


async def hangs_up(received: Received) -> web.StreamResponse:
    """Close the connection instead of answering."""
    assert received.request.transport is not None
    received.request.transport.abort()
    return web.Response()


async def breaks_off(received: Received) -> web.StreamResponse:
    """Close the connection in the middle of the answer."""
    response = web.StreamResponse(headers={"Content-Length": "1000"})
    await response.prepare(received.request)
    await response.write(b"x")
    assert received.request.transport is not None
    received.request.transport.close()
    return response


async def says_garbage(received: Received) -> web.StreamResponse:
    """Answer with invalid HTTP."""
    assert received.request.transport is not None
    received.request.transport.write(b"220 mail.example.com ESMTP\r\n\r\n")  # type: ignore[attr-defined]
    received.request.transport.close()
    return web.Response()
