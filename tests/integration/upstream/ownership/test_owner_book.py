"""The owners of many queues are read by few requests."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace

import pytest

from broker_core.names import Group, QueueName
from proxy.core.records.codec import encode
from proxy.core.records.record import Own, ownership_topic
from proxy.upstream.ownership.owner_book import OwnerBook, OwnerRow
from proxy.upstream.records.ownership_log import OwnershipLog
from tests.integration.upstream.memory_broker import MemoryBrokers, MemoryClient

GROUP = Group("billing")
OWN = Own("us@1#1", trust_ms=500, longest_lease_ms=5000, broker_start_ms=1, period=1)


class Members(MemoryClient):
    """A client of brokers that list one member."""

    async def consumer_ids(self, group: Group, topic: str) -> list[str]:
        await self._step("consumer_ids", group, topic)
        return ["us@1#1"]


def owned_queues(brokers: MemoryBrokers, number: int) -> list[QueueName]:
    """Create *number* queues at two brokers, all but the first of each owned by ``us@1#1``."""
    queues = []
    for broker in ("broker-a", "broker-b"):
        there = brokers.add_topic("orders", number // 2, broker=broker)
        twins = brokers.add_topic(
            ownership_topic(GROUP, there[0].topic), number // 2, broker=broker
        )
        queues += [queue for queue in there if queue.broker == broker]
        for twin in twins:
            if twin.broker == broker and twin.queue_id:
                brokers.logs[twin].append(encode(OWN))
    return queues


async def rows_of(number: int) -> tuple[list[OwnerRow], Counter[str]]:
    """Return the owners of *number* queues, and the requests for them, by method."""
    brokers = MemoryBrokers()
    queues = owned_queues(brokers, number)
    client = Members(brokers)
    book = OwnerBook(client, OwnershipLog(client))  # type: ignore[arg-type]
    return await book.rows(GROUP, queues), client.asked


async def test_each_owned_queue_costs_two_reads_and_all_queues_few_requests() -> None:
    rows, asked = await rows_of(200)
    assert Counter(row.state for row in rows) == {"owned": 198, "free": 2}
    few, asked_for_few = await rows_of(20)
    assert len(few) == 20
    # The tail of the records, and the first one, for its time.
    assert (asked.pop("pull"), asked_for_few.pop("pull")) == (2 * 198, 2 * 18)
    assert asked == asked_for_few


@pytest.mark.parametrize("life", [None, 7])
async def test_the_owner_of_an_earlier_life_is_shown_as_the_beginning_of_this_one(
    life: int | None,
) -> None:
    brokers = MemoryBrokers()
    (queue,) = brokers.add_topic("orders", 1)
    (twin,) = brokers.add_topic(ownership_topic(GROUP, queue.topic), 1)
    brokers.logs[twin].append(encode(replace(OWN, life=3, start=5)))
    if life is not None:
        brokers.lives[queue.topic] = life
    client = Members(brokers)
    (row,) = await OwnerBook(client, OwnershipLog(client)).rows(GROUP, [queue])  # type: ignore[arg-type]
    assert row.last is not None
    assert row.last.begins_life == (life == 7)
