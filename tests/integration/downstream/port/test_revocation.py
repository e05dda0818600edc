"""Certificate revocation lists on the Thrift port, the HTTP port and the ports of brokers."""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Any

import pytest

from broker_core.errors import TlsError
from broker_core.remoting_server import RemotingServer
from broker_core.tls import LiveContext, read_revocations
from broker_core.tls_settings import ServerTls
from proxy.errors import OrderlaneError
from proxy.settings.types import host_port
from testkit.eventually import eventually
from testkit.gateway import GROUP, Gateway, run_gateway
from testkit.revocation import RevokingAuthority
from testkit.thrift_client import COMPACT, ThriftClient

pytestmark = pytest.mark.sockets


@pytest.fixture
def authority(tmp_path: Path) -> RevokingAuthority:
    made = RevokingAuthority(tmp_path)
    for name in ("ann", "bob"):
        made.client(name)
    made.revoke(["bob"])
    return made


@asynccontextmanager
async def client_of(at: str, tls: ssl.SSLContext) -> AsyncIterator[ThriftClient]:
    host, port = host_port(at)
    reader, writer = await asyncio.open_connection(host, port, ssl=tls)
    client = ThriftClient(reader, writer, COMPACT)
    try:
        yield client
    finally:
        client.abort()


async def served(at: str, tls: ssl.SSLContext) -> bool:
    try:
        async with client_of(at, tls) as client:
            await client.pull(GROUP)
    except (ssl.SSLError, ConnectionError, asyncio.IncompleteReadError):
        return False
    return True


@pytest.mark.parametrize("version", [ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3])
async def test_a_revoked_certificate_is_refused(
    tmp_path: Path, authority: RevokingAuthority, version: ssl.TLSVersion
) -> None:
    async with run_gateway(tmp_path) as gateway:
        _, at = await gateway.start_proxy(**{"listen.tls": authority.settings()})
        assert await served(at.thrift, authority.client("ann", tls=version))
        assert not await served(at.thrift, authority.client("bob", tls=version))


async def open_until_revoked(gateway: Gateway, authority: RevokingAuthority) -> None:
    _, at = await gateway.start_proxy(**{"listen.tls": authority.settings()})
    async with client_of(at.thrift, authority.client("ann")) as client:
        await client.pull(GROUP)
        authority.revoke(["ann", "bob"])
        assert await client.closed_by_server(within_s=30)
    assert not await served(at.thrift, authority.client("ann"))


async def test_open_connections_end_when_their_certificate_is_revoked(
    tmp_path: Path, authority: RevokingAuthority
) -> None:
    async with run_gateway(tmp_path) as gateway:
        await open_until_revoked(gateway, authority)


async def test_a_list_that_has_ended_admits_none_of_its_clients(
    tmp_path: Path, authority: RevokingAuthority
) -> None:
    authority.revoke([], ended=True)
    async with run_gateway(tmp_path) as gateway:
        _, at = await gateway.start_proxy(**{"listen.tls": authority.settings()})
        assert not await served(at.thrift, authority.client("ann"))


async def test_a_resumed_session_is_checked_as_well(
    tmp_path: Path, authority: RevokingAuthority
) -> None:
    """The handshake of a session that is resumed verifies no certificate."""
    authority.revoke([])
    live = LiveContext(ServerTls(**authority.settings()), "tls")
    assert not live.is_revoked(None)
    shown = ssl.PEM_cert_to_DER_cert((tmp_path / "bob.pem").read_text().split("\n\n")[0])
    assert not live.is_revoked(shown)
    authority.revoke(["bob"])
    assert live.reload()
    assert live.is_revoked(shown)
    assert live.newest().num_tickets == 0


@pytest.mark.parametrize(
    "content", ["", "nothing", "-----BEGIN X509 CRL-----\nAA==\n-----END X509 CRL-----"]
)
def test_a_file_without_a_valid_list_is_refused_with_a_sentence(
    tmp_path: Path, content: str
) -> None:
    path = tmp_path / "list.pem"
    path.write_text(content)
    with pytest.raises(TlsError, match=r"^listen\.tls\.crl_file: .*list"):
        read_revocations("listen.tls.crl_file", str(path))
    with pytest.raises(TlsError, match="cannot read"):
        read_revocations("listen.tls.crl_file", str(tmp_path / "missing.pem"))


async def test_an_invalid_list_ends_the_start(tmp_path: Path, authority: RevokingAuthority) -> None:
    authority.crl.write_text("nothing")
    async with run_gateway(tmp_path) as gateway:
        with pytest.raises(OrderlaneError, match=r"listen\.tls\.crl_file: .* no revocation list"):
            await gateway.start_proxy(**{"listen.tls": authority.settings()})


async def http_status(at: str, tls: ssl.SSLContext) -> bytes:
    host, port = host_port(at)
    try:
        reader, writer = await asyncio.open_connection(host, port, ssl=tls)
        writer.write(b"GET /healthz HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n")
        try:
            line = await reader.readline()
        finally:
            writer.transport.abort()
    except (ssl.SSLError, ConnectionError):
        return b""
    return line


async def test_the_http_port_refuses_revoked_certificates(
    tmp_path: Path, authority: RevokingAuthority
) -> None:
    async with run_gateway(tmp_path) as gateway:
        _, at = await gateway.start_proxy(**{"listen.http_tls": authority.settings()})
        assert b"200" in await http_status(at.http, authority.client("ann"))
        assert await http_status(at.http, authority.client("bob")) == b""


async def test_remoting_ports_refuse_and_close_revoked_certificates(
    authority: RevokingAuthority,
) -> None:
    server = RemotingServer({}, tls=ServerTls(**authority.settings()))
    host, port = host_port(await server.listen("127.0.0.1", 0))
    reader, writer = await asyncio.open_connection(host, port, ssl=authority.client("ann"))
    await eventually(lambda: len(server.channels) == 1)
    authority.revoke(["ann", "bob"])
    async with asyncio.timeout(30):
        with suppress(ConnectionError):
            assert await reader.read() == b""
    writer.close()
    with suppress(ssl.SSLError, ConnectionError):
        reader, stranger = await asyncio.open_connection(host, port, ssl=authority.client("bob"))
        try:
            assert await reader.read() == b""
        finally:
            stranger.transport.abort()
    assert not server.channels
    await server.close()


def test_a_list_needs_an_authority() -> None:
    given: dict[str, Any] = {"certificate": "c", "key": "k", "crl_file": "l"}
    with pytest.raises(ValueError, match="client_ca"):
        ServerTls(**given)
