"""RemotingServer and ConnectionPool over loopback."""

from __future__ import annotations

import asyncio
import contextlib
import gc
import socket
from collections.abc import AsyncIterator

import pytest

from broker_core import remoting_channel
from broker_core.client.connection_pool import ConnectionPool
from broker_core.errors import (
    BrokerError,
    ConnectionLost,
    InvalidCommand,
    LocalProtocolError,
    NotConnected,
    RequestTimeout,
)
from broker_core.late_answer import LateAnswer
from broker_core.remoting.command import RemotingCommand, SerializeType
from broker_core.remoting.connection import MAX_FRAME_BYTES
from broker_core.remoting_channel import Answer, RemotingChannel
from broker_core.remoting_server import RemotingServer
from broker_core.tasks import spawn
from testkit.eventually import eventually

ECHO, HELD, BROKEN, REFUSED, ASK_BACK, BIG, UNENCODABLE, HELD_BIG = range(1, 9)
LATE, GIVEN, LATE_REFUSED = range(9, 12)


class Peer:
    """A server with a handler for each kind of answer."""

    def __init__(self) -> None:
        self.release = asyncio.Event()
        self.seen: list[int] = []
        self.closed: list[RemotingChannel] = []
        handlers = {
            ECHO: self.echo,
            HELD: self.held,
            HELD_BIG: self.held_big,
            BROKEN: self.broken,
            REFUSED: self.refused,
            ASK_BACK: self.ask_back,
            BIG: lambda request, _: request.response(body=bytes(1 << 20)),
            UNENCODABLE: lambda request, _: request.response(70_000),  # no int16
            LATE: lambda request, _: self.late(request),
            GIVEN: self.given,
            LATE_REFUSED: self.late_refused,
        }
        self.waiting: list[tuple[RemotingCommand, LateAnswer]] = []
        self.cut = asyncio.Event()
        self.server = RemotingServer(handlers, on_closed=self.connection_closed)

    def connection_closed(self, channel: RemotingChannel) -> None:
        self.closed.append(channel)
        self.cut.set()

    def echo(self, request: RemotingCommand, channel: RemotingChannel) -> Answer:
        self.seen.append(request.opaque)
        return request.response(ext=request.ext, body=request.body)

    async def held(self, request: RemotingCommand, channel: RemotingChannel) -> Answer:
        await self.release.wait()
        return request.response(remark="released")

    async def held_big(self, request: RemotingCommand, channel: RemotingChannel) -> Answer:
        await self.release.wait()
        return request.response(body=bytes(1 << 20))

    def late(self, request: RemotingCommand) -> LateAnswer:
        late = LateAnswer()
        self.waiting.append((request, late))
        return late

    def given(self, request: RemotingCommand, channel: RemotingChannel) -> LateAnswer:
        late = LateAnswer()
        late.give(request.response(remark="at once"))
        return late

    def late_refused(self, request: RemotingCommand, channel: RemotingChannel) -> LateAnswer:
        late = LateAnswer()
        late.give(BrokerError(17, "no such topic"))
        return late

    def broken(self, request: RemotingCommand, channel: RemotingChannel) -> Answer:
        raise ZeroDivisionError("oh dear")

    async def refused(self, request: RemotingCommand, channel: RemotingChannel) -> Answer:
        raise BrokerError(17, "no such topic") if request.ext else InvalidCommand("no topic given")

    async def ask_back(self, request: RemotingCommand, channel: RemotingChannel) -> Answer:
        answer = await channel.request(RemotingCommand(ECHO, body=b"you?"), timeout_s=5)
        return request.response(body=answer.body)


@pytest.fixture
async def peer() -> AsyncIterator[Peer]:
    peer = Peer()
    yield peer
    await peer.server.close()


@pytest.fixture
async def pool() -> AsyncIterator[ConnectionPool]:
    pool = ConnectionPool(handlers={ECHO: lambda request, _: request.response(body=b"me")})
    yield pool
    await pool.close()


@pytest.mark.parametrize("serialize", SerializeType)
async def test_an_answer_has_the_request_s_opaque_and_header_form(
    peer: Peer, pool: ConnectionPool, serialize: SerializeType
) -> None:
    address = await peer.server.listen("127.0.0.1", 0)
    request = RemotingCommand(ECHO, ext={"a": "1"}, body=b"hello", serialize=serialize)
    answer = await pool.request(address, request, timeout_s=5)

    assert answer.is_response
    assert (answer.opaque, answer.serialize) == (request.opaque, serialize)
    assert (answer.ext, answer.body) == ({"a": "1"}, b"hello")


