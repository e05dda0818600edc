"""The Thrift server over loopback with test methods: matching of answers, ends of connections."""

from __future__ import annotations

import asyncio
import socket
import struct
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any
from unittest.mock import patch

import pytest
import structlog
from thrift.Thrift import TApplicationException, TMessageType

from broker_core.errors import RequestTimeout
from broker_core.time_slices import TimeSlices
from proxy.downstream.port.connection import Connection, Entry, Reply, awaiting
from proxy.downstream.port.server import ThriftServer
from proxy.errors import Refused
from proxy.settings.proxy_settings import LimitSettings
from testkit.eventually import eventually
from testkit.thrift_client import (
    BINARY,
    COMPACT,
    Protocol,
    ThriftClient,
    connect,
    frame_of,
    framed,
    payload_of,
)
from tests.integration.downstream.loops import on_both_loops
from thrift_idl import consumer, consumer_service

ACK_ARGUMENTS = consumer_service.ack_args(result=None)
FETCH_ARGUMENTS = consumer_service.fetch_args(request=None)
#: More than the socket buffers of a server and a client of SLOW bytes hold together.
BIG, SLOW = 15_000_000, 4096


class Methods:
    """``ack`` answers True at once, ``submit`` when the test says so, ``fetch`` with BIG bytes."""

    def __init__(self) -> None:
        self.waiting: list[Reply] = []
        self.lost: list[str] = []
        self.fetches = 0

    def entries(self) -> dict[str, Entry]:
        return {
            "ack": Entry(consumer_service.ack_args, self.ack),
            "submit": Entry(consumer_service.submit_args, self.submit),
            "fetch": Entry(consumer_service.fetch_args, self.fetch),
            "ranges": Entry(consumer_service.ranges_args, awaiting(self.ranges)),
            "settle": Entry(consumer_service.settle_args, self.settle),
        }

    def ack(self, _arguments: Any, reply: Reply) -> None:
        reply(consumer_service.ack_result(success=True))

    def submit(self, _arguments: Any, reply: Reply) -> None:
        reply.call_if_lost(lambda: self.lost.append("submit"))
        self.waiting.append(reply)

    def fetch(self, _arguments: Any, reply: Reply) -> None:
        self.fetches += 1
        reply.call_if_lost(lambda: self.lost.append("fetch"))
        message = consumer.Message(value=bytes(BIG), offset=0)
        response = consumer.QidResponse(topic="t", qid="q_0", messages=[message])
        reply(consumer_service.fetch_result(success=consumer.FetchResponse(results=[response])))

    async def ranges(self, arguments: Any, _reply: Reply) -> Any:
        raise Refused("not today") if arguments.request.groupId else RequestTimeout("no answer")

    def settle(self, _arguments: Any, reply: Reply) -> None:
        reply(consumer_service.settle_result(success=consumer.AckAnswer(notHeld=[])))
        raise KeyError("after the answer")


@asynccontextmanager
async def running(
    *, connections: int = 1, **limits: int
) -> AsyncIterator[tuple[ThriftServer, Methods, int]]:
    methods = Methods()
    server = ThriftServer(methods.entries(), LimitSettings.model_validate(limits))
    port = await server.listen("127.0.0.1", 0)
    try:
        yield server, methods, port
    finally:
        await server.close(grace_s=0.2)


def reads(connection: Connection) -> bool:
    """Return whether the server reads from *connection*."""
    return connection.transport is not None and connection.transport.is_reading()


async def acked(client: ThriftClient) -> bool:
    """Check that the connection works."""
    return bool(await client.call("ack", consumer.AckResult()))


# ---- requests and answers ---------------------------------------------------------------------


@pytest.mark.parametrize("protocol", [COMPACT, BINARY], ids=["compact", "binary"])
async def test_calls_are_answered_in_the_protocol_they_came_in(protocol: Protocol) -> None:
    async with running() as (_, _, port), connect(port, protocol=protocol) as client:
        for _ in range(3):
            assert await acked(client)


