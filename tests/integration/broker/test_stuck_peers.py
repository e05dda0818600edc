"""Peers of brokers and nameservers that stop half-way, or are too many."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import structlog

from broker_core.remoting.command import RemotingCommand
from broker_core.remoting_channel import Answer, RemotingChannel
from broker_core.remoting_server import RemotingServer
from testkit.eventually import eventually

ECHO, BIG = 1, 2


class Peer:
    """One raw connection."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader = reader
        self.writer = writer

    def send(self, code: int, *, body: bytes = b"") -> None:
        """Write a request."""
        self.writer.write(RemotingCommand(code, opaque=1, body=body).encode())

    async def echoed(self) -> bool:
        """Check that the connection is alive."""
        self.send(ECHO)
        async with asyncio.timeout(20):
            length = int.from_bytes(await self.reader.readexactly(4))
            await self.reader.readexactly(length)
        return True

    async def ended(self) -> bool:
        """Return whether the server has ended the connection, after reading earlier data."""
        try:
            async with asyncio.timeout(20):
                while await self.reader.read(1 << 16):
                    pass
        except ConnectionError:
            return True
        return True


@asynccontextmanager
async def serving(**times: float) -> AsyncIterator[tuple[RemotingServer, int]]:
    def echo(request: RemotingCommand, _channel: RemotingChannel) -> Answer:
        return request.response()

    def big(request: RemotingCommand, _channel: RemotingChannel) -> Answer:
        return request.response(body=bytes(15 << 20))

    server = RemotingServer({ECHO: echo, BIG: big}, **times)  # type: ignore[arg-type]
    try:
        yield server, int((await server.listen("127.0.0.1", 0)).rpartition(":")[2])
    finally:
        await server.close()


@asynccontextmanager
async def connect(port: int, *, receive_buffer: int | None = None) -> AsyncIterator[Peer]:
    with socket.socket() as connection:
        connection.setblocking(False)
        if receive_buffer is not None:
            connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, receive_buffer)
        await asyncio.get_running_loop().sock_connect(connection, ("127.0.0.1", port))
        reader, writer = await asyncio.open_connection(sock=connection, limit=1024)
        try:
            yield Peer(reader, writer)
        finally:
            writer.transport.abort()


async def test_a_request_that_does_not_end_costs_its_connection_and_silence_does_not() -> None:
    """A byte now and then does not complete it; large requests in pieces are served."""
    whole = RemotingCommand(ECHO, opaque=1, body=bytes(1_000_000)).encode()
    async with (
        serving(stuck_s=2.6) as (server, port),
        connect(port) as drip,
        connect(port) as idle,
        connect(port) as large,
    ):
        assert await idle.echoed()
        with structlog.testing.capture_logs() as logs:
            for number in range(40):
                drip.writer.write(whole[number : number + 1])
                large.writer.write(whole)  # each is complete in time, though never all are
                large.writer.write(whole[:100_000])
                await asyncio.sleep(0.08)
                large.writer.write(whole[100_000:])
                for _ in range(2):
                    length = int.from_bytes(await large.reader.readexactly(4))
                    await large.reader.readexactly(length)
            assert await drip.ended()
        [line] = [each for each in logs if each["event"] == "peer is stuck, disconnected"]
        assert line["why"] == "its request was incomplete for too long"
        assert await idle.echoed()
        assert await large.echoed()
        assert len(server.channels) == 2


async def test_answers_that_stay_unread_cost_their_connection() -> None:
    async with (
        serving(stuck_s=0.4) as (server, port),
        connect(port, receive_buffer=4096) as slow,
        connect(port) as good,
    ):
        with structlog.testing.capture_logs() as logs:
            slow.send(BIG)
            assert await good.echoed()
            await eventually(lambda: len(server.channels) == 1)
        assert [line["why"] for line in logs] == ["it does not read its answers"]
        assert await good.echoed()


async def test_a_reader_that_reads_in_time_stays() -> None:
    async with serving(stuck_s=30) as (_, port), connect(port) as peer:
        for _ in range(2):
            peer.send(BIG)
            async with asyncio.timeout(30):
                length = int.from_bytes(await peer.reader.readexactly(4))
                assert len(await peer.reader.readexactly(length)) > 15 << 20
        assert await peer.echoed()


async def test_connections_over_the_limit_are_closed_and_others_continue() -> None:
    async with serving(max_connections=2) as (server, port):
        async with connect(port) as one, connect(port) as two:
            assert await one.echoed()
            assert await two.echoed()
            async with connect(port) as three:
                three.send(ECHO)
                assert await three.ended()
            assert await one.echoed()
        await eventually(lambda: not server.channels)
        async with connect(port) as three:
            assert await three.echoed()
