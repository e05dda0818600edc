"""Bytes in flight: when they count, and how requests without room are handled."""

from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from typing import Any

import pytest
from thrift.Thrift import TApplicationException

from proxy.downstream.port.connection import Entry, Reply, awaiting
from proxy.downstream.port.server import ThriftServer
from proxy.settings.proxy_settings import LimitSettings
from testkit.eventually import eventually
from testkit.thrift_client import connect, frame_of
from tests.integration.downstream.loops import on_both_loops
from thrift_idl import consumer, consumer_service

#: Larger than the read-ahead: it needs room before it is read.
LARGE = 200_000


def large_ack(sequence_id: int) -> bytes:
    """A call of LARGE bytes."""
    result = consumer.AckResult(consumerId="x" * LARGE)
    return frame_of("ack", consumer_service.ack_args(result=result), sequence_id=sequence_id)


@asynccontextmanager
async def running(
    limit: int, entries: dict[str, Entry] | None = None
) -> AsyncIterator[tuple[ThriftServer, int]]:
    """Run a server whose ``ack`` answers True."""

    def ack(_arguments: Any, reply: Reply) -> None:
        reply(consumer_service.ack_result(success=True))

    methods = {"ack": Entry(consumer_service.ack_args, ack), **(entries or {})}
    server = ThriftServer(methods, LimitSettings(max_inflight_bytes=limit))
    try:
        yield server, await server.listen("127.0.0.1", 0)
    finally:
        await server.close(grace_s=0.2)


@on_both_loops
async def test_of_a_large_request_without_room_the_head_is_kept_and_it_is_answered() -> None:
    """The connection continues, and earlier requests complete."""
    async with running(LARGE * 3 // 2) as (server, port), connect(port) as client:
        whole = large_ack(1)
        async with connect(port) as early:
            early.send_bytes(whole[: LARGE // 2])
            await eventually(lambda: server.load.used == len(whole))
            for start in range(0, len(whole), 50_000):
                client.send_bytes(whole[start : start + 50_000])
                await client.writer.drain()
                await asyncio.sleep(0.01)
                assert server.load.used < len(whole) + 1000
            with pytest.raises(TApplicationException, match="setting limits") as told:
                await client.answer("ack", number=1)
            assert told.value.type == TApplicationException.INTERNAL_ERROR
            early.send_bytes(whole[LARGE // 2 :])
            assert await early.answer("ack", number=1) is True
        client.send_bytes(large_ack(2) + large_ack(3))
        for number in (2, 3):
            assert await client.answer("ack", number=number) is True
        await eventually(lambda: server.load.used == 0)
        assert server.load.refused["max_inflight_bytes"] == 1


async def test_a_request_is_held_until_its_method_ends_even_if_its_client_has_gone() -> None:
    """Otherwise clients that reconnect could make a proxy hold unlimited memory."""
    ends = asyncio.Event()

    async def ranges(_arguments: Any, _reply: Reply) -> Any:
        await ends.wait()
        return consumer_service.ranges_result(success=[])

    entries = {"ranges": Entry(consumer_service.ranges_args, awaiting(ranges))}
    async with running(1 << 20, entries) as (server, port):
        request = consumer.RangesRequest(groupId="g", topics=["t" * LARGE])
        async with connect(port) as client:
            client.send("ranges", request)
            await eventually(lambda: len(server.begun) == 0 and server.load.used > LARGE)
            await asyncio.sleep(0.1)
        await eventually(lambda: not server.open)
        assert server.load.used > LARGE
        ends.set()
        await eventually(lambda: server.load.used == 0)


async def test_the_bytes_of_one_connection_are_bounded() -> None:
    """A request in progress, the read-ahead behind it, and one read of the loop; no more."""
    waiting: list[Reply] = []

    def submit(_arguments: Any, reply: Reply) -> None:
        waiting.append(reply)

    entries = {"submit": Entry(consumer_service.submit_args, submit)}
    async with running(1 << 30, entries) as (server, port), connect(port) as client:
        client.send("submit", None)
        await eventually(lambda: bool(waiting))
        client.send_bytes(b"".join(large_ack(n) for n in range(1, 100)))
        await asyncio.sleep(0.2)
        assert server.load.used <= 65_536 + 262_144 + 100
        waiting[0](consumer_service.submit_result(success=True))
        assert await client.answer("submit") is True
        for number in range(1, 100):
            assert await client.answer("ack", number=number) is True
        await eventually(lambda: server.load.used == 0)


@on_both_loops
async def test_whatever_clients_do_nothing_is_held_in_the_end() -> None:
    """A byte that is never released would, within a year, block all clients."""
    chance = random.Random(20_26)

    async def ranges(_arguments: Any, _reply: Reply) -> Any:
        await asyncio.sleep(chance.random() / 50)
        return consumer_service.ranges_result(success=[])

    def fetch(_arguments: Any, reply: Reply) -> None:
        message = consumer.Message(value=bytes(8_000_000), offset=0)
        response = consumer.QidResponse(topic="t", qid="q_0", messages=[message])
        answer = consumer.FetchResponse(results=[response])
        reply(consumer_service.fetch_result(success=answer))

    entries = {
        "ranges": Entry(consumer_service.ranges_args, awaiting(ranges)),
        "fetch": Entry(consumer_service.fetch_args, fetch),
    }
    calls = [large_ack(1), frame_of("fetch", consumer_service.fetch_args(request=None))]
    for size in (1, 1000, 100_000):
        request = consumer.RangesRequest(groupId="g", topics=["t" * size])
        calls.append(frame_of("ranges", consumer_service.ranges_args(request=request)))
    seen: set[str] = set()

    async def come_and_go(port: int) -> None:
        async with connect(port) as client:
            sent = b"".join(chance.choices(calls, k=chance.randint(1, 6)))
            sent = sent[: chance.randint(1, len(sent) * 2)]
            at = 0
            while at < len(sent):
                size = chance.choice((3, 100, 70_000, 300_000))
                client.send_bytes(sent[at : at + size])
                at += size
                await asyncio.sleep(0)
            if chance.random() < 0.5:
                with suppress(TimeoutError, ConnectionError):
                    async with asyncio.timeout(chance.random() / 5):
                        while await client.reader.read(1 << 16):
                            seen.add("answers")
            client.abort()

    async with running(600_000, entries) as (server, port):
        for _ in range(12):
            await asyncio.gather(*(come_and_go(port) for _ in range(8)))
            seen.add("refusals" if server.load.refused["max_inflight_bytes"] else "none")
        await eventually(lambda: not server.open)
        await eventually(lambda: server.load.used == 0)
        assert seen >= {"answers", "refusals"}
        assert len(server.begun) == len(server.unread) == 0
