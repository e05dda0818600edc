"""TLS on the remoting ports: modes, trusted clients, trusted servers, on both loops."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from structlog.testing import capture_logs

from broker_core.client.connection_pool import ConnectionPool
from broker_core.errors import ConnectionLost, TlsError
from broker_core.remoting.command import RemotingCommand
from broker_core.remoting.connection import RemotingConnection, Role
from broker_core.remoting_server import RemotingServer
from broker_core.tasks import cancel_and_wait, spawn
from broker_core.tls import ClientContext, LiveContext, follow
from broker_core.tls_settings import ClientTls
from testkit.certificates import Certificates, make_certificates, replace_file
from testkit.eventually import eventually
from tests.integration.broker.remoting_tls import (
    ECHO,
    LOOPS,
    Run,
    ask,
    files,
    serving,
    trusting,
    with_own,
)


@pytest.fixture(params=LOOPS)
def run(request: pytest.FixtureRequest) -> Run:
    return LOOPS[request.param]


@pytest.fixture
def certificates(tmp_path: Path) -> Certificates:
    return make_certificates(tmp_path)


# ---- modes --------------------------------------------------------------------------------------


def test_enforcing_serves_tls_and_refuses_plain_connections(
    run: Run, certificates: Certificates
) -> None:
    async def scene() -> None:
        async with serving(files(certificates)) as (_, address):
            assert await ask(address, trusting(certificates), bytes(9_000_000)) == bytes(9_000_000)
            with capture_logs() as said, pytest.raises(ConnectionLost):
                await ask(address, None)
            assert [each["event"] for each in said] == [
                "plain connection refused: this port requires TLS"
            ]
            assert await ask(address, trusting(certificates)) == b"hello"

    run(scene())


def test_permissive_serves_both_on_one_port(run: Run, certificates: Certificates) -> None:
    async def scene() -> None:
        async with serving(files(certificates, mode="permissive")) as (server, address):
            plain, secret = ConnectionPool(), ConnectionPool(tls=client_of(certificates))
            for pool in (plain, secret):
                for body in (b"hello", bytes(9_000_000)):
                    request = RemotingCommand(ECHO, body=body)
                    answer = await pool.request(address, request, timeout_s=10)
                    assert answer.body == body
            assert len(server.channels) == 2
            for pool in (plain, secret):
                await pool.close()
            await eventually(lambda: not server.channels)

    run(scene())


def client_of(certificates: Certificates) -> ClientContext:
    return ClientContext(trusting(certificates), "client_tls")


def test_permissive_takes_a_plain_frame_that_comes_byte_by_byte(
    run: Run, certificates: Certificates
) -> None:
    async def scene() -> None:
        async with serving(files(certificates, mode="permissive")) as (_, address):
            host, _, port = address.rpartition(":")
            reader, writer = await asyncio.open_connection(host, int(port))
            connection = RemotingConnection(Role.CLIENT)
            for byte in connection.send(RemotingCommand(ECHO, body=b"slow")):
                writer.write(bytes([byte]))
                await writer.drain()
                await asyncio.sleep(0)
            while (answer := connection.next_command()) is None:
                connection.receive_data(await reader.read(1000))
            assert answer.body == b"slow"
            writer.close()

    run(scene())


def test_disabled_serves_plain_connections_alone(run: Run, certificates: Certificates) -> None:
    async def scene() -> None:
        async with serving(files(certificates, mode="disabled")) as (_, address):
            assert await ask(address, None) == b"hello"
            with pytest.raises(ConnectionLost, match="cannot connect to"):
                await ask(address, trusting(certificates))

    run(scene())


def test_an_address_that_cannot_be_had_is_named(run: Run, certificates: Certificates) -> None:
    async def scene() -> None:
        async with serving(files(certificates)) as (_, address):
            host, _, port = address.rpartition(":")
            other = RemotingServer({}, tls=files(certificates))
            with pytest.raises(
                OSError, match=f"cannot listen on {address}: Address already in use"
            ):
                await other.listen(host, int(port))
            await other.close()
            assert await ask(address, trusting(certificates)) == b"hello"

    run(scene())


# ---- clients that a port trusts ------------------------------------------------------------------


def test_a_client_has_to_show_a_certificate_of_the_authority(
    run: Run, certificates: Certificates
) -> None:
    stranger = {"certificate": certificates.other_client, "key": certificates.other_client_key}
    late = {"certificate": certificates.expired_client, "key": certificates.expired_client_key}

    async def scene() -> None:
        async with serving(files(certificates, client_ca=certificates.ca)) as (server, address):
            for wrong in ({}, stranger, late):
                with pytest.raises(ConnectionLost):
                    await ask(address, trusting(certificates, **wrong))
            assert not server.channels
            assert await ask(address, with_own(certificates)) == b"hello"

    run(scene())


# ---- servers that a client trusts ----------------------------------------------------------------


@pytest.mark.parametrize(
    ("shown", "verify", "why"),
    [
        ("server", "full", None),
        ("named_server", "full", "IP address mismatch"),
        ("named_server", "ca", None),
        ("expired_server", "full", "certificate has expired"),
        ("expired_server", "ca", "certificate has expired"),
        ("expired_server", "none", None),
    ],
)
def test_a_client_trusts_the_configured_servers(
    run: Run, certificates: Certificates, shown: str, verify: str, why: str | None
) -> None:
    pair = {
        "certificate": getattr(certificates, shown),
        "key": getattr(certificates, f"{shown}_key"),
    }

    async def scene() -> None:
        async with serving(files(certificates, **pair)) as (_, address):
            tls = trusting(certificates, verify=verify)
            if why is None:
                assert await ask(address, tls) == b"hello"
            else:
                with pytest.raises(ConnectionLost, match=rf"cannot connect to .* by TLS: .*{why}"):
                    await ask(address, tls)

    run(scene())


def test_a_server_of_another_authority_receives_nothing(
    run: Run, certificates: Certificates
) -> None:
    async def scene() -> None:
        async with serving(files(certificates)) as (_, address):
            for verify in ("full", "ca"):
                tls = trusting(certificates, ca=certificates.other_ca, verify=verify)
                with pytest.raises(ConnectionLost, match="unable to get local issuer certificate"):
                    await ask(address, tls)
            anybody = ClientTls(verify="none")
            assert await ask(address, anybody) == b"hello"

    run(scene())


# ---- files that change --------------------------------------------------------------------------


async def test_a_port_whose_files_fail_in_another_way_keeps_no_other_from_its_new_files() -> None:
    reloaded: list[str] = []

    class Port:
        """A port with certificates; *fails*: there is a bug with it."""

        def __init__(self, setting: str, *, fails: bool = False) -> None:
            self.setting, self._fails = setting, fails

        def reload(self) -> bool:
            if self._fails:
                raise ValueError("a bug")
            reloaded.append(self.setting)
            return True

    ports: Any = [Port("listen.tls", fails=True), Port("listen.http_tls")]
    following = spawn(follow(ports, look_s=1), name="follow")
    await eventually(lambda: len(reloaded) == 2)
    await cancel_and_wait(following)
    assert reloaded == ["listen.http_tls"] * 2


def test_new_connections_go_by_the_new_files_and_old_ones_stay(
    run: Run, certificates: Certificates, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Certificate, key and authority, on both sides; a removed authority is no longer trusted."""
    monkeypatch.setattr(follow, "__kwdefaults__", {"look_s": 0.02})
    folder = certificates.ca.parent / "before"
    folder.mkdir()
    for path in list(certificates.ca.parent.glob("*.*")):
        (folder / path.name).write_bytes(path.read_bytes())
    before = replace(
        certificates,
        ca=folder / "ca.pem",
        client=folder / "client.pem",
        client_key=folder / "client.key",
    )

    async def scene() -> None:
        live = ClientContext(with_own(certificates), "client_tls")
        old, new = ConnectionPool(tls=live), ConnectionPool(tls=live)
        hello = RemotingCommand(ECHO, body=b"hello")
        async with serving(files(certificates, client_ca=certificates.ca)) as (_, address):
            await old.request(address, hello, timeout_s=10)
            make_certificates(certificates.ca.parent)

            async def shown() -> bool:
                try:
                    return await ask(address, with_own(certificates)) == b"hello"
                except ConnectionLost:
                    return False

            async with asyncio.timeout(20):
                while not await shown():  # noqa: ASYNC110 # no event to wait for
                    await asyncio.sleep(0.02)
            assert (await new.request(address, hello, timeout_s=10)).body == b"hello"
            with pytest.raises(ConnectionLost):  # it does not trust the new server's authority
                await ask(address, with_own(before))
            with pytest.raises(ConnectionLost):  # the new server does not trust its authority
                await ask(address, replace_ca(with_own(before), certificates))
            assert (await old.request(address, hello, timeout_s=10)).body == b"hello"
            for pool in (old, new):
                await pool.close()

    run(scene())


