"""The bulk client requests the next chunk while its caller processes the current one."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager

from testkit.scripted_proxy import ScriptedProxy
from tests.integration.thin_client.spark.bulk_site import (
    QID,
    TOPIC,
    answers,
    client_of,
    hangs_up,
    has,
    stored,
)
from thin_client.spark.bulk_client import BulkClient
from thin_client.spark.offsets import QueueState, Slice

PART = Slice(TOPIC, QID, 0, 2)


@asynccontextmanager
async def reading(proxy: ScriptedProxy) -> AsyncIterator[tuple[BulkClient, Iterator[bytes]]]:
    """A reader of PART after its first chunk."""
    client = client_of(proxy)
    chunks = client.records(PART, batch_bytes=1 << 20)
    assert await asyncio.to_thread(next, chunks) == stored(0)
    try:
        yield client, chunks
    finally:
        client.close()


async def test_the_next_chunk_is_asked_for_before_it_is_wanted() -> None:
    async with ScriptedProxy() as proxy:
        proxy.script("fetch", answers(1, 0), answers(2, 1))
        async with reading(proxy) as (_, chunks):
            await proxy.until(lambda: len(proxy.of("fetch")) == 2)
            assert await asyncio.to_thread(list, chunks) == [stored(1)]
    assert len(proxy.of("fetch")) == 2


async def test_an_answer_that_was_asked_for_ahead_and_lost_is_asked_for_again() -> None:
    async with ScriptedProxy() as proxy:
        proxy.script("fetch", answers(1, 0), hangs_up, answers(2, 1))
        async with reading(proxy) as (_, chunks):
            await proxy.until(lambda: len(proxy.of("fetch")) == 2)
            assert await asyncio.to_thread(list, chunks) == [stored(1)]


async def test_another_question_meanwhile_gets_its_own_answer() -> None:
    """The pending answer is abandoned, and requested again."""
    async with ScriptedProxy() as proxy:
        proxy.script("fetch", answers(1, 0), answers(2, 1), answers(2, 1))
        proxy.script("ranges", has(0, 2))
        async with reading(proxy) as (client, chunks):
            found = await asyncio.to_thread(client.ranges, [TOPIC])
            assert found == [QueueState(TOPIC, QID, 0, 2)]
            assert await asyncio.to_thread(list, chunks) == [stored(1)]


async def test_a_reader_that_stops_early_leaves_a_client_that_works() -> None:
    async with ScriptedProxy() as proxy:
        proxy.script("fetch", answers(1, 0), answers(2, 1), answers(8, 7))
        async with reading(proxy) as (client, chunks):
            await proxy.until(lambda: len(proxy.of("fetch")) == 2)
            await asyncio.to_thread(chunks.close)  # type: ignore[attr-defined]
            other = client.records(Slice(TOPIC, QID, 7, 8), batch_bytes=1 << 20)
            assert await asyncio.to_thread(list, other) == [stored(7)]


async def test_nothing_is_asked_for_behind_the_slice() -> None:
    async with ScriptedProxy() as proxy:
        proxy.script("fetch", answers(2, 0, 1))
        client = client_of(proxy)
        chunks = client.records(PART, batch_bytes=1 << 20)
        assert await asyncio.to_thread(next, chunks) == stored(0, 1)
        proxy.script("ranges", has(0, 2))
        await asyncio.to_thread(client.ranges, [TOPIC])
        client.close()
    assert [request.method for request in proxy.requests] == ["fetch", "ranges"]