async def test_a_held_request_does_not_stop_the_ones_behind_it(
    peer: Peer, pool: ConnectionPool
) -> None:
    address = await peer.server.listen("127.0.0.1", 0)
    held = spawn(pool.request(address, RemotingCommand(HELD), timeout_s=5), name="held")
    await pool.request(address, RemotingCommand(ECHO), timeout_s=5)
    assert not held.done()
    peer.release.set()

    assert (await held).remark == "released"
    assert len(peer.server.channels) == 1


@pytest.mark.parametrize(
    ("command", "code", "remark"),
    [
        (RemotingCommand(BROKEN), 1, "oh dear"),
        (RemotingCommand(REFUSED, ext={"x": "y"}), 17, "no such topic"),
        (RemotingCommand(REFUSED), 1, "no topic given"),
        (RemotingCommand(4711), 3, " request type 4711 not supported"),
    ],
)
async def test_a_failure_is_answered_and_the_connection_goes_on(
    peer: Peer, pool: ConnectionPool, command: RemotingCommand, code: int, remark: str
) -> None:
    address = await peer.server.listen("127.0.0.1", 0)
    answer = await pool.request(address, command, timeout_s=5)
    assert (answer.code, answer.remark) == (code, remark)

    assert (await pool.request(address, RemotingCommand(ECHO), timeout_s=5)).code == 0
    assert not peer.closed


async def test_a_request_that_came_as_the_server_closed_is_dropped_without_a_trace(
    peer: Peer, pool: ConnectionPool
) -> None:
    """Its task is cancelled before its first step, so the handler's coroutine is never awaited."""
    address = await peer.server.listen("127.0.0.1", 0)
    await pool.request(address, RemotingCommand(ECHO), timeout_s=5)
    (channel,) = peer.server.channels
    channel.data_received(RemotingCommand(HELD).encode())
    await channel.close(grace_s=0)
    gc.collect()


async def test_an_answer_that_cannot_be_written_becomes_an_error_answer(
    peer: Peer, pool: ConnectionPool
) -> None:
    address = await peer.server.listen("127.0.0.1", 0)
    answer = await pool.request(
        address, RemotingCommand(UNENCODABLE, serialize=SerializeType.ROCKETMQ), timeout_s=5
    )
    assert answer.code == 1


async def test_a_server_asks_its_client_and_gets_the_answer(
    peer: Peer, pool: ConnectionPool
) -> None:
    address = await peer.server.listen("127.0.0.1", 0)
    answer = await pool.request(address, RemotingCommand(ASK_BACK), timeout_s=5)
    assert answer.body == b"me"


async def test_a_late_answer_is_dropped_after_the_time_out(
    peer: Peer, pool: ConnectionPool
) -> None:
    address = await peer.server.listen("127.0.0.1", 0)
    await pool.request(address, RemotingCommand(ECHO), timeout_s=5)
    with pytest.raises(RequestTimeout, match=r"no answer from 127.0.0.1:.* within 0.05 s"):
        await pool.request(address, RemotingCommand(HELD), timeout_s=0.05)
    peer.release.set()

    assert (await pool.request(address, RemotingCommand(ECHO), timeout_s=5)).code == 0


@pytest.mark.failing_tasks
async def test_a_lost_connection_fails_what_waits_and_is_opened_again(
    peer: Peer, pool: ConnectionPool
) -> None:
    address = await peer.server.listen("127.0.0.1", 0)
    held = spawn(pool.request(address, RemotingCommand(HELD), timeout_s=5), name="held")
    await pool.request(address, RemotingCommand(ECHO), timeout_s=5)
    (channel,) = peer.server.channels
    await channel.close()
    with pytest.raises(ConnectionLost, match="was lost"):
        await held

    assert (await pool.request(address, RemotingCommand(ECHO), timeout_s=5)).code == 0
    assert peer.closed == [channel]


async def test_a_server_that_closes_lets_requests_in_hand_be_answered(
    peer: Peer, pool: ConnectionPool
) -> None:
    address = await peer.server.listen("127.0.0.1", 0)
    held = spawn(pool.request(address, RemotingCommand(HELD), timeout_s=5), name="held")
    await pool.request(address, RemotingCommand(ECHO), timeout_s=5)
    asyncio.get_running_loop().call_later(0.05, peer.release.set)
    await peer.server.close(grace_s=5)

    assert (await held).remark == "released"


