"""A server that closes ends the connections that it is just accepting, too."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Awaitable, Callable
from typing import NamedTuple

import pytest
from aiohttp import web

from broker_core.remoting_server import RemotingServer
from proxy.admin.http_connections import HttpConnections
from proxy.admin.http_listener import HttpListener
from proxy.downstream.port.load import Load
from proxy.downstream.port.server import ThriftServer
from proxy.settings.proxy_settings import LimitSettings
from testkit.scripted_proxy import ScriptedProxy
from tests.chaos.links import Link

pytestmark = pytest.mark.sockets


class Listening(NamedTuple):
    """A port, and what closes its server."""

    port: int
    close: Callable[[], Awaitable[None]]


async def _remoting() -> Listening:
    server = RemotingServer({})
    address = await server.listen("127.0.0.1", 0)
    return Listening(int(address.rpartition(":")[2]), server.close)


async def _thrift() -> Listening:
    server = ThriftServer({}, LimitSettings())
    return Listening(await server.listen("127.0.0.1", 0), server.close)


async def _http() -> Listening:
    limits = LimitSettings()
    connections = HttpConnections(limits, Load(limits.max_inflight_bytes))
    listener = HttpListener(web.AppRunner(web.Application()), connections)
    return Listening(await listener.listen("127.0.0.1", 0), listener.close)


async def _scripted() -> Listening:
    proxy = await ScriptedProxy().__aenter__()

    async def close() -> None:
        await proxy.__aexit__()

    return Listening(int(proxy.address.rpartition(":")[2]), close)


async def _link() -> Listening:
    link = Link("link", lambda: None)
    await link.open()
    return Listening(int(link.address.rpartition(":")[2]), link.close)


@pytest.mark.parametrize("turns", range(5))
@pytest.mark.parametrize("listen", [_remoting, _thrift, _http, _scripted, _link])
async def test_no_connection_outlives_its_server(
    listen: Callable[[], Awaitable[Listening]], turns: int
) -> None:
    port, close = await listen()
    with socket.create_connection(("127.0.0.1", port)) as client:  # not yet noticed by the server
        client.setblocking(False)
        for _ in range(turns):
            await asyncio.sleep(0)
        await close()
        try:
            async with asyncio.timeout(5):
                assert await asyncio.get_running_loop().sock_recv(client, 1) == b""
        except ConnectionResetError:
            pass  # it was still in the queue of the listener
