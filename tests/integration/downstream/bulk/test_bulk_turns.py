"""Bulk readers are limited by their own rate and yield to thin clients; nothing else is slowed."""

from __future__ import annotations

from typing import Any

import pytest

from broker_core.clock import now_ns
from broker_core.names import Group
from proxy.downstream.bulk import fetch as bulk_fetch
from testkit.lanes import GROUP, TOPIC
from testkit.messages import keyed, message
from testkit.thrift_client import ThriftClient, connect, our_pull
from tests.support.fake_broker_client import FakeBrokerClient, bulk
from thrift_idl import consumer

SECOND = 1_000_000_000
#: A portion is 64 KiB, the messages are about 1 MB: half a second for each portion.
RATE, COUNT = 131_072, 1000


@pytest.fixture(autouse=True)
def patient(monkeypatch: pytest.MonkeyPatch) -> None:
    """Prevent a slow machine from shortening answers."""
    monkeypatch.setattr(bulk_fetch, "COLLECT_NS", 60 * SECOND)


both_formats = pytest.mark.parametrize("kind", [0, 1])


def some_messages() -> FakeBrokerClient:
    broker = FakeBrokerClient(orders=1)
    broker.store(*(message(n, body=bytes(900)) for n in range(COUNT)))
    return broker


async def fetch(
    client: ThriftClient, offset: int, *, kind: int, linger_ms: int, group: str = GROUP
) -> int:
    """Return the next offset."""
    request = consumer.FetchRequest(
        consumerId="r1",
        groupId=group,
        cluster="",
        fetchOffset={TOPIC: {"broker-a_0": offset}},
        maxLingerTime=linger_ms,
        format=kind,
    )
    (answer,) = (await client.call("fetch", request)).results
    assert bool(answer.records) + bool(answer.messages) == (answer.nextRequestOffset > offset)
    return int(answer.nextRequestOffset)


async def use_up(client: ThriftClient, *, kind: int) -> int:
    """Fetch until a non-waiting reader gets nothing; return the next offset."""
    offset = 0
    while (following := await fetch(client, offset, kind=kind, linger_ms=20)) > offset:
        offset = following
    assert 0 < offset < COUNT
    return offset


@both_formats
async def test_a_reader_above_the_limit_waits_and_then_goes_on(kind: int) -> None:
    async with (
        bulk(some_messages(), limits={"bulk_bytes_per_s": RATE}) as (it, service),
        connect(it.port) as client,
    ):
        offset = await use_up(client, kind=kind)
        before = now_ns()
        following = await fetch(client, offset, kind=kind, linger_ms=30_000)
        assert offset < following < COUNT
        assert now_ns() - before < 25 * SECOND, "it waits for its turn, not for its linger"
        counts = service.counts[Group(GROUP)]
        assert counts.read_bytes >= following * 900
        assert 0 < counts.held_back_ns < 27 * SECOND


@pytest.mark.parametrize("beside", [RATE, None])
async def test_beside_thin_clients_bulk_readers_give_way(beside: int | None) -> None:
    limits: Any = {"bulk_bytes_per_s_beside_clients": beside}
    async with (
        bulk(some_messages(), limits=limits) as (it, _),
        connect(it.port) as client,
    ):
        assert await fetch(client, 0, kind=1, linger_ms=20) == COUNT  # there is no other client
        it.feed(it.own(), *(keyed(n, f"k{n}") for n in range(10)))
        came = []
        async with connect(it.port) as thin:
            for _ in range(10):  # on a slow machine the clients of a second ago are gone by now
                pulled = await thin.call("pull", our_pull(GROUP, maxBatchSize=1))
                assert len(pulled.messages) == 1
                came.append(await fetch(client, 0, kind=1, linger_ms=1000))
                if came[-1] < COUNT:
                    break
        assert min(came) > 0
        assert (min(came) < COUNT) is (beside is not None)


async def test_fetches_without_a_queue_are_not_counted() -> None:
    """Group names come from unauthenticated requests."""
    async with (
        bulk(some_messages(), limits={"bulk_bytes_per_s": RATE}) as (it, service),
        connect(it.port) as client,
    ):
        for kind in (0, 1):
            assert await fetch(client, 3, kind=kind, linger_ms=20, group="unknown") == 3
        assert dict(service.counts) == {}