async def test_a_server_that_closes_refuses_requests_that_come_meanwhile(
    peer: Peer, pool: ConnectionPool
) -> None:
    """Their client knows that nothing was done, and uses the connection no more."""
    address = await peer.server.listen("127.0.0.1", 0)
    held = spawn(pool.request(address, RemotingCommand(HELD), timeout_s=5), name="held")
    await pool.request(address, RemotingCommand(ECHO), timeout_s=5)
    closing = spawn(peer.server.close(grace_s=5), name="close")
    await asyncio.sleep(0.01)
    (channel,) = peer.server.channels
    channel.data_received(RemotingCommand(ECHO).oneway().encode())
    assert len(peer.seen) == 2  # it has no answer that could say that it was refused
    refused = await pool.request(address, RemotingCommand(ECHO), timeout_s=5)
    assert BrokerError(refused.code, refused.remark or "").says_stopping
    with pytest.raises(NotConnected):
        await pool.request(address, RemotingCommand(ECHO), timeout_s=5)
    assert (len(peer.seen), closing.done()) == (2, False)
    peer.release.set()
    assert (await held).remark == "released"
    await closing


async def test_a_server_that_closes_serves_what_it_is_told_to(
    peer: Peer, pool: ConnectionPool
) -> None:
    address = await peer.server.listen("127.0.0.1", 0)
    await pool.request(address, RemotingCommand(ECHO), timeout_s=5)
    await peer.server.refuse(but={ECHO})
    assert (await pool.request(address, RemotingCommand(ECHO), timeout_s=5)).code == 0
    assert (await pool.request(address, RemotingCommand(HELD), timeout_s=5)).code == 14


@pytest.mark.parametrize("released", [True, False])
@pytest.mark.failing_tasks
async def test_a_server_that_closes_ends_the_handlers_of_lost_connections_too(
    peer: Peer, released: bool
) -> None:
    """They would use what is closed after the server."""
    address = await peer.server.listen("127.0.0.1", 0)
    pool = ConnectionPool()
    held = spawn(pool.request(address, RemotingCommand(HELD), timeout_s=5), name="held")
    await eventually(lambda: sum(each.handling for each in peer.server.channels) == 1)
    (channel,) = peer.server.channels
    await pool.close()
    await eventually(lambda: peer.closed == [channel])
    assert channel.handling == 1
    if released:
        asyncio.get_running_loop().call_later(0.05, peer.release.set)
    await peer.server.close(grace_s=0.1)
    assert channel.handling == 0
    with pytest.raises(ConnectionLost):
        await held


async def test_an_unused_port_is_a_lost_connection_that_names_the_address(
    pool: ConnectionPool,
) -> None:
    for address in ("127.0.0.1:1", "nowhere", "127.0.0.1:99999999"):
        with pytest.raises(ConnectionLost, match=f"cannot connect to {address}: "):
            await pool.request(address, RemotingCommand(ECHO), timeout_s=5)


@pytest.mark.parametrize(
    "garbage", [b"GET / HTTP/1.1\r\n\r\n", b"\x16\x03\x01\x02\x00", bytes(4), b"\xff" * 64]
)
async def test_garbage_closes_that_connection_alone(
    peer: Peer, pool: ConnectionPool, garbage: bytes
) -> None:
    address = await peer.server.listen("127.0.0.1", 0)
    await pool.request(address, RemotingCommand(ECHO), timeout_s=5)
    host, port = address.split(":")
    reader, writer = await asyncio.open_connection(host, int(port))
    writer.write(garbage)
    with contextlib.suppress(ConnectionResetError):  # or a plain end: both are closed
        assert await reader.read() == b""
    writer.close()

    assert (await pool.request(address, RemotingCommand(ECHO), timeout_s=5)).code == 0


async def test_a_peer_that_does_not_read_is_not_read_from_either(peer: Peer) -> None:
    address = await peer.server.listen("127.0.0.1", 0)
    host, port = address.split(":")
    reader, writer = await asyncio.open_connection(host, int(port), limit=1024)
    count = 200
    writer.write(RemotingCommand(BIG).encode() * count)
    await eventually(lambda: any(not c.is_reading for c in peer.server.channels))
    (channel,) = peer.server.channels
    assert channel.unsent_bytes < 10 << 20

    received = 0
    while received < count << 20:
        received += len(await reader.read(1 << 20))
    writer.close()


