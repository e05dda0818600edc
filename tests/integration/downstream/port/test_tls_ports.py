"""TLS on the HTTP port, and certificates that change while a proxy runs."""

from __future__ import annotations

import asyncio
import os
import ssl
import urllib.request
from pathlib import Path
from typing import Any

import pytest

from broker_core.errors import TlsError
from broker_core.tls import LiveContext, follow
from proxy.cli.connect import ADMIN_CA, ask_proxy
from proxy.errors import OrderlaneError
from proxy.settings.proxy_settings import TlsSettings
from proxy.settings.types import host_port
from testkit.certificates import Certificates, make_certificates, replace_file
from testkit.eventually import eventually
from testkit.gateway import run_gateway


@pytest.fixture
def certificates(tmp_path: Path) -> Certificates:
    folder = tmp_path / "certificates"
    folder.mkdir()
    return make_certificates(folder)


def files_of(certificates: Certificates, *, client_ca: bool = False) -> dict[str, str]:
    files = {"certificate": str(certificates.server), "key": str(certificates.server_key)}
    return files | ({"client_ca": str(certificates.ca)} if client_ca else {})


async def shown_at(address: str) -> str:
    """Return the certificate presented there, in PEM, without verifying it."""
    host, port = host_port(address)
    return await asyncio.to_thread(ssl.get_server_certificate, (host, port), timeout=10)


def leaf(certificates: Certificates) -> str:
    return certificates.server.read_text().partition("-----END CERTIFICATE-----")[0].strip()


# ---- the HTTP port ------------------------------------------------------------------------------


