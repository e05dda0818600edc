"""getConsumeStats and ranges, over loopback, on queues in memory."""

from __future__ import annotations

from collections.abc import Iterable

import pytest

from broker_core.client import QueueRange
from broker_core.errors import BrokerError, ConnectionLost
from broker_core.names import Group, QueueName, Topic
from testkit.lanes import GROUP, TOPIC, group_settings
from testkit.messages import message
from testkit.thrift_client import connect, field_ids_of
from tests.support.fake_broker_client import FakeBrokerClient, bulk, queue
from thrift_idl import consumer


async def test_stats_give_both_offsets_of_each_queue() -> None:
    broker = FakeBrokerClient(orders=2, other=1)
    broker.store(message(0), message(1))
    broker.committed[Group(GROUP), queue(0)] = 1
    groups = group_settings(topics=(TOPIC, "other"))
    async with bulk(broker, groups) as (it, _), connect(it.port) as client:
        expected = consumer.ConsumeStats(
            GROUP, TOPIC, {"broker-a_0": 1, "broker-a_1": 0}, {"broker-a_0": 2, "broker-a_1": 0}
        )
        request = consumer.ConsumeStatsRequest(group=GROUP, topic=TOPIC)
        assert await client.call("getConsumeStats", request) == [expected]
        both = await client.call("getConsumeStats", consumer.ConsumeStatsRequest(group=GROUP))
        assert [each.topic for each in both] == [TOPIC, "other"]
        assert max(field_ids_of(both).values()) < 70


@pytest.mark.parametrize(("group", "topic"), [("bling", None), (GROUP, "nowhere")])
async def test_stats_of_an_unknown_name_are_empty(group: str, topic: str | None) -> None:
    async with bulk(FakeBrokerClient(orders=1)) as (it, _), connect(it.port) as client:
        request = consumer.ConsumeStatsRequest(group=group, topic=topic)
        assert await client.call("getConsumeStats", request) == []
        assert await client.call("getConsumeStats", None) == []


async def test_ranges_give_every_offset_of_every_queue() -> None:
    broker = FakeBrokerClient(orders=2)
    for offset in range(3):
        broker.store(message(offset, store_ms=offset * 10))
    broker.lowest[queue(0)] = 1
    broker.committed[Group(GROUP), queue(0)] = 2
    async with bulk(broker) as (it, _), connect(it.port) as client:
        request = consumer.RangesRequest(groupId=GROUP, topics=[TOPIC, TOPIC], timestampMs=15)
        assert await client.call("ranges", request) == [
            consumer.QueueRange(TOPIC, "broker-a_0", 1, 3, 2, 2),
            consumer.QueueRange(TOPIC, "broker-a_1", 0, 0, None, 0),
        ]
        request.timestampMs = None
        ranges = await client.call("ranges", request)
        assert [each.offsetAtTimestamp for each in ranges] == [None, None]


@pytest.mark.parametrize(
    ("group", "topic", "error", "code", "reason"),
    [
        ("bling", TOPIC, None, 404, "no group 'bling' here"),
        (GROUP, "nowhere", None, 404, "no topic 'nowhere'"),
        (GROUP, TOPIC, BrokerError(17, "no such topic"), 404, "no such topic"),
        (GROUP, TOPIC, BrokerError(1, "disk on fire"), 503, "disk on fire"),
        (GROUP, TOPIC, ConnectionLost("not connected"), 503, "not connected"),
    ],
)
async def test_ranges_and_stats_say_why_they_fail(
    group: str, topic: str, error: Exception | None, code: int, reason: str
) -> None:
    broker = FakeBrokerClient(orders=1)
    if error is not None:
        broker.fails["max_offset"] = error
    async with bulk(broker) as (it, _), connect(it.port) as client:
        with pytest.raises(consumer.PullException, match=reason) as refusal:
            await client.call("ranges", consumer.RangesRequest(groupId=group, topics=[topic]))
        assert refusal.value.code == code
        if error is not None:
            request = consumer.ConsumeStatsRequest(group=group)
            with pytest.raises(consumer.PullException, match=reason):
                await client.call("getConsumeStats", request)
        with pytest.raises(consumer.PullException, match="ranges came without its request"):
            await client.call("ranges", None)