def replace_ca(tls: ClientTls, certificates: Certificates) -> ClientTls:
    return tls.model_copy(update={"ca": str(certificates.ca)})


def test_a_client_goes_on_with_the_old_files_while_new_ones_are_wrong(
    certificates: Certificates,
) -> None:
    live = ClientContext(with_own(certificates), "client_tls")
    before = live.newest()
    replace_file(certificates.client, b"nothing")
    with capture_logs() as said:
        assert live.newest() is before
        assert live.newest() is before
    assert ["client_tls: " in each["reason"] for each in said] == [True]
    make_certificates(certificates.ca.parent)
    assert live.newest() is not before


def test_files_that_cannot_be_used_are_named(certificates: Certificates, tmp_path: Path) -> None:
    nothing = tmp_path / "nothing.pem"
    for wrong, sentence in (
        ({"certificate": nothing}, r"tls\.certificate: cannot read .*nothing\.pem: No such file"),
        ({"key": certificates.client_key}, r"tls: .* are no certificate and its unencrypted key"),
        ({"client_ca": certificates.client_key}, r"tls\.client_ca: .* no PEM certificate"),
    ):
        with pytest.raises(TlsError, match=sentence):
            RemotingServer({}, tls=files(certificates, **wrong))
    with pytest.raises(TlsError, match=r"client_tls\.ca: cannot read"):
        ClientContext(trusting(certificates, ca=nothing), "client_tls")
    with pytest.raises(ValueError, match="certificate and key together"):
        ClientTls(certificate="client.pem")
    with pytest.raises(TlsError, match="the key has a password"):
        LiveContext(files(certificates, key=with_password(certificates.server_key)), "tls")


def with_password(key: Path) -> Path:
    from cryptography.hazmat.primitives import serialization

    plain = serialization.load_pem_private_key(key.read_bytes(), None)
    locked = key.with_suffix(".locked")
    locked.write_bytes(
        plain.private_bytes(
            serialization.Encoding.PEM,
            serialization.PrivateFormat.PKCS8,
            serialization.BestAvailableEncryption(b"secret"),
        )
    )
    return locked
