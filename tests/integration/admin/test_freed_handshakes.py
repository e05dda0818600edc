"""Bytes that are no TLS handshake are freed at once, not by the garbage collector, at each port
with TLS.
"""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import Callable
from contextlib import AsyncExitStack, suppress
from pathlib import Path

import pytest
from aiohttp import web

from broker_core.remoting_server import RemotingServer
from broker_core.tls_settings import ServerTls
from proxy.admin.http_connections import HttpConnections
from proxy.downstream.port.load import Load
from proxy.downstream.port.server import ThriftServer
from proxy.settings.proxy_settings import LimitSettings
from testkit.certificates import Certificates, make_certificates
from testkit.eventually import eventually
from tests.support.allocations import kept_by

SIZE = 300_000
PAD = b"a" * SIZE


def hello() -> bytes:
    """Return the first message of a real handshake."""
    incoming, outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
    context = ssl.create_default_context()
    client = context.wrap_bio(incoming, outgoing, server_hostname="localhost")
    with suppress(ssl.SSLWantReadError):
        client.do_handshake()
    return outgoing.read()


STRANGERS = {
    "plain bytes": PAD,
    "a record of another version": b"\x16\x09\x09\x40\x00" + PAD,
    "a record that is too long": b"\x16\x03\x01\xff\xff" + PAD,
    "a hello that is garbage": b"\x16\x03\x01\x40\x00\x01\x00\x3f\xfc" + PAD,
    "a hello without end": b"\x16\x03\x01\x40\x00\x01\xff\xff\xff" + PAD,
    "garbage behind a hello": hello() + PAD,
    "records behind a hello": hello() + (b"\x16\x03\x03\x40\x00" + bytes(16384)) * 18,
    "an alert": b"\x15\x03\x01\x00\x02\x02\x28" + PAD,
}


async def listening(
    stack: AsyncExitStack, kind: str, certificates: Certificates
) -> tuple[int, Callable[[], int]]:
    """Listen; return the port and the number of counted connections."""
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    context.load_cert_chain(certificates.server, certificates.server_key)
    limits = LimitSettings()
    if kind == "remoting":
        files = {"certificate": str(certificates.server), "key": str(certificates.server_key)}
        remoting = RemotingServer({}, tls=ServerTls(**files))
        address = await remoting.listen("127.0.0.1", 0)
        stack.push_async_callback(remoting.close, grace_s=0)
        return int(address.rpartition(":")[2]), lambda: remoting.counted
    if kind == "thrift":
        thrift = ThriftServer({}, limits)
        port = await thrift.listen("127.0.0.1", 0, tls=lambda: context)
        stack.push_async_callback(thrift.close, grace_s=0)
        return port, lambda: thrift.counted
    connections = HttpConnections(limits, Load(limits.max_inflight_bytes))

    async def answer(_request: web.BaseRequest) -> web.Response:
        return web.Response()

    server = web.Server(answer)
    listener = await asyncio.get_running_loop().create_server(
        connections.factory(server, tls=lambda: context), "127.0.0.1", 0
    )
    stack.callback(listener.close)
    stack.push_async_callback(server.shutdown)
    return listener.sockets[0].getsockname()[1], lambda: connections.counted


@pytest.mark.sockets
@pytest.mark.parametrize("kind", ["remoting", "thrift", "http"])
async def test_bytes_that_are_no_handshake_are_freed_without_the_collector(
    tmp_path: Path, kind: str
) -> None:
    kept = {}
    async with AsyncExitStack() as stack:
        port, counted = await listening(stack, kind, make_certificates(tmp_path))
        for name, sent in STRANGERS.items():

            async def send(sent: bytes = sent) -> None:
                reader, writer = await asyncio.open_connection("127.0.0.1", port)
                with suppress(ConnectionError, TimeoutError):
                    writer.write(sent)
                    async with asyncio.timeout(0.2):
                        await reader.read()
                writer.transport.abort()
                await eventually(lambda: not counted())

            kept[name] = await kept_by(send, limit=SIZE, times=5)
    assert {name: size for name, size in kept.items() if size > SIZE} == {}
