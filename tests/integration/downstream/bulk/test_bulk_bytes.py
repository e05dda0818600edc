"""Fetch of stored records on real brokers: the same bytes as at the broker, at each offset."""

from __future__ import annotations

from dataclasses import fields
from pathlib import Path

import pytest

from broker_core.names import Group, QueueName
from broker_core.remoting.message import StoredMessage, decode_messages
from testkit.brokers import Brokers
from testkit.gateway import Gateway, run_gateway
from testkit.thrift_client import ThriftClient, connect
from thrift_idl import consumer

_COUNT = 3000


async def _fetched(
    client: ThriftClient, gateway: Gateway, begin: int, end: int
) -> tuple[dict[str, bytes], int]:
    """Return, by qid, the records from *begin* to *end* of both queues, and the number of calls."""
    records = {"0": b"", "1": b""}
    at = dict.fromkeys(records, begin)
    broker = gateway.cluster.broker_name
    calls = 0
    while min(at.values()) < end:
        calls += 1
        request = consumer.FetchRequest(
            consumerId="r1",
            groupId=gateway.group,
            cluster="",
            fetchOffset={gateway.topic: {f"{broker}_{n}": at[n] for n in at if at[n] < end}},
            maxLingerTime=1000,
            maxBatchSize=end - min(at.values()),
            format=1,
        )
        for each in (await client.call("fetch", request)).results:
            number = each.qid.rpartition("_")[2]
            records[number] += each.records
            at[number] = each.nextRequestOffset
    return records, calls


async def _pulled(gateway: Gateway, queue: QueueName, begin: int, end: int) -> list[StoredMessage]:
    messages: list[StoredMessage] = []
    while (offset := begin + len(messages)) < end:
        result = await gateway.client.pull(queue, group=Group("other"), offset=offset)
        messages += result.messages
    return messages[: end - begin]


def _all_of(message: StoredMessage) -> list[object]:
    return [getattr(message, each.name) for each in fields(message) if each.name != "_properties"]


@pytest.mark.feature("bulk readers: records as stored")
async def test_records_equal_the_stored_bytes(tmp_path: Path, brokers: Brokers) -> None:
    async with run_gateway(tmp_path, brokers=brokers, queues=2) as gateway:
        _, addresses = await gateway.start_proxy()
        # Keys "a" and "b" hash to different queues; the body's length distinguishes them.
        await gateway.send(["a", "b"] * _COUNT, body='{{"key": "{key}", "n": {n}}}' + 200 * "ä")
        port = int(addresses.thrift.rpartition(":")[2])
        async with connect(port) as client:
            records, calls = await _fetched(client, gateway, 7, _COUNT)
        assert calls <= 40  # Apache brokers give 32 messages a pull: 94 pulls a queue
        for number, found in records.items():
            expected = await _pulled(gateway, gateway.queue(int(number)), 7, _COUNT)
            messages = decode_messages(found, check_crc=True)
            assert [each.queue_offset for each in messages] == list(range(7, _COUNT))
            assert list(map(_all_of, messages)) == list(map(_all_of, expected))
