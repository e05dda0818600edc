"""Fetch of stored records, over loopback, on queues in memory."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from broker_core.client import PulledRecords
from broker_core.clock import now_ns
from broker_core.errors import ConnectionLost
from broker_core.names import QueueName
from broker_core.remoting.message import decode_messages
from broker_core.tasks import spawn
from proxy.downstream.bulk import fetch as bulk_fetch
from testkit.eventually import eventually
from testkit.lanes import GROUP, TOPIC, group_settings
from testkit.messages import message, record
from testkit.thrift_client import ThriftClient, connect
from tests.support.fake_broker_client import FakeBrokerClient, bulk, queue
from thrift_idl import consumer

SECOND = 1_000_000_000


@pytest.fixture(autouse=True)
def patient(monkeypatch: pytest.MonkeyPatch) -> None:
    """Prevent a slow machine from shortening answers."""
    monkeypatch.setattr(bulk_fetch, "COLLECT_NS", 60 * SECOND)


async def fetch(
    client: ThriftClient,
    offsets: dict[str, int] | None,
    *,
    linger_ms: int = 20,
    most: int | None = None,
    group: str = GROUP,
    without_bodies: bool | None = None,
) -> dict[str, tuple[int, bytes]]:
    """Return, by qid, the next offset and the records."""
    request = consumer.FetchRequest(
        consumerId="r1",
        groupId=group,
        cluster="",
        fetchOffset=None if offsets is None else {TOPIC: offsets},
        maxLingerTime=linger_ms,
        maxBatchSize=most,
        format=1,
        withoutBodies=without_bodies,
    )
    response = await client.call("fetch", request)
    assert not any(each.messages for each in response.results)
    return {each.qid: (each.nextRequestOffset, each.records) for each in response.results}


def offsets_of(answer: dict[str, tuple[int, bytes]]) -> dict[str, tuple[int, list[int]]]:
    return {
        qid: (next_offset, [each.queue_offset for each in decode_messages(records)])
        for qid, (next_offset, records) in answer.items()
    }


async def test_records_come_as_they_are_stored_from_the_offsets_named() -> None:
    broker = FakeBrokerClient(orders=2)
    stored = [message(n, key=f"k{n}", tag="t", body=b"body %d" % n, more="x") for n in range(5)]
    broker.store(*stored)
    async with bulk(broker) as (it, _), connect(it.port) as client:
        assert await fetch(client, {"broker-a_0": 2, "broker-a_1": 0}) == {
            "broker-a_0": (5, b"".join(map(record, stored[2:]))),
            "broker-a_1": (0, b""),
        }


async def test_one_answer_takes_many_pulls_and_no_heed_of_the_groups_batch() -> None:
    broker = FakeBrokerClient(orders=2)
    broker.most_pulled = 32
    for queue_id in range(2):
        broker.store(*(message(n, queue_id=queue_id) for n in range(1000)))
    async with (
        bulk(broker, group_settings(max_pull_batch=3)) as (it, _),
        connect(it.port) as client,
    ):
        answer = offsets_of(await fetch(client, {"broker-a_0": 100, "broker-a_1": 0}))
        assert answer == {
            "broker-a_0": (1000, list(range(100, 1000))),
            "broker-a_1": (1000, list(range(1000))),
        }
        assert len(broker.pulls) == 29 + 32


async def test_the_reader_bounds_the_messages_of_a_queue() -> None:
    broker = FakeBrokerClient(orders=2)
    broker.most_pulled = 4
    for queue_id in range(2):
        broker.store(*(message(n, queue_id=queue_id) for n in range(100)))
    async with bulk(broker) as (it, _), connect(it.port) as client:
        answer = await fetch(client, {"broker-a_0": 0, "broker-a_1": 97}, most=10)
        assert offsets_of(answer) == {
            "broker-a_0": (10, list(range(10))),
            "broker-a_1": (100, [97, 98, 99]),
        }


async def test_an_answer_stops_at_its_limit_of_bytes_and_the_next_goes_on() -> None:
    broker = FakeBrokerClient(orders=2)
    for queue_id in range(2):
        broker.store(*(message(n, queue_id=queue_id, body=bytes(2000)) for n in range(20)))
    seen: dict[str, list[int]] = {"broker-a_0": [], "broker-a_1": []}
    at = dict.fromkeys(seen, 0)
    async with (
        bulk(broker, limits={"max_answer_bytes": 10_000}) as (it, _),
        connect(it.port) as client,
    ):
        while at != dict.fromkeys(seen, 20):
            answer = await fetch(client, at)
            assert 0 < sum(len(records) for _, records in answer.values()) < 15_000
            for qid, (next_offset, offsets) in offsets_of(answer).items():
                seen[qid] += offsets
                at[qid] = next_offset
    assert list(seen.values()) == [list(range(20))] * 2


async def test_offsets_that_retention_deleted_are_jumped_over_without_records() -> None:
    """The reader decides whether that is a loss."""
    broker = FakeBrokerClient(orders=2)
    broker.store(*(message(n) for n in range(9)))
    broker.lowest[queue(0)] = 6
    async with bulk(broker) as (it, _), connect(it.port) as client:
        before = now_ns()
        answer = await fetch(client, {"broker-a_0": 2, "broker-a_1": 7}, linger_ms=20_000)
        assert answer == {"broker-a_0": (6, b""), "broker-a_1": (0, b"")}
        assert now_ns() - before < 15 * SECOND
        assert offsets_of(await fetch(client, {"broker-a_0": 6})) == {"broker-a_0": (9, [6, 7, 8])}


async def test_a_message_ends_the_wait() -> None:
    broker = FakeBrokerClient(orders=3)
    async with bulk(broker) as (it, _), connect(it.port) as client:
        places = {f"broker-a_{n}": 0 for n in range(3)}
        waiting = spawn(fetch(client, places, linger_ms=20_000), name="fetch")
        await eventually(lambda: len(broker.pulls) == 6)
        arrived = message(0, queue_id=1)
        broker.store(arrived)
        assert await waiting == {
            "broker-a_0": (0, b""),
            "broker-a_1": (1, record(arrived)),
            "broker-a_2": (0, b""),
        }


@pytest.mark.parametrize("failing", [False, True])
async def test_an_empty_fetch_waits_for_the_linger(failing: bool) -> None:
    broker = FakeBrokerClient(orders=1)
    if failing:
        broker.fails["pull"] = ConnectionLost("gone")
    async with bulk(broker) as (it, _), connect(it.port) as client:
        before = now_ns()
        assert await fetch(client, {"broker-a_0": 0}, linger_ms=150) == {"broker-a_0": (0, b"")}
        assert now_ns() - before >= 0.145 * SECOND


async def test_unreadable_positions_are_kept_and_hide_no_others() -> None:
    broker = FakeBrokerClient(orders=2)
    broker.store(message(0), message(1))
    broker.fails["pull", queue(1)] = ConnectionLost("gone")
    places = {"nonsense": 5, "broker-a_1": 7, "broker-a_9": 3, "broker-a_0": 1}
    async with bulk(broker) as (it, _), connect(it.port) as client:
        answer = await fetch(client, places)
        assert list(answer) == list(places)
        assert offsets_of(answer) == {
            "nonsense": (5, []),
            "broker-a_1": (7, []),
            "broker-a_9": (3, []),
            "broker-a_0": (2, [1]),
        }
        assert await fetch(client, places, group="bling") == {
            qid: (offset, b"") for qid, offset in places.items()
        }


async def test_without_offsets_a_reader_has_its_share() -> None:
    broker = FakeBrokerClient(orders=2)
    broker.store(*(message(n, queue_id=1) for n in range(3)))
    async with bulk(broker) as (it, _), connect(it.port) as client:
        answer = await fetch(client, None)
        assert offsets_of(answer) == {"broker-a_0": (0, []), "broker-a_1": (3, [0, 1, 2])}


class _DeletingBroker(FakeBrokerClient):
    """Like Apache's broker while it deletes a log file: its offsets are skipped."""

    gone: range = range(0)

    async def pull_records(
        self, queue: QueueName, *, offset: int, max_messages: int, **given: Any
    ) -> PulledRecords:
        at = self.gone.stop if offset in self.gone else offset
        most = max_messages - (at - offset)
        return await super().pull_records(queue, offset=at, max_messages=most, **given)


