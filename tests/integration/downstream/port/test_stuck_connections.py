"""Stuck connections: incomplete requests, unread answers, vanished machines. Real sockets, short
times.
"""

from __future__ import annotations

import asyncio
import socket
import ssl
import tempfile
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager, suppress
from pathlib import Path
from typing import Any

import pytest
import structlog

from broker_core.tasks import spawn
from proxy.downstream.port.connection import Entry, Reply
from proxy.downstream.port.server import ThriftServer
from proxy.settings.proxy_settings import LimitSettings
from testkit.certificates import make_certificates
from testkit.eventually import eventually
from testkit.lanes import GROUP, TOPIC, Notes
from testkit.messages import message
from testkit.thrift_client import (
    COMPACT,
    ThriftClient,
    connect,
    frame_of,
    offsets,
    our_pull,
)
from tests.integration.downstream.loops import on_both_loops
from tests.support.serving import serving
from thrift_idl import consumer, consumer_service

#: More than the socket buffers of a server and a client of SLOW bytes hold together.
BIG, SLOW = 15_000_000, 4096
ACK = consumer_service.ack_args(result=consumer.AckResult(consumerId="x" * 300_000))


def methods(lost: list[str]) -> dict[str, Entry]:
    """``ack`` answers True, ``fetch`` with BIG bytes."""

    def ack(_arguments: Any, reply: Reply) -> None:
        reply(consumer_service.ack_result(success=True))

    def fetch(_arguments: Any, reply: Reply) -> None:
        reply.call_if_lost(lambda: lost.append("fetch"))
        big = consumer.Message(value=bytes(BIG), offset=0)
        response = consumer.QidResponse(topic="t", qid="q_0", messages=[big])
        reply(consumer_service.fetch_result(success=consumer.FetchResponse(results=[response])))

    return {
        "ack": Entry(consumer_service.ack_args, ack),
        "fetch": Entry(consumer_service.fetch_args, fetch),
    }


@asynccontextmanager
async def running(
    tls: Any = None, **limits: float
) -> AsyncIterator[tuple[ThriftServer, list[str], int]]:
    lost: list[str] = []
    server = ThriftServer(methods(lost), LimitSettings.model_validate(limits))
    port = await server.listen("127.0.0.1", 0, tls=tls)
    try:
        yield server, lost, port
    finally:
        await server.close(grace_s=0.2)


@contextmanager
def certified() -> Iterator[tuple[ssl.SSLContext, ssl.SSLContext]]:
    """Return a server's and a client's TLS context."""
    with tempfile.TemporaryDirectory() as folder:
        made = make_certificates(Path(folder))
        shown = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        shown.load_cert_chain(made.server, made.server_key)
        yield shown, made.client_context()