async def test_a_topic_that_the_group_no_longer_has_is_not_one_that_was_deleted() -> None:
    """A reader gives up the messages of a deleted topic."""
    async with bulk(FakeBrokerClient(orders=1, other=1)) as (it, _), connect(it.port) as client:
        for topics, code in ((["gone"], 404), (["gone", "other"], 400), ([TOPIC, "other"], 400)):
            with pytest.raises(consumer.PullException, match="has no topic") as refusal:
                await client.call("ranges", consumer.RangesRequest(groupId=GROUP, topics=topics))
            assert refusal.value.code == code
        assert "topic 'other' exists: add it to the group" in refusal.value.message


async def test_topics_of_a_group_are_those_of_its_settings_that_exist() -> None:
    groups = group_settings(topics=(TOPIC, "later"))
    broker = FakeBrokerClient(orders=1, other=1)
    async with bulk(broker, groups) as (it, _), connect(it.port) as client:
        assert await client.call("topics", consumer.TopicsRequest(GROUP)) == [TOPIC]
        for group, reason in (("bling", "no group 'bling' here"), ("", "empty groupId")):
            with pytest.raises(consumer.PullException, match=reason):
                await client.call("topics", consumer.TopicsRequest(group))
        with pytest.raises(consumer.PullException, match="topics came without its request"):
            await client.call("topics", None)


async def test_a_group_created_on_its_first_use_can_read_the_topics_of_applications() -> None:
    """Also before it exists, as after a restart of the proxy, and after a typing error."""
    broker = FakeBrokerClient(orders=1, other=1, TBW102=1)
    async with bulk(broker, auto_create=True) as (it, _), connect(it.port) as client:
        request = consumer.TopicsRequest("lake")
        assert await client.call("topics", request) == [TOPIC, "other"]
        assert it.lanes.find("lake") is None, "a question creates nothing"
        with pytest.raises(consumer.PullException, match="no topic typo") as refusal:
            await client.call("ranges", consumer.RangesRequest("lake", [TOPIC, "typo"]))
        assert refusal.value.code == 404
        assert it.lanes.find("lake") is None
        await client.call("ranges", consumer.RangesRequest("lake", [TOPIC]))
        lane = it.lanes.find("lake")
        assert lane is not None
        assert [each.name for each in lane.settings.topics] == [TOPIC]
        assert await client.call("topics", request) == [TOPIC, "other"]


async def test_ranges_leave_out_queues_that_a_topic_no_longer_has() -> None:
    """The broker answers for them, and the proxy may remember them, until it asks again."""

    class Shrunk(FakeBrokerClient):
        async def queues(self, topic: Topic, *, fresh: bool = False) -> list[QueueName]:
            return (await super().queues(topic))[: 1 if fresh else None]

    broker = Shrunk(orders=2)
    broker.store(message(0))
    async with bulk(broker) as (it, _), connect(it.port) as client:
        found = await client.call("ranges", consumer.RangesRequest(groupId=GROUP, topics=[TOPIC]))
        assert [(each.qid, each.endOffset) for each in found] == [("broker-a_0", 1)]


async def test_ranges_ask_once_for_each_queue_also_of_topics_with_empty_ones() -> None:
    """Only those that the proxy did not know before are asked for again."""
    asked: list[list[str]] = []

    class Counting(FakeBrokerClient):
        async def queues(self, topic: Topic, *, fresh: bool = False) -> list[QueueName]:
            return (await super().queues(topic))[: None if fresh else 2]

        async def queue_ranges(
            self, queues: Iterable[QueueName], *, group: Group | None = None
        ) -> dict[QueueName, QueueRange]:
            some = list(queues)
            asked.append([each.qid for each in some])
            return await super().queue_ranges(some, group=group)

    broker = Counting(orders=3)
    broker.store(message(0))
    async with bulk(broker) as (it, _), connect(it.port) as client:
        found = await client.call("ranges", consumer.RangesRequest(groupId=GROUP, topics=[TOPIC]))
        assert [each.qid for each in found] == ["broker-a_0", "broker-a_1", "broker-a_2"]
    assert asked == [["broker-a_0", "broker-a_1"], ["broker-a_2"]]
