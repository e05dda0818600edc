"""Overload: refused requests, their errors, and requests that are still served."""

from __future__ import annotations

import asyncio
import hashlib
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
import structlog
from thrift.Thrift import TApplicationException

from broker_core.clock import now_ns
from broker_core.tasks import spawn
from proxy.downstream.port import server as thrift_server
from proxy.downstream.port.load import Load
from proxy.settings.types import host_port
from testkit.eventually import eventually
from testkit.gateway import run_gateway
from testkit.lanes import GROUP, TOPIC, group_settings
from testkit.messages import keyed, message
from testkit.thrift_client import (
    ThriftClient,
    acked,
    connect,
    ddmq_pull,
    link,
    offsets,
    our_pull,
)
from tests.integration.downstream.loops import on_both_loops
from tests.support.serving import parked, serving
from thin_client import AsyncConsumer, AsyncProducer, Message, Timing
from thrift_idl import consumer, producer

MS = 1_000_000
#: Larger than the read-ahead: it needs room before it is read.
LARGE = 200_000


@asynccontextmanager
async def hog(port: int, load: Load, held_bytes: int) -> AsyncIterator[ThriftClient]:
    """Run a client halfway through a request of *held_bytes*."""
    before = load.used
    async with connect(port) as client:
        client.send_bytes((held_bytes - 4).to_bytes(4) + b"\x82\x21")
        await eventually(lambda: load.used == before + held_bytes)
        yield client


async def refused(client: ThriftClient, method: str, *arguments: Any) -> str:
    """Return the message of an immediate 503."""
    before = now_ns()
    with pytest.raises(consumer.PullException) as told:
        await client.call(method, *arguments)
    assert now_ns() - before < 10_000 * MS
    assert told.value.code == 503
    return str(told.value.message)


# ---- bytes in flight ----------------------------------------------------------------------------


async def test_without_room_a_pull_is_refused_at_once_and_its_acks_are_applied() -> None:
    """Verdicts are always applied, so that memory becomes free."""
    limits = {"max_inflight_bytes": 50_000}
    async with serving(limits=limits) as it, connect(it.port) as client:
        it.feed(it.own(), *(keyed(n, str(n)) for n in range(4)))
        load = it.server.load
        first, second, third = [await client.pull(GROUP, maxBatchSize=1) for _ in range(3)]
        async with hog(it.port, load, 60_000) as hogging:
            sentence = await refused(client, "pull", our_pull(GROUP, acks=[acked(first)]))
            assert "60000 bytes" in sentence
            assert "limits.max_inflight_bytes (50000)" in sentence
            assert it.leased() == 2
            # A repetition, as clients send refused verdicts again, has no effect.
            await refused(client, "pull", our_pull(GROUP, acks=[acked(first)]))
            assert await client.settle(GROUP, acked(second)) == []
            assert await client.extend(GROUP, third, ms=1000) == []
            assert it.lane().counts[TOPIC].acked == 2
            assert load.refused["max_inflight_bytes"] == 2
            hogging.abort()
        await eventually(lambda: not load.used)
        assert offsets(await client.pull(GROUP)) == [3]


async def test_without_room_ddmq_s_clients_get_nothing_and_lose_no_ack() -> None:
    """An exception would stop one of them for seconds and make another drop its acks."""
    limits = {"max_inflight_bytes": 50_000}
    async with serving(limits=limits) as it, connect(it.port) as client:
        it.feed(it.own(), keyed(0, "k"), keyed(1, "l"), keyed(2, "m"))
        got = await client.call("pull", ddmq_pull(GROUP, maxBatchSize=1))
        other = await client.call("pull", ddmq_pull(GROUP, maxBatchSize=1))
        async with hog(it.port, it.server.load, 60_000):
            asked = ddmq_pull(GROUP, linger_ms=100, result=link(got.context, success=[0]))
            before = now_ns()
            assert (await client.call("pull", asked)).messages == []
            assert 95 * MS <= now_ns() - before < 10_000 * MS
            assert await client.call("submit", link(other.context, success=[1])) is True
            assert (it.leased(), it.lane().counts[TOPIC].acked) == (0, 2)