async def test_offsets_silently_skipped_by_a_broker_are_a_jump_as_well() -> None:
    broker = _DeletingBroker(orders=1)
    broker.store(*(message(n) for n in range(9)))
    broker.most_pulled = 3
    broker.gone = range(3, 5)
    async with bulk(broker) as (it, _), connect(it.port) as client:
        first = await fetch(client, {"broker-a_0": 0})
        assert offsets_of(first) == {"broker-a_0": (3, [0, 1, 2])}
        assert await fetch(client, {"broker-a_0": 3}) == {"broker-a_0": (5, b"")}
        rest = await fetch(client, {"broker-a_0": 5})
        assert offsets_of(rest) == {"broker-a_0": (9, [5, 6, 7, 8])}


async def test_offsets_skipped_between_the_records_of_a_pull_are_a_jump_as_well() -> None:
    """Apache's brokers leave out the rest of a file that retention deletes during a pull."""

    class Broker(FakeBrokerClient):
        async def pull_records(self, queue: QueueName, **given: Any) -> PulledRecords:
            pulled = await super().pull_records(queue, **given)
            there = [record(each) for each in self.stored[queue][given["offset"] :]]
            if given["offset"] == 0:
                del there[2:5]
            elif given["offset"] < 5:
                there = there[5 - given["offset"] :]
            return replace(pulled, records=b"".join(there), next_offset=9)

    broker = Broker(orders=1)
    broker.store(*(message(n) for n in range(9)))
    async with bulk(broker) as (it, _), connect(it.port) as client:
        first = await fetch(client, {"broker-a_0": 0})
        assert offsets_of(first) == {"broker-a_0": (2, [0, 1])}
        assert await fetch(client, {"broker-a_0": 2}) == {"broker-a_0": (5, b"")}
        rest = await fetch(client, {"broker-a_0": 5})
        assert offsets_of(rest) == {"broker-a_0": (9, [5, 6, 7, 8])}


@pytest.mark.parametrize(("size", "left_out"), [(2000, True), (10, False)])
async def test_a_reader_without_use_for_bodies_gets_no_large_ones(
    size: int, left_out: bool
) -> None:
    """The scheduler counts what was read, not what was sent."""
    broker = FakeBrokerClient(orders=1)
    broker.store(*(message(offset, body=bytes(size)) for offset in range(3)))
    async with bulk(broker) as (it, service), connect(it.port) as client:
        ((_, whole),) = (await fetch(client, {"broker-a_0": 0})).values()
        counted = service.counts[GROUP].read_bytes
        answer = await fetch(client, {"broker-a_0": 0}, without_bodies=True)
        assert service.counts[GROUP].read_bytes == 2 * counted
    ((_, records),) = answer.values()
    assert offsets_of(answer) == {"broker-a_0": (3, [0, 1, 2])}
    assert (len(records) < len(whole) - 2 * size) == left_out
    assert {each.body for each in decode_messages(records)} == {b"" if left_out else bytes(size)}
