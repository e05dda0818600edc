"""Strangers on a remoting port with TLS only end their own connection, on both loops."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest
from structlog.testing import capture_logs

from broker_core.errors import ConnectionLost
from broker_core.remoting.command import RemotingCommand
from broker_core.remoting.connection import RemotingConnection, Role
from broker_core.remoting_channel import Answer, RemotingChannel
from broker_core.remoting_server import RemotingServer
from testkit.certificates import Certificates, make_certificates
from testkit.eventually import eventually
from tests.integration.broker.remoting_tls import LOOPS, Run, ask, files, serving, trusting

HELD = 2


@pytest.fixture(params=LOOPS)
def run(request: pytest.FixtureRequest) -> Run:
    return LOOPS[request.param]


@pytest.fixture
def certificates(tmp_path: Path) -> Certificates:
    return make_certificates(tmp_path)


async def answered(address: str, certificates: Certificates) -> bool:
    try:
        return await ask(address, trusting(certificates)) == b"hello"
    except ConnectionLost:
        return False


@pytest.mark.parametrize("mode", ["enforcing", "permissive"])
def test_a_silent_client_is_disconnected_and_delays_no_other(
    run: Run, certificates: Certificates, mode: str
) -> None:
    async def scene() -> None:
        tls = files(certificates, mode=mode)
        async with serving(tls, idle_s=0.2) as (server, address):
            host, _, port = address.rpartition(":")
            reader, writer = await asyncio.open_connection(host, int(port))
            async with asyncio.timeout(30):
                while not await answered(address, certificates):  # counted as one of them
                    pass
            assert await reader.read() == b""
            writer.close()
            await eventually(lambda: not server.channels)

    run(scene())


@pytest.mark.parametrize("mode", ["enforcing", "permissive"])
def test_who_says_nothing_counts_as_a_connection(
    run: Run, certificates: Certificates, mode: str
) -> None:
    async def scene() -> None:
        async with serving(files(certificates, mode=mode), max_connections=2) as (_, address):
            host, _, port = address.rpartition(":")
            silent = [await asyncio.open_connection(host, int(port)) for _ in range(2)]
            with pytest.raises(ConnectionLost), capture_logs() as said:
                await ask(address, trusting(certificates))
            assert [each["event"] for each in said] == ["connection refused: too many connections"]
            silent[0][1].close()
            await silent[0][1].wait_closed()
            async with asyncio.timeout(30):
                while not await answered(address, certificates):
                    pass
            silent[1][1].close()

    run(scene())


def test_a_handshake_that_is_never_finished_does_not_hold_the_end_up(
    run: Run, certificates: Certificates
) -> None:
    async def scene() -> None:
        async with serving(files(certificates)) as (server, address):
            host, _, port = address.rpartition(":")
            reader, writer = await asyncio.open_connection(host, int(port))
            writer.write(b"\x16\x03\x01\x02\x00")  # of a hello that never arrives
            assert await ask(address, trusting(certificates)) == b"hello"
            async with asyncio.timeout(20):
                await server.close(grace_s=0)
                assert await reader.read() == b""
            writer.close()

    run(scene())


def test_bytes_that_only_begin_like_tls_end_that_connection_alone(
    run: Run, certificates: Certificates
) -> None:
    async def scene() -> None:
        async with serving(files(certificates)) as (server, address):
            host, _, port = address.rpartition(":")
            reader, writer = await asyncio.open_connection(host, int(port))
            with capture_logs() as said:
                writer.write(b"\x16" + bytes(100))
                await reader.read()  # an alert of TLS, perhaps
                await eventually(lambda: bool(said))
            assert [each["event"] for each in said] == ["TLS handshake failed, disconnected"]
            writer.close()
            assert not server.channels
            assert await ask(address, trusting(certificates)) == b"hello"

    run(scene())


def test_a_peer_that_lets_its_answers_pile_up_is_cut_off_with_tls_as_well(
    run: Run, certificates: Certificates
) -> None:
    async def scene() -> None:
        release = asyncio.Event()
        asked = 0

        async def held(request: RemotingCommand, channel: RemotingChannel) -> Answer:
            nonlocal asked
            asked += 1
            await release.wait()
            return request.response(body=bytes(1 << 20))

        server = RemotingServer({HELD: held}, tls=files(certificates))
        address = await server.listen("127.0.0.1", 0)
        host, _, port = address.rpartition(":")
        _, writer = await asyncio.open_connection(
            host, int(port), ssl=certificates.client_context(), limit=1
        )
        frame = RemotingConnection(Role.CLIENT).send(RemotingCommand(HELD))
        writer.write(frame * 100)
        await eventually(lambda: asked == 100)
        with capture_logs() as said:
            release.set()
            await eventually(lambda: bool(said) and not server.channels)
        assert [each["event"] for each in said] == ["peer does not read its answers, disconnected"]
        writer.close()
        await server.close()

    run(scene())