async def test_protocols_may_change_from_frame_to_frame() -> None:
    async with running() as (_, _, port), connect(port) as client:
        client.send_bytes(frame_of("ack", ACK_ARGUMENTS, protocol=BINARY, sequence_id=9))
        length = int.from_bytes(await client.reader.readexactly(4))
        assert (await client.reader.readexactly(length))[:4] == b"\x80\x01\x00\x02"
        assert await acked(client)


async def test_a_request_that_comes_byte_by_byte_is_one_request() -> None:
    async with running() as (_, _, port), connect(port) as client:
        for byte in frame_of("ack", ACK_ARGUMENTS):
            client.send_bytes(bytes((byte,)))
            await client.writer.drain()
            await asyncio.sleep(0)
        assert await client.answer("ack", number=1) is True


@on_both_loops
async def test_further_requests_wait_until_the_current_one_is_answered() -> None:
    """Answers come in the order of the requests, although the second was ready at once."""
    async with running() as (_, methods, port), connect(port) as client:
        client.send("submit", None)
        await eventually(lambda: bool(methods.waiting))
        client.send_bytes(frame_of("ack", ACK_ARGUMENTS, sequence_id=2))
        assert not await client.closed_by_server(within_s=0.2)
        methods.waiting[0](consumer_service.submit_result(success=False))
        assert await client.answer("submit") is False
        assert await client.answer("ack", number=2) is True


@on_both_loops
async def test_requests_that_wait_for_their_turn_are_all_answered_in_order() -> None:
    """With a slice of a nanosecond, each pass of the loop serves one request."""
    async with running() as (server, _, port), connect(port) as one, connect(port) as two:
        with patch.object(server, "time_slices", TimeSlices(1)):
            for client in (one, two):
                client.send_bytes(
                    b"".join(frame_of("ack", ACK_ARGUMENTS, sequence_id=n) for n in (1, 2))
                )
            for client in (one, two):
                for number in (1, 2):
                    assert await client.answer("ack", number=number) is True
            one.send_bytes(frame_of("ack", ACK_ARGUMENTS, sequence_id=3))
            one.abort()
            assert await acked(two)


@on_both_loops
async def test_a_flood_of_requests_is_held_back_while_one_is_served() -> None:
    """The server stops reading, so the flood fills the client's buffers instead of the server's."""
    async with running() as (server, methods, port), connect(port) as client:
        client.send("submit", None)
        await eventually(lambda: bool(methods.waiting))
        long = consumer_service.ack_args(result=consumer.AckResult(consumerId="x" * 10_000))
        client.send_bytes(frame_of("ack", long, sequence_id=1) * 2000)
        (connection,) = server.open.values()
        await eventually(lambda: not reads(connection))
        await asyncio.sleep(0.1)
        assert server.load.used < 1_000_000
        methods.waiting[0](consumer_service.submit_result(success=True))
        assert await client.answer("submit") is True
        for _ in range(500):  # more than the server had read
            assert await client.answer("ack") is True
        client.abort()


async def test_a_one_way_call_gets_no_answer_and_ends() -> None:
    async with running() as (_, _, port), connect(port) as client:
        client.send_bytes(frame_of("ack", ACK_ARGUMENTS, kind=TMessageType.ONEWAY))
        assert await acked(client)


async def test_an_unknown_method_is_answered_so() -> None:
    async with running() as (_, _, port), connect(port) as client:
        client.send_bytes(framed(payload_of("launch", ACK_ARGUMENTS)))
        with pytest.raises(TApplicationException, match="unknown method 'launch'") as told:
            await client.answer("launch", number=1)
        assert told.value.type == TApplicationException.UNKNOWN_METHOD
        assert await acked(client)