@asynccontextmanager
async def over_tls(port: int, tls: ssl.SSLContext) -> AsyncIterator[ThriftClient]:
    """Return a client that reads only on request."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port, ssl=tls, limit=1024)
    client = ThriftClient(reader, writer, COMPACT)
    try:
        yield client
    finally:
        client.abort()
        with suppress(ConnectionError):
            await writer.wait_closed()


async def acked(client: ThriftClient) -> bool:
    """Check that the connection works."""
    return bool(await client.call("ack", consumer.AckResult()))


def at_rest(server: ThriftServer) -> bool:
    """Return whether no bytes are held and no time limit runs."""
    return not (server.load.used or len(server.unread) or len(server.begun))


# ---- requests that do not end -------------------------------------------------------------------


@on_both_loops
async def test_a_request_that_does_not_end_costs_its_connection_and_silence_does_not() -> None:
    """Single bytes do not extend the time; silence between two requests is allowed."""
    async with (
        running(slow_request_s=0.4) as (server, _, port),
        connect(port) as drip,
        connect(port) as idle,
    ):
        assert await acked(idle)
        with structlog.testing.capture_logs() as logs:
            for byte in frame_of("ack", ACK)[:200]:
                if not server.open or server.load.dropped["slow_request_s"]:
                    break
                drip.send_bytes(bytes((byte,)))
                await asyncio.sleep(0.02)
            assert await drip.closed_by_server()
        assert server.load.dropped == {"slow_request_s": 1, "slow_reader_s": 0, "dead_peer_s": 0}
        [line] = [each for each in logs if each["event"] == "connection closed"]
        assert (line["reached"], line["client"]) == ("slow_request_s", "127.0.0.1")
        await asyncio.sleep(0.5)
        assert await acked(idle)
        await eventually(lambda: at_rest(server))


@on_both_loops
async def test_a_request_in_many_pieces_is_served_if_it_is_whole_in_time() -> None:
    async with running(slow_request_s=30) as (server, _, port), connect(port) as client:
        whole = frame_of("ack", ACK)
        for start in range(0, len(whole), 50_000):
            client.send_bytes(whole[start : start + 50_000])
            await eventually(lambda: len(server.begun) == 1)
        assert await client.answer("ack", number=1) is True
        await eventually(lambda: at_rest(server))


@on_both_loops
async def test_idle_connections_have_no_timer() -> None:
    async with running() as (server, _, port), connect(port) as one, connect(port) as two:
        assert await acked(one)
        assert await acked(two)
        assert not server.begun.has_timer
        assert not server.unread.has_timer


# ---- unread answers -------------------------------------------------------------------------


@on_both_loops
async def test_an_answer_that_stays_unread_costs_its_connection_and_others_go_on() -> None:
    async with (
        running(slow_reader_s=0.3) as (server, lost, port),
        connect(port, receive_buffer=SLOW) as slow,
        connect(port) as good,
    ):
        slow.send("fetch", None)
        dropped = server.load.dropped
        await eventually(lambda: server.load.used > BIG / 2 or dropped["slow_reader_s"] == 1)
        assert await acked(good)
        await eventually(lambda: len(server.open) == 1)
        assert lost == ["fetch"]
        assert server.load.dropped["slow_reader_s"] == 1
        assert await acked(good)
        assert at_rest(server)
        slow.abort()


@on_both_loops
async def test_over_tls_no_megabytes_hide_in_buffers() -> None:
    """Bytes in TLS's own buffer look as if they had been sent."""
    with certified() as (server_tls, client_tls):
        async with (
            running(lambda: server_tls, slow_reader_s=2.3) as (server, lost, port),
            over_tls(port, client_tls) as client,
        ):
            client.send("fetch", None)
            await eventually(lambda: server.load.used > BIG / 4)
            await eventually(lambda: server.load.dropped["slow_reader_s"] == 1)
            await eventually(lambda: not server.open)
            assert (lost, at_rest(server)) == (["fetch"], True)


@on_both_loops
async def test_over_tls_large_answers_arrive_whole_also_while_the_server_closes() -> None:
    with certified() as (server_tls, client_tls):
        async with (
            running(lambda: server_tls) as (server, lost, port),
            over_tls(port, client_tls) as client,
        ):
            for _ in range(2):
                answer = await client.call("fetch", None)
                assert len(answer.results[0].messages[0].value) == BIG
            client.send("fetch", None)
            await eventually(lambda: len(server.unread) == 1)
            closing = spawn(server.close(grace_s=10), name="close")
            assert len((await client.answer("fetch")).results[0].messages[0].value) == BIG
            await closing
            assert (lost, at_rest(server)) == ([], True)


@on_both_loops
async def test_a_call_is_answered_while_the_server_closes() -> None:
    """Its client would repeat a send, which may be stored already."""
    begun: list[Reply] = []
    entry = Entry(consumer_service.ack_args, lambda _, reply: begun.append(reply))
    server = ThriftServer({"ack": entry}, LimitSettings())
    port = await server.listen("127.0.0.1", 0)
    async with connect(port) as client:
        client.send("ack", consumer.AckResult(consumerId="c"))
        await eventually(lambda: len(begun) == 1)
        closing = spawn(server.close(grace_s=10), name="close")
        await asyncio.sleep(0.05)
        assert not closing.done()
        begun[0](consumer_service.ack_result(success=True))
        assert await client.answer("ack")
        await closing
        assert at_rest(server)


