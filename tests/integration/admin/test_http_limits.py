"""HTTP connections that send too slowly or are too many are closed."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest
from pydantic import BaseModel

from broker_core.tasks import spawn
from proxy.admin.http import AdminHttp
from proxy.admin.http_connections import HttpConnections
from proxy.admin.metric_families import Scrape
from proxy.admin.operations import Call, post
from proxy.downstream.port.load import Load
from proxy.settings.proxy_settings import LimitSettings
from testkit.eventually import eventually
from testkit.lanes import open_guard

HEALTH = b"GET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\n"


class Said(BaseModel):
    """A body."""

    word: str


class Client:
    """One raw connection."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader = reader
        self.writer = writer

    async def healthy(self) -> bool:
        """Send a request over this connection and read the whole answer."""
        self.writer.write(HEALTH)
        async with asyncio.timeout(30):
            head = await self.reader.readuntil(b"\r\n\r\n")
            await self.reader.readexactly(len(b"ok\n"))
        return head.startswith(b"HTTP/1.1 200 ")

    async def rest(self) -> bytes:
        """Return all bytes received until the server closes the connection."""
        try:
            async with asyncio.timeout(40):
                return await self.reader.read()
        except ConnectionError:
            return b""


@asynccontextmanager
async def running(**limits: float) -> AsyncIterator[tuple[HttpConnections, Load, int]]:
    """Start the port with an operation that accepts a body."""

    async def say(call: Call) -> dict[str, Any]:
        return call.body.model_dump()  # type: ignore[union-attr]

    async def ready() -> str | None:
        return None

    load = Load(1 << 20)
    connections = HttpConnections(LimitSettings.model_validate(limits), load)
    http = AdminHttp(
        scrape=Scrape(),
        not_ready=ready,
        groups=_no_groups,
        guard=open_guard(),
        operations=[post("/api/say", "Say it.", say, body=Said, answer=dict[str, Any])],
        connections=connections,
    )
    try:
        yield connections, load, await http.listen("127.0.0.1", 0)
    finally:
        await http.close()


@asynccontextmanager
async def connect(port: int) -> AsyncIterator[Client]:
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    try:
        yield Client(reader, writer)
    finally:
        writer.transport.abort()


@pytest.mark.parametrize("sent", [b"", HEALTH[:-2]], ids=["nothing", "half a head"])
async def test_an_unfinished_header_closes_its_connection(sent: bytes) -> None:
    """Header lines sent now and then do not extend the limit; others are served meanwhile."""
    began_s = asyncio.get_running_loop().time()
    # Other requests arrive in time, even if the machine stalls for a moment.
    async with running(slow_request_s=3.0) as (_, load, port), connect(port) as slow:
        slow.writer.write(sent)
        ended = spawn(slow.rest(), name="rest")
        while not ended.done():
            if sent:
                slow.writer.write(b"X-More: 1\r\n")
            async with connect(port) as good:
                assert await good.healthy()
            await asyncio.sleep(0.05)
        assert await ended == b""
        assert 2.25 <= asyncio.get_running_loop().time() - began_s < 30
        assert load.dropped["slow_request_s"] == 1


async def test_an_idle_connection_accepts_another_request_and_is_closed_silently() -> None:
    """aiohttp closes these, with an incomplete header or none; only connections without any request
    are counted.
    """
    async with running(slow_request_s=2.5) as (_, load, port), connect(port) as client:
        for _ in range(8):
            assert await client.healthy()
            await asyncio.sleep(0.32)
        client.writer.write(HEALTH[:20])
        began_s = asyncio.get_running_loop().time()
        assert await client.rest() == b""
        assert asyncio.get_running_loop().time() - began_s < 30
        assert load.dropped["slow_request_s"] == 0


async def test_an_unfinished_body_is_answered_408_and_its_connection_closed() -> None:
    head = (
        b"POST /api/say HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
        b"Connection: close\r\nContent-Length: 1000\r\n\r\n"
    )
    async with running(slow_request_s=2.8) as (_, _, port), connect(port) as client:
        client.writer.write(head + b'{"word"')
        async with asyncio.timeout(30):
            answer = await client.reader.readuntil(b"\r\n\r\n")
        assert answer.startswith(b"HTTP/1.1 408 ")
        client.writer.write(b" " * 993)  # aiohttp would wait longer
        assert b"the request body was not complete within 2.8 s" in await client.rest()


async def test_connections_over_the_limit_are_closed_and_others_continue() -> None:
    async with running(max_http_connections=2) as (connections, _, port):
        async with connect(port) as one, connect(port) as two:
            assert await one.healthy()
            assert await two.healthy()
            async with connect(port) as three:
                three.writer.write(HEALTH)
                assert await three.rest() == b""
            assert connections.refused == 1
            assert await one.healthy()
        await eventually(lambda: not connections.open)
        async with connect(port) as three:
            assert await three.healthy()


@pytest.mark.sockets
async def test_keepalive_detects_dead_connections() -> None:
    async with running(dead_peer_s=45) as (connections, _, port), connect(port) as client:
        assert await client.healthy()
        [handler] = connections.open
        assert handler.transport is not None
        options = handler.transport.get_extra_info("socket")
        assert options.getsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE) == 1
        assert options.getsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT) == 45_000


async def _no_groups() -> dict[str, object]:
    return {}
