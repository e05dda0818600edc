"""A connection counts for its address from the accept on, before its TLS handshake."""

from __future__ import annotations

import asyncio
import socket
import ssl
from collections.abc import Callable
from contextlib import ExitStack, suppress
from typing import Any

import pytest

from broker_core.remoting.command import RemotingCommand
from broker_core.remoting_channel import Answer, RemotingChannel
from broker_core.remoting_server import RemotingServer
from broker_core.tasks import spawn
from broker_core.tls_settings import ServerTls
from proxy.admin.http import AdminHttp
from proxy.admin.http_connections import HttpConnections
from proxy.admin.metric_families import Scrape
from proxy.downstream.port.load import Load
from proxy.downstream.port.server import ThriftServer
from proxy.settings.proxy_settings import LimitSettings
from testkit.certificates import Certificates, make_certificates
from testkit.eventually import eventually
from testkit.lanes import open_guard

pytestmark = pytest.mark.sockets

LIMIT, ATTEMPTS = 10, 40
HTTP_REQUEST = b"GET /healthz HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n"


@pytest.fixture(scope="module")
def certificates(tmp_path_factory: pytest.TempPathFactory) -> Certificates:
    return make_certificates(tmp_path_factory.mktemp("certificates"))


def server_context(certificates: Certificates) -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificates.server, certificates.server_key)
    return context


async def is_hung_up(connection: socket.socket) -> bool:
    try:
        return await asyncio.get_running_loop().sock_recv(connection, 1) == b""
    except ConnectionError:
        return True


async def check_half_open(
    port: int, counted: Callable[[], int], refused: Callable[[], int]
) -> None:
    """Open more connections than allowed without a handshake: only the allowed ones stay."""
    with ExitStack() as stack:
        opened = []
        for _ in range(ATTEMPTS):
            one = stack.enter_context(socket.create_connection(("127.0.0.1", port)))
            one.setblocking(False)
            opened.append(one)
        ends = [spawn(is_hung_up(one), name="end") for one in opened]
        await eventually(lambda: sum(end.done() for end in ends) == ATTEMPTS - LIMIT)
        assert refused() == ATTEMPTS - LIMIT
        for end in ends:
            end.cancel()
        await asyncio.wait(ends)
    await eventually(lambda: counted() == 0)


async def test_unfinished_handshakes_count_at_the_thrift_port(certificates: Certificates) -> None:
    server = ThriftServer({}, LimitSettings(max_connections_per_address=LIMIT))
    port = await server.listen("127.0.0.1", 0, tls=lambda: server_context(certificates))
    await check_half_open(port, lambda: server.counted, lambda: server.refused_connections)
    trusting = ssl.create_default_context(cafile=certificates.ca)
    for _ in range(2 * LIMIT):  # those that have ended count no more
        _, writer = await asyncio.open_connection("127.0.0.1", port, ssl=trusting)
        await eventually(lambda: len(server.open) == 1)
        writer.close()
        with suppress(ConnectionError):
            await writer.wait_closed()
        await eventually(lambda: not server.open)
    assert server.refused_connections == ATTEMPTS - LIMIT
    await server.close()


async def test_unfinished_handshakes_count_at_the_http_port(certificates: Certificates) -> None:
    async def ready() -> str | None:
        return None

    limits = LimitSettings(max_connections_per_address=LIMIT)
    connections = HttpConnections(limits, Load(1 << 20))
    http = AdminHttp(
        scrape=Scrape(),
        not_ready=ready,
        groups=dict,
        guard=open_guard(),
        connections=connections,
    )
    port = await http.listen("127.0.0.1", 0, tls=lambda: server_context(certificates))
    await check_half_open(port, lambda: connections.counted, lambda: connections.refused)
    trusting = ssl.create_default_context(cafile=certificates.ca)
    for _ in range(2 * LIMIT):
        reader, writer = await asyncio.open_connection("127.0.0.1", port, ssl=trusting)
        writer.write(HTTP_REQUEST)
        assert (await reader.read()).startswith(b"HTTP/1.1 200 ")
        writer.close()
        with suppress(ConnectionError):
            await writer.wait_closed()
    assert connections.received_bytes == 0
    await http.close()


@pytest.mark.parametrize("mode", ["disabled", "permissive", "enforcing"])
async def test_connections_count_at_a_remoting_port(certificates: Certificates, mode: Any) -> None:
    def echo(request: RemotingCommand, _channel: RemotingChannel) -> Answer:
        return request.response(body=request.body)

    tls = ServerTls(
        certificate=str(certificates.server),
        key=str(certificates.server_key),
        mode=mode,
    )
    server = RemotingServer({1: echo}, tls=tls, max_connections_per_address=LIMIT)
    address = await server.listen("127.0.0.1", 0)
    port = int(address.rpartition(":")[2])
    await check_half_open(port, lambda: server.counted, lambda: ATTEMPTS - LIMIT)
    trusting = ssl.create_default_context(cafile=certificates.ca)
    for _ in range(2 * LIMIT):
        context = trusting if mode == "enforcing" else None
        reader, writer = await asyncio.open_connection("127.0.0.1", port, ssl=context)
        writer.write(RemotingCommand(1, body=b"hello").encode())
        assert (await reader.readexactly(4)) != b""
        writer.close()
        with suppress(ConnectionError):
            await writer.wait_closed()
        await eventually(lambda: not server.channels)
    await server.close(grace_s=0)
