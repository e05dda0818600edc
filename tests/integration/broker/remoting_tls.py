"""A remoting port with TLS, and its clients."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import asynccontextmanager
from typing import Any

import uvloop

from broker_core.client.connection_pool import ConnectionPool
from broker_core.remoting.command import RemotingCommand
from broker_core.remoting_channel import Answer, RemotingChannel
from broker_core.remoting_server import RemotingServer
from broker_core.tls import ClientContext
from broker_core.tls_settings import ClientTls, ServerTls
from testkit.certificates import Certificates

ECHO = 1
Run = Callable[[Coroutine[Any, Any, None]], None]
#: Their TLS and their buffers differ.
LOOPS: dict[str, Run] = {"asyncio": asyncio.run, "uvloop": uvloop.run}


def files(certificates: Certificates, **changes: Any) -> ServerTls:
    own = {"certificate": str(certificates.server), "key": str(certificates.server_key)}
    return ServerTls(**{**own, **{name: str(value) for name, value in changes.items()}})


def trusting(certificates: Certificates, **changes: Any) -> ClientTls:
    given = {name: str(value) for name, value in changes.items()}
    return ClientTls(**{"ca": str(certificates.ca), **given})


def with_own(certificates: Certificates) -> ClientTls:
    own = {"certificate": certificates.client, "key": certificates.client_key}
    return trusting(certificates, **own)


def echo(request: RemotingCommand, channel: RemotingChannel) -> Answer:
    return request.response(body=request.body)


@asynccontextmanager
async def serving(tls: ServerTls | None, **options: Any) -> AsyncIterator[tuple[Any, str]]:
    server = RemotingServer({ECHO: echo}, tls=tls, **options)
    try:
        yield server, await server.listen("127.0.0.1", 0)
    finally:
        await server.close(grace_s=0)


async def ask(address: str, tls: ClientTls | None, body: bytes = b"hello") -> bytes:
    """Send *body* over a new connection."""
    pool = ConnectionPool(tls=None if tls is None else ClientContext(tls, "client_tls"))
    try:
        answer = await pool.request(address, RemotingCommand(ECHO, body=body), timeout_s=10)
        return bytes(answer.body)
    finally:
        await pool.close()
