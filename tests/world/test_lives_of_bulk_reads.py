"""A bulk reader has offsets of one life of a topic, and gets no row of the next one for them."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import cast

import pytest

from broker_core.client.broker_client import BrokerClient
from broker_core.names import QueueName, Topic
from broker_core.remoting.message import OutgoingMessage, decode_messages
from testkit.broker_process import Cluster, run_broker
from testkit.lanes import GROUP, TOPIC
from tests.support.fake_broker_client import FakeBrokerClient, bulk
from thin_client.spark.bulk_client import BulkClient, DataLost
from thin_client.spark.offsets import Slice
from thin_client.spark.options import Connecting


@pytest.fixture
async def cluster(tmp_path: Path) -> AsyncIterator[Cluster]:
    async with run_broker(tmp_path, auto_create_topics=False) as running:
        yield running


async def send(client: BrokerClient, queue: QueueName, name: str, messages: int) -> None:
    for number in range(messages):
        await client.send(queue, OutgoingMessage(queue.topic, b"%s %d" % (name.encode(), number)))


async def recreate(cluster: Cluster, client: BrokerClient, messages: int) -> None:
    await client.deletions.delete_topic(Topic(TOPIC))
    (queue,) = await cluster.create_topic(Topic(TOPIC), queues=1)
    await send(client, queue, "new", messages)


def reader(port: int) -> BulkClient:
    connecting = Connecting(
        servers=(f"127.0.0.1:{port}",),
        group=GROUP,
        token=None,
        tls=None,
        request_timeout_s=5.0,
        consumer_id="spark",
    )
    return BulkClient(connecting, patience_s=10.0)


def next_bodies(chunks: Iterator[bytes]) -> list[bytes]:
    return [message.body for message in decode_messages(next(chunks))]


@pytest.mark.parametrize("again", [3, 10, 40])
@pytest.mark.parametrize("begun", [False, True], ids=["planned", "half read"])
async def test_a_slice_of_a_former_life_is_lost_however_long_the_next_one_is(
    cluster: Cluster, begun: bool, again: int
) -> None:
    (queue,) = await cluster.create_topic(Topic(TOPIC), queues=1)
    client = await cluster.client()
    await send(client, queue, "old", 10)
    async with bulk(cast(FakeBrokerClient, client)) as (it, _):
        spark = reader(it.port)
        (state,) = await asyncio.to_thread(spark.ranges, [TOPIC])
        assert state.life is not None
        part = Slice(TOPIC, queue.qid, 0, state.end, state.life)
        chunks = spark.records(part, batch_bytes=1)
        if begun:  # and the next chunk, requested ahead, may still be of the old life
            assert await asyncio.to_thread(next_bodies, chunks) == [b"old 0"]
        await recreate(cluster, client, again)
        found: list[bytes] = []

        def read_on() -> None:
            while True:
                found.extend(next_bodies(chunks))

        with pytest.raises(DataLost) as lost:
            await asyncio.to_thread(read_on)
        assert all(body.startswith(b"old") for body in found)
        assert lost.value.first_there == part.end
        (state,) = await asyncio.to_thread(spark.ranges, [TOPIC])
        anew = Slice(TOPIC, queue.qid, 0, state.end, state.life)
        rows = await asyncio.to_thread(list, spark.records(anew, batch_bytes=1 << 20))
        assert sum(len(decode_messages(each)) for each in rows) == again
        spark.close()