@pytest.mark.parametrize(("group", "reason"), [("g", "not today"), ("", "no answer")])
async def test_an_error_of_a_method_is_an_application_exception(group: str, reason: str) -> None:
    """For errors of ours and of a broker; the connection continues."""
    async with running() as (_, _, port), connect(port) as client:
        with pytest.raises(TApplicationException, match=f"ranges failed in the proxy: {reason}"):
            await client.call("ranges", consumer.RangesRequest(groupId=group, topics=[]))
        assert await acked(client)


async def test_a_bug_after_the_answer_is_logged_and_answers_nothing_more() -> None:
    async with running() as (_, _, port), connect(port) as client:
        with structlog.testing.capture_logs() as logs:
            assert (await client.call("settle", None)).notHeld == []
            assert await acked(client)
        assert [(line["log_level"], line["event"]) for line in logs] == [
            ("error", "request failed")
        ]


async def test_an_answer_given_twice_is_a_bug_of_ours() -> None:
    async with running() as (_, methods, port), connect(port) as client:
        client.send("submit", None)
        await eventually(lambda: bool(methods.waiting))
        result = consumer_service.submit_result(success=True)
        methods.waiting[0](result)
        with pytest.raises(RuntimeError, match="submit was answered twice"):
            methods.waiting[0](result)


# ---- answers that do not arrive ---------------------------------------------------------------


@on_both_loops
async def test_a_client_that_disconnects_while_it_waits_is_reported_once() -> None:
    async with running() as (server, methods, port):
        async with connect(port) as client:
            client.send("submit", None)
            await eventually(lambda: bool(methods.waiting))
        await eventually(lambda: not server.open)
        assert methods.lost == ["submit"]
        methods.waiting[0](consumer_service.submit_result(success=True))
        assert methods.lost == ["submit"]


@on_both_loops
async def test_an_answer_that_stays_in_the_process_is_lost_with_its_connection() -> None:
    """A reader so slow that the socket's buffers are full, and then disconnected."""
    async with running() as (server, methods, port), connect(port, receive_buffer=SLOW) as client:
        client.send("fetch", None)
        await eventually(lambda: methods.fetches == 1)
        await asyncio.sleep(0.05)
        assert methods.lost == []
        client.abort()
        await eventually(lambda: not server.open)
        assert methods.lost == ["fetch"]


@on_both_loops
async def test_an_answer_written_to_a_connection_that_was_reset_is_lost() -> None:
    """The server notices the reset only when its own write fails."""
    async with running() as (server, methods, port):
        client = socket.create_connection(("127.0.0.1", port))
        client.send(frame_of("submit", consumer_service.submit_args(result=None)))
        await eventually(lambda: bool(methods.waiting))
        client.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        client.close()
        methods.waiting[0](consumer_service.submit_result(success=True))
        await eventually(lambda: not server.open)
        assert methods.lost == ["submit"]


@on_both_loops
async def test_a_slow_reader_gets_no_second_answer_before_the_first_has_left() -> None:
    """Otherwise answers would accumulate in the process without bound."""
    async with running() as (_, methods, port), connect(port, receive_buffer=SLOW) as client:
        client.send("fetch", None)
        client.send("fetch", None)
        await eventually(lambda: methods.fetches == 1)
        await asyncio.sleep(0.05)
        assert methods.fetches == 1
        assert len((await client.answer("fetch", number=1)).results[0].messages[0].value) == BIG
        await eventually(lambda: methods.fetches == 2)
        assert len((await client.answer("fetch", number=2)).results[0].messages[0].value) == BIG
        assert methods.lost == []


@on_both_loops
async def test_an_answer_that_has_left_whole_is_not_lost() -> None:
    async with running() as (server, methods, port):
        async with connect(port) as client:
            client.send("submit", None)
            await eventually(lambda: bool(methods.waiting))
            methods.waiting[0](consumer_service.submit_result(success=True))
            assert await client.answer("submit")
        await eventually(lambda: not server.open)
        assert methods.lost == []


# ---- limits -----------------------------------------------------------------------------------


async def refused(port: int) -> bool:
    async with connect(port) as client:
        return await client.closed_by_server()


