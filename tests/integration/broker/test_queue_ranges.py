"""The offsets of many queues by one request, and how brokers without it are asked."""

from __future__ import annotations

from collections import Counter
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from broker_core.client import QueueRange
from broker_core.client.queue_ranges import runs
from broker_core.client.requests import BrokerRequests
from broker_core.errors import BrokerError, RemoteProtocolError
from broker_core.names import Group, QueueName, Topic
from broker_core.remoting.codes import RequestCode, ResponseCode
from broker_core.remoting.message import OutgoingMessage
from broker_core.remoting.queue_ranges import MAX_QUEUES, RangeEntry, ranges_from_bytes
from testkit.broker_process import Cluster, run_broker

ORDERS, BILLING = Topic("orders"), Group("billing")


@pytest.fixture
async def cluster(tmp_path: Path) -> AsyncIterator[Cluster]:
    async with run_broker(tmp_path) as running:
        yield running


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> Counter[int]:
    """Requests of clients to brokers, by code."""
    seen: Counter[int] = Counter()
    real = BrokerRequests.ask

    async def ask(self: BrokerRequests, broker: str, code: RequestCode, *a: Any, **k: Any) -> Any:
        seen[code] += 1
        if code in refused:
            raise BrokerError(refused[code], "no", request="ranges")
        return await real(self, broker, code, *a, **k)

    monkeypatch.setattr(BrokerRequests, "ask", ask)
    refused.clear()
    return seen


#: Codes that brokers refuse, and how.
refused: dict[int, int] = {}


async def test_all_queues_of_a_topic_are_asked_for_at_once(
    cluster: Cluster, asked: Counter[int]
) -> None:
    queues = await cluster.create_topic(ORDERS, queues=MAX_QUEUES + 3)
    client = await cluster.client()
    await client.send(queues[1], OutgoingMessage(ORDERS, b"x"))
    await client.commit_offset(BILLING, queues[1], 1)
    await client.commit_offset(BILLING, queues[-1], 0)
    life = await client.life(queues[0])
    asked.clear()
    found = await client.queue_ranges(queues, group=BILLING)
    assert asked == {RequestCode.READ_RANGES: 2}
    assert list(found) == queues
    assert found[queues[0]] == QueueRange(0, 0, None, life)
    assert found[queues[1]] == QueueRange(0, 1, 1, life)
    assert found[queues[-1]] == QueueRange(0, 0, 0, life)
    assert (await client.queue_ranges([queues[1]]))[queues[1]] == QueueRange(0, 1, None, life)
    assert await client.queue_ranges([]) == {}


async def test_another_broker_is_asked_once_per_topic_and_for_each_committed_offset(
    cluster: Cluster, asked: Counter[int]
) -> None:
    queues = await cluster.create_topic(ORDERS, queues=3)
    client = await cluster.client()
    await client.send(queues[2], OutgoingMessage(ORDERS, b"x"))
    await client.commit_offset(BILLING, queues[2], 1)
    refused[RequestCode.READ_RANGES] = ResponseCode.REQUEST_CODE_NOT_SUPPORTED
    asked.clear()
    ranges = [QueueRange(0, 0), QueueRange(0, 0), QueueRange(0, 1)]
    assert await client.queue_ranges(queues) == dict(zip(queues, ranges, strict=True))
    assert asked == {RequestCode.READ_RANGES: 1, RequestCode.GET_TOPIC_STATS_INFO: 1}
    ranges[2] = QueueRange(0, 1, 1)
    asked.clear()
    assert await client.queue_ranges(queues, group=BILLING) == dict(
        zip(queues, ranges, strict=True)
    )
    assert asked == {RequestCode.GET_TOPIC_STATS_INFO: 1, RequestCode.QUERY_CONSUMER_OFFSET: 3}
    with pytest.raises(RemoteProtocolError, match="without queue 9"):
        await client.queue_ranges([QueueName(ORDERS, queues[0].broker, 9)])


async def test_an_error_of_the_broker_is_the_callers(cluster: Cluster, asked: Counter[int]) -> None:
    queues = await cluster.create_topic(ORDERS, queues=1)
    client = await cluster.client()
    refused[RequestCode.READ_RANGES] = ResponseCode.SYSTEM_ERROR
    with pytest.raises(BrokerError):
        await client.queue_ranges(queues)


async def test_too_many_queues_are_refused(cluster: Cluster) -> None:
    client = await cluster.client()
    (queue,) = await cluster.create_topic(ORDERS, queues=1)
    for count in ("0", str(MAX_QUEUES + 1)):
        ext = {"topic": ORDERS, "queueId": "0", "count": count}
        with pytest.raises(BrokerError, match=f"count is {count}"):
            await client.requests.ask(queue.broker, RequestCode.READ_RANGES, ext)


def test_queue_ids_are_asked_for_in_runs() -> None:
    assert runs([]) == []
    assert runs([0, 1, 2, 5, 6, 9]) == [range(3), range(5, 7), range(9, 10)]
    assert runs(range(MAX_QUEUES + 1)) == [range(MAX_QUEUES), range(MAX_QUEUES, MAX_QUEUES + 1)]


def test_an_answer_has_an_entry_for_each_queue() -> None:
    assert ranges_from_bytes(bytes(16) + b"\xff" * 8, 1) == [RangeEntry(0, 0, None)]
    with pytest.raises(RemoteProtocolError, match="an answer of 24 bytes for 2 queues"):
        ranges_from_bytes(bytes(24), 2)