@on_both_loops
async def test_a_reader_that_reads_in_time_stays() -> None:
    async with (
        running(slow_reader_s=30) as (server, lost, port),
        connect(port, receive_buffer=SLOW) as client,
    ):
        client.send("fetch", None)
        await eventually(lambda: len(server.unread) == 1)
        assert len((await client.answer("fetch")).results[0].messages[0].value) == BIG
        assert await acked(client)
        assert (lost, at_rest(server)) == ([], True)


@on_both_loops
async def test_messages_of_an_unread_answer_come_again_in_order_and_uncounted() -> None:
    """To another client: they never left the process, so no handler can have started."""
    notes = Notes()
    limits = {"max_answer_bytes": 15 * 2**20, "slow_reader_s": 0.4}
    async with serving(history=notes, limits=limits) as it:
        it.feed(it.own(), *(message(n, key=str(n), body=bytes(3_000_000)) for n in range(5)))
        async with connect(it.port, receive_buffer=SLOW) as slow, connect(it.port) as other:
            slow.send("pull", our_pull(GROUP))
            dropped = it.server.load.dropped
            await eventually(lambda: it.leased() == 5 or dropped["slow_reader_s"] == 1)
            got = await other.pull(GROUP, linger_ms=9_000)
            assert offsets(got) == [0, 1, 2, 3, 4]
            assert {each.attempt for each in got.messages} == {1}
            slow.abort()
        assert [each["offset"] for each in notes.of("unsent")] == [0, 1, 2, 3, 4]
        assert it.lane().counts[TOPIC].expired == 0
        assert it.server.load.dropped["slow_reader_s"] == 1


@on_both_loops
async def test_an_unread_answer_with_a_request_id_waits_for_its_client() -> None:
    """The same leases, still the first attempt; no copy of the bodies was kept."""
    limits = {"max_answer_bytes": 15 * 2**20, "slow_reader_s": 0.3}
    async with serving(limits=limits) as it:
        it.feed(it.own(), *(message(n, key=str(n), body=bytes(3_000_000)) for n in range(5)))
        async with connect(it.port, receive_buffer=SLOW) as slow, connect(it.port) as again:
            slow.send("pull", our_pull(GROUP, requestId="r-1"))
            await eventually(lambda: it.server.load.dropped["slow_reader_s"] == 1)
            got = await again.pull(GROUP, requestId="r-1")
            assert [(each.leaseId, each.attempt) for each in got.messages] == [
                (n, 1) for n in range(1, 6)
            ]
            slow.abort()


# ---- vanished clients -----------------------------------------------------------------------


def watched(connection: Any, *, within_s: int) -> None:
    """Check that keepalive is enabled on the socket of *connection*."""
    options = connection.transport.get_extra_info("socket")
    assert options.getsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE) == 1
    idle, between, probes = (
        options.getsockopt(socket.IPPROTO_TCP, getattr(socket, name))
        for name in ("TCP_KEEPIDLE", "TCP_KEEPINTVL", "TCP_KEEPCNT")
    )
    assert idle + probes * between == within_s
    assert options.getsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT) == within_s * 1000


@on_both_loops
async def test_the_system_looks_for_clients_that_are_gone() -> None:
    """On accepted connections, and on those that another process accepted."""
    async with running(dead_peer_s=45) as (server, _, port), connect(port) as client:
        assert await acked(client)
        [connection] = server.open.values()
        watched(connection, within_s=45)
        with socket.create_server(("127.0.0.1", 0)) as door:
            async with connect(door.getsockname()[1]) as elsewhere:
                accepted, _ = door.accept()
                adopted = await server.accept_passed(accepted)
                assert await acked(elsewhere)
                watched(adopted, within_s=45)


@pytest.mark.skipif(not hasattr(socket, "TCP_USER_TIMEOUT"), reason="only Linux ends these itself")
@on_both_loops
async def test_a_client_whose_machine_accepts_no_more_bytes_counts_as_gone() -> None:
    """A closed receive window looks like a machine without power."""
    async with (
        running(dead_peer_s=1) as (server, lost, port),
        connect(port, receive_buffer=SLOW) as gone,
    ):
        gone.send("fetch", None)
        await eventually(lambda: server.load.dropped["dead_peer_s"] == 1)
        assert (lost, at_rest(server)) == (["fetch"], True)
        gone.abort()