@on_both_loops
async def test_connections_over_a_limit_are_closed_and_the_others_go_on() -> None:
    for limit in ("max_connections", "max_connections_per_address"):
        async with running(**{limit: 2}) as (server, _, port):
            async with connect(port) as first, connect(port) as second:
                assert await acked(first)
                assert await acked(second)
                with structlog.testing.capture_logs() as logs:
                    assert await refused(port)
                assert [line["reached"] for line in logs] == [limit]
                assert (await acked(first), await acked(second)) == (True, True)
            await eventually(lambda server=server: not server.open)
            assert server.refused_connections == 1
            async with connect(port) as third:
                assert await acked(third)


async def test_an_endless_line_of_refused_connections_is_one_log_line() -> None:
    async with running(max_connections=1) as (server, _, port), connect(port) as first:
        assert await acked(first)
        with structlog.testing.capture_logs() as logs:
            assert all([await refused(port) for _ in range(5)])
        assert server.refused_connections == 5
        assert len(logs) == 1


@on_both_loops
async def test_closing_the_server_ends_every_connection_even_of_slow_readers() -> None:
    async with (
        running() as (server, methods, port),
        connect(port) as idle,
        connect(port, receive_buffer=SLOW) as slow,
    ):
        assert await acked(idle)
        slow.send("fetch", None)
        await eventually(lambda: methods.fetches == 1)
        await server.close(grace_s=0.1)
        assert not server.open
        assert methods.lost == ["fetch"]
        assert await idle.closed_by_server()
        slow.abort()
        with pytest.raises(ConnectionRefusedError):
            await asyncio.open_connection("127.0.0.1", port)


# ---- invalid requests -----------------------------------------------------------------------


def bad_streams() -> dict[str, Callable[[], bytes]]:
    whole = frame_of("ack", ACK_ARGUMENTS)
    return {
        "http": lambda: b"GET / HTTP/1.1\r\nHost: proxy\r\n\r\n",
        "tls": lambda: b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03",
        "length 0": lambda: bytes(4),
        "negative length": lambda: b"\xff\xff\xff\xf0abc",
        "too long": lambda: (5_000_001).to_bytes(4),
        "no protocol": lambda: framed(b"\x00\x01\x02\x03"),
        "a reply": lambda: frame_of("ack", ACK_ARGUMENTS, kind=TMessageType.REPLY),
        "cut inside": lambda: framed(whole[4:-1]),
        "nesting bomb": lambda: framed(whole[4:-1] + b"\x7c" * 100_000),
        "long name": lambda: framed(payload_of("x" * 1_000_000, ACK_ARGUMENTS)),
        "no name": lambda: framed(b"\x82\x21\x01\x7f" + bytes(10)),
    }


@pytest.mark.parametrize("name", bad_streams())
async def test_bytes_that_are_no_request_close_that_connection_alone(name: str) -> None:
    async with running() as (server, _, port), connect(port) as good, connect(port) as bad:
        assert await acked(good)
        with structlog.testing.capture_logs() as logs:
            bad.send_bytes(bad_streams()[name]())
            assert await bad.closed_by_server()
        assert [line["event"] for line in logs] == ["connection closed: invalid request"]
        assert len(logs[0]["reason"]) < 300
        assert server.bad_frames == 1
        assert await acked(good)


async def test_bytes_after_an_invalid_frame_are_not_read() -> None:
    async with running() as (_, methods, port), connect(port) as bad:
        bad.send_bytes(framed(b"\x00") + frame_of("fetch", FETCH_ARGUMENTS))
        assert await bad.closed_by_server()
        assert methods.fetches == 0


async def test_a_frame_that_never_ends_waits_without_harm() -> None:
    async with running() as (_, _, port), connect(port) as half, connect(port) as good:
        half.send_bytes((100_000).to_bytes(4) + bytes(50_000))
        assert await acked(good)
        assert not await half.closed_by_server(within_s=0.2)