@on_both_loops
async def test_pulls_that_wait_get_nothing_while_there_is_no_room_and_then_at_once() -> None:
    limits = {"max_inflight_bytes": 50_000}
    async with serving(limits=limits) as it, connect(it.port) as client:
        queue = it.own()
        await parked(it, client)
        async with hog(it.port, it.server.load, 60_000) as hogging:
            it.feed(queue, keyed(0, "k"))
            await asyncio.sleep(0.1)
            assert it.leased() == 0
            hogging.abort()
        assert offsets(await client.answer("pull")) == [0]


@on_both_loops
async def test_nothing_is_held_for_a_client_that_went_while_its_pull_waited() -> None:
    async with serving() as it:
        for _ in range(3):
            async with connect(it.port) as client:
                await parked(it, client)
                assert it.server.load.used > 0
            await eventually(lambda: not it.server.open)
        assert it.server.load.used == 0


async def test_sends_and_fetches_are_refused_and_made_again_until_there_is_room(
    tmp_path: Path,
) -> None:
    """Sends get code 15 at once, whether the body was read or not; a thin producer retries."""
    large, held = bytes(LARGE), 950_000
    async with run_gateway(tmp_path) as gateway:
        proxy, at = await gateway.start_proxy(**{"limits.max_inflight_bytes": 1_000_000})
        server, _ = proxy.servers
        port = host_port(at.thrift)[1]
        async with connect(port) as client, hog(port, server.load, held) as hogging:
            assert (await client.call("sendSync", producer.Message(TOPIC, body=b"s"), 0)).code == 0
            too_large = await client.call("sendSync", producer.Message(TOPIC, body=large), 0)
            assert (too_large.code, server.load.refused["max_inflight_bytes"]) == (15, 1)
            assert "limits.max_inflight_bytes" in too_large.msg
            async with hog(port, server.load, 60_000):
                small = producer.Message(topic=TOPIC, body=b"s")
                assert (await client.call("sendSync", small, 0)).code == 15
                asked = consumer.FetchRequest(consumerId="c", groupId=GROUP, cluster="")
                with pytest.raises(TApplicationException, match="max_inflight_bytes"):
                    await client.call("fetch", asked)
                thin = AsyncProducer(at.thrift, timeout_s=60)
                sending = spawn(thin.send(TOPIC, large), name="send")
                await eventually(lambda: server.load.refused["max_inflight_bytes"] > 3)
                assert not sending.done()
            hogging.abort()
            assert await sending
            thin.close()


async def test_overload_gives_no_right_to_settle(
    tmp_path: Path,
) -> None:
    """Acks of a refused pull are applied, so they need authorization like any others."""
    known = {"name": "t", "sha256": hashlib.sha256(b"token").hexdigest()}
    limits = {"limits.max_inflight_bytes": 50_000, "tokens": [known]}
    async with run_gateway(tmp_path) as gateway:
        await gateway.send(["k"])
        proxy, at = await gateway.start_proxy(**limits)
        server, _ = proxy.servers
        port = host_port(at.thrift)[1]
        async with connect(port) as client:
            got = consumer.PullResponse(messages=[])
            while not got.messages:
                got = await client.pull(GROUP, token="token", linger_ms=500)
            async with hog(port, server.load, 60_000):
                for token, code, settled in (("wrong", 401, 0), ("token", 503, 1)):
                    asked = our_pull(GROUP, acks=[acked(got)], token=token)
                    with pytest.raises(consumer.PullException) as told:
                        await client.call("pull", asked)
                    assert told.value.code == code
                    assert len(gateway.events("ack_ok")) == settled


# ---- requests a second --------------------------------------------------------------------------