async def test_the_http_port_speaks_tls_and_verbs_trust_its_authority(
    tmp_path: Path, certificates: Certificates, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with run_gateway(tmp_path) as gateway:
        _, at = await gateway.start_proxy(**{"listen.http_tls": files_of(certificates)})
        with pytest.raises(OrderlaneError, match=f"no proxy answers .*{ADMIN_CA}"):
            await asyncio.to_thread(ask_proxy, at.http, "/healthz")
        monkeypatch.setenv(ADMIN_CA, str(certificates.other_ca))
        with pytest.raises(OrderlaneError, match="CERTIFICATE_VERIFY_FAILED"):
            await asyncio.to_thread(ask_proxy, at.http, "/healthz")
        monkeypatch.setenv(ADMIN_CA, str(tmp_path / "nothing"))
        with pytest.raises(OrderlaneError, match=f"{ADMIN_CA}: .*cannot be read"):
            await asyncio.to_thread(ask_proxy, at.http, "/healthz")
        monkeypatch.setenv(ADMIN_CA, str(certificates.ca))
        assert await asyncio.to_thread(ask_proxy, at.http, "/healthz") == b"ok\n"


async def test_a_certificate_identifies_the_caller_and_probes_need_none(
    tmp_path: Path, certificates: Certificates
) -> None:
    known: dict[str, Any] = {
        "listen.http": "0.0.0.0:0",
        "listen.http_tls": files_of(certificates, client_ca=True),
        "certificates": [{"name": "ops", "common_name": certificates.client_name}],
        "access": [{"principals": ["ops"], "may": ["admin"]}],
    }
    async with run_gateway(tmp_path) as gateway:
        _, at = await gateway.start_proxy(**known)
        port = at.http.rpartition(":")[2]

        def ask(path: str, *, own: bool) -> int:
            context = certificates.client_context(own=own)
            opener = urllib.request.build_opener(
                urllib.request.HTTPSHandler(context=context), Unraised()
            )
            with opener.open(f"https://127.0.0.1:{port}{path}", timeout=10) as answer:
                return int(answer.status)

        assert await asyncio.to_thread(ask, "/healthz", own=False) == 200
        assert await asyncio.to_thread(ask, "/api/groups", own=False) == 401
        assert await asyncio.to_thread(ask, "/api/groups", own=True) == 200


class Unraised(urllib.request.HTTPErrorProcessor):
    """Returns error responses instead of raising them."""

    def http_response(self, request: Any, response: Any) -> Any:
        return response

    https_response = http_response


# ---- certificates that change -------------------------------------------------------------------


async def test_new_connections_are_shown_the_new_certificate_and_old_ones_stay(
    tmp_path: Path, certificates: Certificates, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(follow, "__kwdefaults__", {"look_s": 0.05})
    before = leaf(certificates)
    tls = {"listen.tls": files_of(certificates), "listen.http_tls": files_of(certificates)}
    async with run_gateway(tmp_path) as gateway:
        _, at = await gateway.start_proxy(**tls)
        trusting = certificates.client_context()
        reader, writer = await asyncio.open_connection(*host_port(at.http), ssl=trusting)
        assert before in await shown_at(at.thrift)

        make_certificates(certificates.ca.parent)
        after = leaf(certificates)
        assert after != before
        for address in (at.thrift, at.http):
            async with asyncio.timeout(20):
                while True:
                    if after in await shown_at(address):
                        break
                    await asyncio.sleep(0.05)
        writer.write(b"GET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\n")
        assert b"200 OK" in await reader.readline()
        writer.close()


async def test_a_broken_file_is_logged_and_the_old_certificate_stays(
    tmp_path: Path,
    certificates: Certificates,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setattr(follow, "__kwdefaults__", {"look_s": 0.05})
    before = leaf(certificates)
    said = ""

    def told() -> bool:
        nonlocal said
        said += "".join(capsys.readouterr())
        return "certificate not reloaded, the previous one stays in use" in said

    async with run_gateway(tmp_path) as gateway:
        _, at = await gateway.start_proxy(**{"listen.tls": files_of(certificates)})
        replace_file(certificates.server, b"nothing")
        await eventually(told)
        assert before in await shown_at(at.thrift)


def test_half_a_change_changes_nothing(certificates: Certificates) -> None:
    """A new key does not match the old certificate."""
    tls = LiveContext(TlsSettings(**files_of(certificates)), "listen.tls")  # type: ignore[arg-type]
    old_key = certificates.server_key.read_bytes()
    assert not tls.reload()
    replace_file(certificates.server_key, certificates.client_key.read_bytes())
    for _ in range(2):
        with pytest.raises(TlsError, match=r"listen\.tls: .* no certificate and its"):
            tls.reload()
    replace_file(certificates.server_key, old_key)
    assert tls.reload()
    assert not tls.reload()


def test_a_handshake_under_way_keeps_the_files_with_which_it_began(
    certificates: Certificates,
) -> None:
    files = files_of(certificates, client_ca=True)
    tls = LiveContext(TlsSettings(**files), "listen.tls")  # type: ignore[arg-type]
    before = tls.newest()
    trusted = before.get_ca_certs(binary_form=True)
    replace_file(certificates.ca, certificates.other_ca.read_bytes())
    assert tls.reload()
    assert before.get_ca_certs(binary_form=True) == trusted
    assert tls.newest().get_ca_certs(binary_form=True) not in ([], trusted)


def test_a_file_is_read_again_if_only_its_content_differs(certificates: Certificates) -> None:
    """Two writes in place within a tick of the file system's clock, of the same length."""
    files = files_of(certificates, client_ca=True)
    content = certificates.ca.read_bytes() + b"# 1\n"
    certificates.ca.write_bytes(content)
    tls = LiveContext(TlsSettings(**files), "listen.tls")  # type: ignore[arg-type]
    was = certificates.ca.stat()
    certificates.ca.write_bytes(content.replace(b"# 1", b"# 2"))
    os.utime(certificates.ca, ns=(was.st_atime_ns, was.st_mtime_ns))
    assert tls.reload()
    assert not tls.reload()


async def test_a_removed_authority_is_no_longer_trusted(
    tmp_path: Path, certificates: Certificates, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(follow, "__kwdefaults__", {"look_s": 0.05})
    trusted = tmp_path / "clients.pem"
    trusted.write_bytes(certificates.ca.read_bytes())
    tls = certificates.client_context(own=True)
    async with run_gateway(tmp_path) as gateway:
        files = files_of(certificates) | {"client_ca": str(trusted)}
        _, at = await gateway.start_proxy(**{"listen.tls": files})
        assert await first_byte(at.thrift, tls) == b"\0"
        replace_file(trusted, certificates.other_ca.read_bytes())
        async with asyncio.timeout(20):
            while await is_served(at.thrift, tls):  # noqa: ASYNC110 # no event to wait for
                await asyncio.sleep(0.05)


async def test_an_expired_certificate_of_a_client_is_refused(
    tmp_path: Path, certificates: Certificates
) -> None:
    async with run_gateway(tmp_path) as gateway:
        files = files_of(certificates, client_ca=True)
        _, at = await gateway.start_proxy(**{"listen.tls": files})
        tls = certificates.client_context()
        tls.load_cert_chain(certificates.expired_client, certificates.expired_client_key)
        with pytest.raises((ssl.SSLError, ConnectionError, asyncio.IncompleteReadError)):
            await first_byte(at.thrift, tls)
        tls = certificates.client_context(own=True)
        assert await first_byte(at.thrift, tls) == b"\0"


async def first_byte(address: str, tls: ssl.SSLContext) -> bytes:
    """Return the first byte of the answer to a call of an unknown method."""
    reader, writer = await asyncio.open_connection(*host_port(address), ssl=tls)
    writer.write(b"\0\0\0\6\x82\x21\x01\x01x\0")
    try:
        return await reader.readexactly(1)
    finally:
        writer.close()


async def is_served(address: str, tls: ssl.SSLContext) -> bool:
    try:
        return await first_byte(address, tls) == b"\0"
    except (ssl.SSLError, ConnectionError, asyncio.IncompleteReadError):
        return False
