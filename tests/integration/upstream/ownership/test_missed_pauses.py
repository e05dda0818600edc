"""The pauses that a queue lacks, at a proxy without other queues of its topic."""

from __future__ import annotations

import pytest

from broker_core.errors import ConnectionLost
from broker_core.names import QueueName
from proxy.core.keys.ids import Epoch
from proxy.core.records.paused_key import PausedKey
from proxy.core.records.record import Snapshot
from proxy.core.records.snapshot_parts import parts
from proxy.upstream.ownership.owned_queue import QueueState
from testkit.eventually import eventually
from tests.integration.upstream.memory_broker import MemoryBrokers
from tests.integration.upstream.upstreams import TOPIC, rival, twin_of, upstream, write

PAUSE = PausedKey(1000, "ann", "a look")


def _known(brokers: MemoryBrokers, queue: QueueName) -> None:
    """Let a rival own *queue*, in which key ``a`` is paused."""
    write(brokers, queue, rival(), *parts(Snapshot(Epoch(0), 0, 0, paused={b"a": PAUSE})))


@pytest.mark.parametrize("new", [("broker-a", 1), ("broker-b", 0)])
async def test_it_begins_with_those_of_a_queue_of_another_proxy(new: tuple[str, int]) -> None:
    brokers = MemoryBrokers()
    _known(brokers, brokers.add_topic(TOPIC, 1)[0])
    broker, number = new
    queue = brokers.add_topic(TOPIC, number + 1, broker=broker)[number]
    twin_of(brokers, queue)
    async with upstream(brokers) as us:
        _, pipeline = await us.owned(queue)
        assert dict(pipeline.pauses.keys) == {b"a": PAUSE}


async def test_a_broker_that_does_not_answer_does_not_keep_a_queue_of_another_one_back() -> None:
    brokers = MemoryBrokers()
    there, queue = brokers.add_topic(TOPIC, 1)[0], brokers.add_topic(TOPIC, 1, broker="broker-b")[0]
    _known(brokers, there)
    twin_of(brokers, queue)

    async def answers(of: QueueName) -> None:
        if of == there:
            raise ConnectionLost("no answer")

    async with upstream(brokers) as us:
        us.client.before["life"] = answers
        _, pipeline = await us.owned(queue)
        assert not pipeline.pauses.keys


@pytest.mark.parametrize(("paused_ms", "expected"), [(1, {b"a"}), (0, set())])
async def test_a_queue_with_records_gets_those_made_since(
    paused_ms: int, expected: set[bytes]
) -> None:
    """The brokers here store everything at 0 ms."""
    brokers = MemoryBrokers()
    there, queue = brokers.add_topic(TOPIC, 2)
    pause = PausedKey(paused_ms, "ann", "a look")
    write(brokers, there, rival(), *parts(Snapshot(Epoch(0), 0, 0, paused={b"a": pause})))
    write(brokers, queue, rival(), *parts(Snapshot(Epoch(0), 0, 0)))
    async with upstream(brokers) as us:
        _, pipeline = await us.owned(queue)
        assert set(pipeline.pauses.keys) == expected


async def test_a_queue_whose_owner_crashed_before_its_first_snapshot_gets_all() -> None:
    brokers = MemoryBrokers()
    there, queue = brokers.add_topic(TOPIC, 2)
    _known(brokers, there)
    write(brokers, queue, rival())
    async with upstream(brokers) as us:
        _, pipeline = await us.owned(queue)
        assert set(pipeline.pauses.keys) == {b"a"}


async def test_many_queues_ask_together() -> None:
    brokers = MemoryBrokers()
    there, *queues = brokers.add_topic(TOPIC, 65)
    _known(brokers, there)
    twin_of(brokers, queues[-1])
    asked: list[QueueName] = []

    async def note(of: QueueName) -> None:
        asked.append(of)

    async with upstream(brokers) as us:
        us.client.before["life"] = note
        made = [us.own(queue) for queue in queues]
        await eventually(lambda: all(each.state is QueueState.OWNED for each in made))
        assert all(set(us.pipeline(queue).pauses.keys) == {b"a"} for queue in queues)
    assert 1 <= asked.count(there) <= 4
