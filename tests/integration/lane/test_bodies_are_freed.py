"""No path of a message leaves its body to the garbage collector, which servers run rarely."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from broker_core.client import BrokerClient
from broker_core.client.producer import Producer
from broker_core.errors import RemotingError
from broker_core.names import Group, Topic
from broker_core.remoting.message import OutgoingMessage
from proxy.app import Proxy
from proxy.lane.group_lane import GroupLane
from testkit.eventually import eventually
from testkit.gateway import Gateway, run_gateway
from testkit.lanes import GROUP
from testkit.messages import message
from testkit.thrift_client import ThriftClient, acked, connect, our_pull
from tests.support.consumers import consuming
from tests.support.garbage import no_body_waits
from tests.support.serving import parked, serving
from thin_client.message import Message, Retry
from thrift_idl import consumer

#: Size of the bodies, larger than anything else that these tests allocate at once.
_BODY = 300_000
_LARGE = _BODY - 1_000


async def test_waiting_pulls_and_broken_connections() -> None:
    async with serving() as it:
        with no_body_waits(_LARGE):
            queue = it.own()
            for number in range(3):
                async with connect(it.port) as client, connect(it.port) as other:
                    await parked(it, client)
                    await parked(it, other, requestId="1")
                    fed = [message(2 * number + n, body=bytes(_BODY), key=f"{n}") for n in (0, 1)]
                    it.feed(queue, *fed)
                    del fed
                    await client.answer("pull")
                    other.abort()
            it.lane().remove(queue)
            del queue
        assert it.memory.used == 0


class _Site(NamedTuple):
    """A gateway with one proxy, its lane of the group and its Thrift port."""

    gateway: Gateway
    proxy: Proxy
    lane: GroupLane
    port: int


@asynccontextmanager
async def _site(tmp_path: Path, **topic: Any) -> AsyncIterator[_Site]:
    """Run a gateway with a proxy."""
    options = {"topic": topic, "ownership": {"leave_after_s": 1, "drain_s": 1}}
    async with run_gateway(tmp_path, queues=2, **options) as gateway:
        proxy, addresses = await gateway.start_proxy()
        lane = proxy.lanes.find(gateway.group)
        assert lane is not None
        yield _Site(gateway, proxy, lane, int(addresses.thrift.rpartition(":")[2]))


async def _send(gateway: Gateway, count: int = 12) -> None:
    await gateway.send([f"k{n % 4}" for n in range(count)], body="{key} {n} " + "x" * _BODY)


async def test_queues_that_are_given_up_with_their_consumers(tmp_path: Path) -> None:
    """Consumers join, take messages, and leave without acks; in the end nothing is counted."""
    async with _site(tmp_path) as (gateway, _, lane, port):
        with no_body_waits(_LARGE):
            await _send(gateway)
            for _ in range(3):
                async with connect(port) as client:
                    got = await client.pull(gateway.group, linger_ms=20_000, maxBatchSize=2)
                    assert got.messages
                    assert lane.memory.used >= _BODY
                    client.abort()
                    del got
                await eventually(lambda: not len(lane.buffer), within_s=120)
                assert lane.memory.used == 0
            await asyncio.sleep(1)


async def test_a_hand_over_to_another_proxy(tmp_path: Path) -> None:
    async with _site(tmp_path) as (gateway, proxy, lane, port):
        with no_body_waits(_LARGE):
            await _send(gateway)
            async with connect(port) as client:
                await client.pull(gateway.group, linger_ms=20_000)
                _, other = await gateway.start_proxy()
                async with consuming(gateway, other.thrift, "two"):
                    await gateway.close_proxy(proxy)
                    await eventually(gateway.all_finished, within_s=120)
        assert lane.memory.used == 0


@pytest.mark.parametrize("on_exhausted", ["park", "dead_letter"])
async def test_retries_copies_and_dead_letters(tmp_path: Path, on_exhausted: str) -> None:
    async def fail(_message: Message) -> None:
        raise Retry

    rules = {"max_deliveries": 2, "retry_intervals_ms": [10], "on_exhausted": on_exhausted}
    async with _site(tmp_path, **rules) as (gateway, proxy, lane, port):
        with no_body_waits(_LARGE):
            await _send(gateway)
            async with consuming(gateway, f"127.0.0.1:{port}", "one", handle=fail):
                await eventually(gateway.all_finished, within_s=120)
            await gateway.close_proxy(proxy)
        assert lane.memory.used == 0


async def test_bulk_readers(tmp_path: Path) -> None:
    async with _site(tmp_path) as (gateway, _, _, port):
        await _send(gateway)
        with no_body_waits(_LARGE):
            for form in (0, 1):
                async with connect(port) as client:
                    assert await _fetched(client, gateway, form) > _BODY
                    client.send("fetch", _fetch(gateway, form))
                    client.abort()
            await asyncio.sleep(2)


def _fetch(gateway: Gateway, form: int) -> consumer.FetchRequest:
    return consumer.FetchRequest(
        consumerId="r1",
        groupId=gateway.group,
        cluster="",
        fetchOffset={gateway.topic: {gateway.queue(0).qid: 0, gateway.queue(1).qid: 0}},
        maxLingerTime=1000,
        maxBatchSize=4,
        format=form,
    )


async def _fetched(client: ThriftClient, gateway: Gateway, form: int) -> int:
    answer = await client.call("fetch", _fetch(gateway, form))
    return sum(
        len(each.records or b"") + sum(len(message.value) for message in each.messages)
        for each in answer.results
    )


async def test_sends_that_fail() -> None:
    """No broker answers: each failure refers to the frames that had the message."""
    client = BrokerClient(nameservers=["127.0.0.1:1"], client_id="x@1#1", request_timeout_s=0.5)
    await client.start()
    try:
        with no_body_waits(_LARGE):
            for _ in range(3):
                sent = OutgoingMessage(Topic("orders"), bytes(_BODY), key="k")
                with pytest.raises(RemotingError):
                    await Producer(client, group=Group("p")).send(sent, timeout_s=1)
                del sent
    finally:
        await client.close()


async def test_acks_of_runs() -> None:
    async with serving() as it, connect(it.port) as client:
        with no_body_waits(_LARGE):
            queue = it.own()
            it.feed(queue, *(message(n, body=bytes(_BODY), key="k") for n in range(6)))
            got = await client.pull(GROUP, maxRun=4)
            assert len(got.messages) > 1
            await client.pull(GROUP, acks=[acked(got, got.messages[0].leaseId)], maxRun=4)
            client.send("pull", our_pull(GROUP, maxRun=4))
            it.lane().remove(queue)
            del queue, got