async def test_a_peer_that_lets_its_answers_pile_up_is_cut_off(
    peer: Peer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(remoting_channel, "SLOW_READER_BYTES", 8 << 20)
    address = await peer.server.listen("127.0.0.1", 0)
    host, port = address.split(":")
    _, writer = await asyncio.open_connection(host, int(port), limit=1024)
    writer.write(RemotingCommand(HELD_BIG).encode() * 100)
    await eventually(lambda: any(c.handling == 100 for c in peer.server.channels))
    (channel,) = peer.server.channels
    peer.release.set()  # 100 MiB at once
    await asyncio.wait_for(peer.cut.wait(), 30)
    assert peer.closed == [channel]
    writer.close()


async def test_too_many_requests_in_hand_are_not_read(
    peer: Peer, pool: ConnectionPool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(remoting_channel, "MAX_HANDLING_BYTES", 10 * 1060)
    address = await peer.server.listen("127.0.0.1", 0)
    await pool.request(address, RemotingCommand(ECHO), timeout_s=5)
    held = [
        spawn(pool.request(address, RemotingCommand(HELD), timeout_s=5), name="held")
        for _ in range(30)
    ]
    (channel,) = peer.server.channels
    await eventually(lambda: channel.handling == 10)  # all are sent
    with pytest.raises(RequestTimeout):
        await pool.request(address, RemotingCommand(ECHO), timeout_s=0.1)
    assert channel.handling == 10
    peer.release.set()
    assert {answer.remark for answer in await asyncio.gather(*held)} == {"released"}


@pytest.mark.sockets
@pytest.mark.failing_tasks
async def test_closing_while_connecting_is_a_lost_connection() -> None:
    listener = socket.create_server(("127.0.0.1", 0), backlog=0)
    host, port = listener.getsockname()
    fill = [socket.socket() for _ in range(3)]  # a full backlog lets connects hang
    for each in fill:
        each.setblocking(False)
        each.connect_ex((host, port))
    pool = ConnectionPool()
    waiting = spawn(pool.request(f"{host}:{port}", RemotingCommand(ECHO), timeout_s=5), name="w")
    await asyncio.sleep(0.05)
    await pool.close()
    with pytest.raises(ConnectionLost, match="this client is closed"):
        await waiting
    for each in (*fill, listener):
        each.close()


async def test_a_frame_too_large_is_the_caller_s_error(peer: Peer, pool: ConnectionPool) -> None:
    address = await peer.server.listen("127.0.0.1", 0)
    with pytest.raises(LocalProtocolError, match="limit is 16777216"):
        await pool.request(address, RemotingCommand(ECHO, body=bytes(MAX_FRAME_BYTES)), timeout_s=5)


async def test_one_way_requests_get_no_answer(peer: Peer) -> None:
    address = await peer.server.listen("127.0.0.1", 0)
    host, port = address.split(":")
    reader, writer = await asyncio.open_connection(host, int(port))
    writer.write(RemotingCommand(ECHO, opaque=7).oneway().encode())
    writer.write(RemotingCommand(BROKEN, opaque=8).oneway().encode())
    writer.write(RemotingCommand(ECHO, opaque=9).encode())
    frame = await reader.read(1 << 16)
    writer.close()

    assert peer.seen == [7, 9]
    assert frame.count(b'"opaque"') == 1


async def test_an_idle_connection_is_closed(pool: ConnectionPool) -> None:
    ended = asyncio.Event()
    server = RemotingServer(
        {ECHO: lambda request, _: request.response()},
        on_closed=lambda _: ended.set(),
        idle_s=0.05,
    )
    address = await server.listen("127.0.0.1", 0)
    with contextlib.suppress(ConnectionLost):  # idle before that, if the machine stood still
        await pool.request(address, RemotingCommand(ECHO), timeout_s=5)
    await asyncio.wait_for(ended.wait(), 30)
    await server.close()


async def test_an_answer_may_be_given_later_by_anybody(peer: Peer, pool: ConnectionPool) -> None:
    address = await peer.server.listen("127.0.0.1", 0)
    held = spawn(pool.request(address, RemotingCommand(LATE), timeout_s=10), name="held")
    await eventually(lambda: len(peer.waiting) == 1)
    at_once = await pool.request(address, RemotingCommand(GIVEN), timeout_s=10)
    refused = await pool.request(address, RemotingCommand(LATE_REFUSED), timeout_s=10)
    assert (at_once.remark, refused.code, refused.remark) == ("at once", 17, "no such topic")
    assert not held.done()
    request, late = peer.waiting.pop()
    late.give(request.response(remark="at last"))
    assert (await held).remark == "at last"


async def test_a_server_that_closes_waits_for_late_answers(
    peer: Peer, pool: ConnectionPool
) -> None:
    address = await peer.server.listen("127.0.0.1", 0)
    held = spawn(pool.request(address, RemotingCommand(LATE), timeout_s=10), name="held")
    await eventually(lambda: len(peer.waiting) == 1)
    closing = spawn(peer.server.close(grace_s=10), name="close")
    await asyncio.sleep(0)
    request, late = peer.waiting.pop()
    late.give(request.response(remark="just in time"))
    assert (await held).remark == "just in time"
    await closing