async def test_more_requests_than_an_address_may_make_are_refused_with_their_acks_applied(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The limit covers all connections of the address, including new ones; later requests are
    served. Requests that settle count, but are served above the limit too.
    """
    limits = {"max_requests_per_s_per_address": 4}
    seconds = 1  # by the server's clock, which does not count the machine's pauses
    monkeypatch.setattr(thrift_server, "now_ns", lambda: seconds * 1000 * MS)
    async with serving(limits=limits) as it, connect(it.port) as one:
        it.feed(it.own(), *(keyed(n, str(n)) for n in range(4)))
        with structlog.testing.capture_logs() as logs:
            got = await one.pull(GROUP, maxBatchSize=1)
            for _ in range(3):
                assert await one.settle(GROUP) == []
            sentence = await refused(one, "pull", our_pull(GROUP, acks=[acked(got)]))
            assert "more than 4 requests a second came from 127.0.0.1" in sentence
            assert it.lane().counts[TOPIC].acked == 1
            async with connect(it.port) as two:
                await refused(two, "pull", our_pull(GROUP))
                assert await two.settle(GROUP) == []
        assert it.server.load.refused["max_requests_per_s_per_address"] == 2
        assert [line["reached"] for line in logs if line["event"] == "request refused"] == [
            "max_requests_per_s_per_address"
        ]
        seconds += 1
        assert offsets(await one.pull(GROUP, maxBatchSize=1)) == [1]


async def test_a_consumer_that_is_refused_again_and_again_loses_and_repeats_nothing() -> None:
    limits = {"max_requests_per_s_per_address": 10}
    async with serving(limits=limits) as it:
        numbers = range(30)
        it.feed(it.own(), *(message(n, key="k", body=b"%d" % n) for n in numbers))
        handled: list[tuple[int, int]] = []
        thin = AsyncConsumer(
            f"127.0.0.1:{it.port}", group=GROUP, timing=Timing(ack_linger_s=0.02), concurrency=4
        )

        async def handle(each: Message) -> None:
            handled.append((int(each.body), each.attempt))
            if len(handled) == len(numbers):
                thin.stop()

        async with asyncio.timeout(60):
            await thin.run(handle, handle_signals=False)
        assert handled == [(n, 1) for n in numbers]
        assert it.lane().counts[TOPIC].acked == len(numbers)
        assert it.server.load.refused["max_requests_per_s_per_address"] > 0


# ---- pulls that wait ----------------------------------------------------------------------------


async def test_a_pull_that_would_be_one_too_many_to_wait_is_refused_at_once() -> None:
    async with serving(limits={"max_waiting_pulls": 2}) as it:
        queue = it.own()
        async with connect(it.port) as one, connect(it.port) as two, connect(it.port) as three:
            await parked(it, one)
            await parked(it, two)
            sentence = await refused(three, "pull", our_pull(GROUP, linger_ms=20_000))
            assert "2 pulls wait at this proxy" in sentence
            assert "limits.max_waiting_pulls" in sentence
            before = now_ns()
            assert (await three.call("pull", ddmq_pull(GROUP, linger_ms=100))).messages == []
            assert now_ns() - before < 10_000 * MS
            assert it.server.load.refused["max_waiting_pulls"] == 2
            it.feed(queue, keyed(0, "k"), keyed(1, "l"))
            assert offsets(await one.answer("pull")) == [0, 1]
            await parked(it, three)  # a waiting pull is allowed again
            two.abort()
            await eventually(lambda: it.lane().presence.waiting_pulls == 1)
            await parked(it, one)


async def test_ready_messages_are_delivered_although_no_further_pull_may_wait() -> None:
    both = group_settings(topics=(TOPIC, "returns"))
    async with serving(both, limits={"max_waiting_pulls": 1}) as it:
        queue = it.own()
        async with connect(it.port) as one, connect(it.port) as two:
            await parked(it, one, maxBatchSize=1)
            it.feed(queue, keyed(0, "k"), keyed(1, "l"))
            assert offsets(await one.answer("pull")) == [0]
            await parked(it, one, topics=["returns"])
            assert offsets(await two.pull(GROUP)) == [1]
