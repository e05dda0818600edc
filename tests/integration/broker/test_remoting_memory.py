"""Memory of all connections to a broker or nameserver: incomplete requests, requests being handled
and unread answers have one limit each.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager

import pytest
import structlog

from broker_core.nameserver.server import NameServer
from broker_core.remoting.codes import ResponseCode
from broker_core.remoting.command import RemotingCommand, decode
from broker_core.remoting_channel import Answer, RemotingChannel
from broker_core.remoting_server import RemotingServer
from testkit.eventually import eventually

ECHO, HELD, BIG = 1, 2, 3
_MEGABYTE = 1 << 20
LIMIT = 8 * _MEGABYTE


class Peer:
    """One raw connection."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader, self.writer = reader, writer

    async def ask(self, code: int, *, body: bytes = b"") -> RemotingCommand:
        self.writer.write(RemotingCommand(code, opaque=1, body=body).encode())
        return await self.answer()

    async def answer(self) -> RemotingCommand:
        async with asyncio.timeout(20):
            length = int.from_bytes(await self._reader.readexactly(4))
            return decode(await self._reader.readexactly(length))


@asynccontextmanager
async def serving() -> AsyncIterator[tuple[RemotingServer, int, asyncio.Event]]:
    release = asyncio.Event()

    async def held(request: RemotingCommand, _channel: RemotingChannel) -> Answer:
        await release.wait()
        return request.response()

    def big(request: RemotingCommand, _channel: RemotingChannel) -> Answer:
        return request.response(body=bytes(_MEGABYTE))

    def echo(request: RemotingCommand, _channel: RemotingChannel) -> Answer:
        return request.response(body=request.body)

    handlers = {ECHO: echo, HELD: held, BIG: big}
    server = RemotingServer(handlers, max_inflight_bytes=LIMIT)
    try:
        yield server, int((await server.listen("127.0.0.1", 0)).rpartition(":")[2]), release
    finally:
        await server.close()


Connect = Callable[..., Awaitable[Peer]]


@pytest.fixture
async def connect() -> AsyncIterator[Connect]:
    opened: list[Peer] = []

    async def one(port: int, *, limit: int = 1 << 16) -> Peer:
        opened.append(Peer(*await asyncio.open_connection("127.0.0.1", port, limit=limit)))
        return opened[-1]

    yield one
    for each in opened:
        each.writer.close()


def half_a_frame(size_bytes: int, *, header: bool) -> bytes:
    """Return the beginning of a frame of twice the size, cut in its body or in its header."""
    if header:
        return (2 * _MEGABYTE).to_bytes(4) + (_MEGABYTE - 1).to_bytes(4) + bytes(size_bytes)
    return RemotingCommand(ECHO, body=bytes(2 * size_bytes)).encode()[:size_bytes]


@pytest.mark.parametrize("header", [False, True])
async def test_incomplete_requests_on_many_connections_stay_below_the_limit(
    connect: Connect, header: bool
) -> None:
    async with serving() as (server, port, _):
        honest = await connect(port)
        assert (await honest.ask(ECHO)).code == 0
        largest = 0
        strangers = []
        with structlog.testing.capture_logs() as logs:
            for _ in range(30):
                stranger = await connect(port)
                strangers.append(stranger)
                stranger.writer.write(half_a_frame(900_000, header=header))
                await asyncio.sleep(0.1)
                largest = max(largest, server.memory.buffered_bytes)
        assert 7 * _MEGABYTE < largest <= LIMIT
        assert server.memory.dropped >= 20
        assert len(server.channels) <= 11
        [line] = [each for each in logs if "disconnected" in each["event"]]
        assert line["event"] == "too many bytes in flight, disconnected"
        body = bytes(500_000)  # a whole request of an honest client has room
        assert (await honest.ask(ECHO, body=body)).body == body
        for each in (honest, *strangers):
            each.writer.close()
        await eventually(lambda: server.memory.buffered_bytes == 0)


async def test_answers_unread_on_many_connections_stay_below_the_limit(connect: Connect) -> None:
    async with serving() as (server, port, _):
        honest = await connect(port)
        strangers = [await connect(port, limit=1024) for _ in range(20)]
        for stranger in strangers:
            stranger.writer.write(RemotingCommand(BIG).encode() * 2)
            await asyncio.sleep(0.1)
            assert sum(each.buffered_bytes for each in server.channels) <= LIMIT
        assert server.memory.dropped > 5
        assert len((await honest.ask(BIG)).body) == _MEGABYTE
        assert (await honest.ask(ECHO)).code == 0


async def test_requests_being_handled_stay_below_the_limit_and_small_ones_are_served(
    connect: Connect,
) -> None:
    async with serving() as (server, port, release):
        peers = [await connect(port) for _ in range(20)]
        for each in peers:
            each.writer.write(RemotingCommand(HELD, body=bytes(_MEGABYTE)).encode())
        await eventually(lambda: server.memory.refused > 10)
        assert server.memory.handled_bytes <= LIMIT * 3 / 4
        answer = await peers[-1].answer()
        assert answer.code == ResponseCode.SYSTEM_BUSY
        assert "max_inflight_bytes (8388608): try again later" in (answer.remark or "")
        assert (await peers[-1].ask(ECHO)).code == 0
        for each in peers[:10]:  # their requests count until they are done
            each.writer.close()
        await asyncio.sleep(1)
        assert server.memory.handled_bytes > 5 * _MEGABYTE
        release.set()
        await eventually(lambda: server.memory.handled_bytes == 0)
        assert (await peers[-1].ask(ECHO, body=bytes(_MEGABYTE))).code == 0


async def test_a_nameserver_has_the_limit_too(connect: Connect) -> None:
    nameserver = NameServer()
    await nameserver.start()
    memory = nameserver.server.memory
    try:
        port = int(nameserver.address.rpartition(":")[2])
        strangers = [await connect(port) for _ in range(20)]
        for stranger in strangers:
            stranger.writer.write(half_a_frame(15 * _MEGABYTE // 2, header=False))
            stranger.writer.write(bytes(15 * _MEGABYTE // 2))
            await asyncio.sleep(0.1)
        assert memory.buffered_bytes < memory.limit_bytes == 256 * _MEGABYTE
        assert memory.dropped >= 2
    finally:
        await nameserver.close()
