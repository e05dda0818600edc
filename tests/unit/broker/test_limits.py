"""Limits of a broker: the first one too many is refused, and what exists is served as before."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import pytest
from structlog.testing import capture_logs

from broker_core.broker.groups import directory as group_directory
from broker_core.broker.groups.configs import GroupConfigs
from broker_core.broker.groups.directory import GroupDirectory
from broker_core.broker.groups.groups import Groups
from broker_core.broker.groups.locks_processor import LockProcessor
from broker_core.broker.groups.member_limits import MemberLimits
from broker_core.broker.groups.offsets import CommittedOffsets
from broker_core.broker.groups.producers import Producers
from broker_core.broker.groups.queue_locks import QueueLocks
from broker_core.broker.limits import Limit
from broker_core.broker.table_saver import TableSaver
from broker_core.broker.topics.directory import TopicDirectory
from broker_core.broker.topics.topics import Topics
from broker_core.errors import BrokerError
from broker_core.names import TRANSACTION_GROUP, Group, QueueName, Topic
from broker_core.remoting.bodies import ConsumerData, LockBatch, Subscription
from broker_core.remoting.group_bodies import GroupConfig
from broker_core.remoting.route_bodies import TopicConfig
from broker_core.store.journaled_table import JournaledTable
from broker_core.store.tables import JsonTable
from broker_core.tasks import spawn


async def announce(_: Iterable[Topic] | None) -> None:
    pass


def limit(setting: str, most: int) -> Limit:
    return Limit(setting, most, advice="delete some")


def config(name: str, queues: int = 1) -> TopicConfig:
    return TopicConfig(topic=Topic(name), read_queues=queues, write_queues=queues)


@pytest.mark.sockets
async def test_the_first_topic_too_many_is_refused_by_name(tmp_path: Path) -> None:
    topics = Topics()
    topics.offer_system_topics()
    topics.offer_template(8)
    table = JournaledTable(tmp_path / "topics.json")
    directory = TopicDirectory(topics, table, announce=announce, limit=limit("max_topics", 3))
    for name in ("a", "%RETRY%billing", "%DLQ%billing"):
        await directory.define(config(name))
    with pytest.raises(
        BrokerError,
        match="topic 'b' is not created: this broker has 3 topics, its"
        " max_topics; delete some, or raise it",
    ):
        await directory.define(config("b"))
    await directory.define(config("a", queues=4))
    assert directory.writable(Topic("a"), 3).write_queues == 4, "known ones may change"

    async def delete(_: Topic) -> None:
        pass

    await directory.remove(Topic("a"), delete_messages=delete)
    await directory.define(config("b"))
    loaded = Topics.from_table(JournaledTable(table.path).load())
    assert {each.topic for each in loaded} == {"b", "%RETRY%billing", "%DLQ%billing"}
    assert loaded.life(Topic("b")) == topics.life(Topic("b"))


@pytest.mark.sockets
async def test_refusals_are_logged_once_a_minute_and_are_no_bugs(tmp_path: Path) -> None:
    table = JournaledTable(tmp_path / "topics.json")
    most = limit("max_topics", 1)
    directory = TopicDirectory(Topics(), table, announce=announce, limit=most)
    await directory.define(config("a"))
    with capture_logs() as logs:
        for number in range(50):
            with pytest.raises(BrokerError, match="max_topics"):
                await directory.define(config(f"b{number}"))
    assert [(each["event"], each["log_level"]) for each in logs] == [
        ("refused because of a limit", "warning")
    ]
    assert most.refused == 50


@pytest.mark.sockets
async def test_topics_requested_together_are_created_all_or_none(tmp_path: Path) -> None:
    topics, told = Topics(), list[object]()

    async def noted(names: Iterable[Topic] | None) -> None:
        told.append(names)

    table = JournaledTable(tmp_path / "topics.json")
    directory = TopicDirectory(topics, table, announce=noted, limit=limit("max_topics", 4))
    await directory.define(config("a"), config("b"), config("b"), config("c"))
    with pytest.raises(BrokerError, match=r"topic 'd' is not created nor 1 more: .* 3 topics"):
        await directory.define(config("a", queues=2), config("d"), config("e"))
    assert directory.writable(Topic("a"), 0).write_queues == 1
    await directory.define(config("a", queues=2), config("d"))
    assert told == [["a", "b", "c"], ["a", "d"]]
    loaded = Topics.from_table(JournaledTable(table.path).load())
    assert list(loaded) == list(topics)
    assert [loaded.life(each.topic) for each in loaded] == [
        topics.life(each.topic) for each in topics
    ]


@pytest.mark.sockets
async def test_the_first_group_too_many_is_refused_on_both_ways(tmp_path: Path) -> None:
    in_use, gone = {Group("used")}, list[object]()
    table = JournaledTable(tmp_path / "subscriptionGroup.json")
    groups = GroupDirectory(
        GroupConfigs(),
        table,
        auto_create=True,
        limit=limit("max_groups", 3),
        in_use=lambda: in_use,
        forgotten=gone.append,
    )
    groups.config(Group("used"))
    groups.config(Group("idle"))
    await groups.define([GroupConfig(group=Group("defined"), retry_max_times=3)])
    groups.config(Group("next"))
    assert groups.configs.find(Group("idle")) is None, "it would be created again as it was"
    assert gone == [{Group("idle")}]
    in_use.add(Group("next"))
    with pytest.raises(BrokerError, match="group 'more' is not created: this broker has 3 groups"):
        groups.config(Group("more"))
    with pytest.raises(BrokerError, match="max_groups"):
        await groups.define([GroupConfig(group=Group("more"))])
    await groups.define([GroupConfig(group=Group("defined"), retry_max_times=4)])
    await groups.save()
    loaded = GroupConfigs.from_table(JournaledTable(table.path).load())
    assert {each.group for each in loaded} == {"used", "next", "defined"}


async def test_a_group_that_is_forgotten_while_it_is_saved_is_not_in_the_table(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def slowly(work: Callable[..., None], *args: object) -> None:
        work(*args)
        await asyncio.sleep(1)

    monkeypatch.setattr(group_directory, "in_thread", slowly)
    table = JournaledTable(tmp_path / "subscriptionGroup.json")
    groups = GroupDirectory(
        GroupConfigs(),
        table,
        auto_create=True,
        limit=limit("max_groups", 2),
        in_use=lambda: {Group("used")},
    )
    groups.config(Group("used"))
    groups.config(Group("idle"))
    saving = spawn(groups.save(), name="save")
    await asyncio.sleep(0.5)
    groups.config(Group("next"))
    await groups.save()
    assert saving.done(), "it waits for the save under way"
    loaded = GroupConfigs.from_table(JournaledTable(table.path).load())
    assert {each.group for each in loaded} == {"used", "next"}


def test_offsets_of_further_queues_are_refused_and_those_there_move_on() -> None:
    offsets = CommittedOffsets()
    offsets.limit_to(limit("max_offsets", 2))
    group, topic = Group("billing"), Topic("orders")
    for queue_id in range(2):
        offsets.commit(group, topic, queue_id, 5)
    with pytest.raises(BrokerError, match="max_offsets"):
        offsets.commit(group, topic, 2, 5, epoch=7)
    assert offsets.epoch(group, topic, 2) is None
    offsets.commit(group, topic, 1, 6)
    offsets.delete(group)
    offsets.commit(Group("other"), topic, 2, 1)
    assert offsets.committed(Group("other"), topic, 2) == 1


def test_offsets_of_the_brokers_own_transactions_are_not_limited() -> None:
    """Otherwise a broker could not stop: it stores them last."""
    offsets = CommittedOffsets()
    offsets.limit_to(limit("max_offsets", 0))
    offsets.commit(TRANSACTION_GROUP, Topic("halves"), 0, 5, epoch=7)
    assert offsets.committed(TRANSACTION_GROUP, Topic("halves"), 0) == 5


async def test_locks_over_the_limit_are_left_out_and_those_there_are_renewed(
    tmp_path: Path,
) -> None:
    topics, held = Topics(), QueueLocks(60_000_000_000)
    topics.put(config("orders", queues=4), now_ms=0)
    table = JsonTable(tmp_path / "locks.json")
    locks = LockProcessor(
        held,
        saver=TableSaver(table, content=held.to_table, change=lambda: held.change),
        directory=TopicDirectory(
            topics, JournaledTable(tmp_path / "topics.json"), announce=announce
        ),
        broker_name="broker-a",
        limit=limit("max_locks", 3),
    )
    queues = [QueueName(Topic("orders"), "broker-a", number) for number in range(4)]

    async def granted(wanted: list[QueueName]) -> set[QueueName]:
        batch = LockBatch(group=Group("billing"), client_id="one", queues=frozenset(wanted))
        return set(await locks.grant(batch))

    assert await granted(queues[:2]) == set(queues[:2])
    assert await granted(queues) == set(queues[:3]), "there is room for one more"
    assert await granted(queues) == set(queues[:3])
    with pytest.raises(
        BrokerError,
        match="the queues of group billing are not locked: this broker has 3 orderly locks, its"
        " max_locks; delete some, or raise it",
    ):
        await granted(queues[3:])


def consumer(group: str, topics: int = 1) -> ConsumerData:
    names = [Topic(f"t{number}") for number in range(topics)]
    return ConsumerData(
        group=Group(group), subscriptions=tuple(Subscription(topic=name) for name in names)
    )


def test_members_over_a_limit_are_refused_and_known_ones_stay() -> None:
    limits = MemberLimits(
        per_group=limit("max_group_members", 2),
        in_all=limit("max_members", 3),
        topics=limit("max_member_topics", 4),
    )
    groups: Groups[Any] = Groups()

    def beat(client_id: str, *wanted: ConsumerData) -> str | None:
        admitted, problem = limits.consumers(groups, client_id, wanted)
        groups.heartbeat(client_id, client_id, admitted, now_ns=0)
        return None if problem is None else str(problem)

    assert beat("a", consumer("g"), consumer("h")) is None
    assert beat("b", consumer("g")) is None
    assert "the group has 2 members, its max_group_members" in (beat("c", consumer("g")) or "")
    assert "max_members" in (beat("c", consumer("i"), consumer("j")) or "")
    assert groups.memberships == 3
    assert "it names 5 topics, its max_member_topics" in (beat("a", consumer("g", topics=5)) or "")
    assert beat("a", consumer("g", topics=4)) is None, "a member stays one"
    groups.connection_closed("a")
    assert groups.memberships == 1
    assert beat("c", consumer("g")) is None


def test_a_member_that_names_too_many_topics_stays_one_with_those_that_it_had() -> None:
    limits = MemberLimits(topics=limit("max_member_topics", 2))
    groups: Groups[Any] = Groups()

    def beat(topics: int, *, at_ns: int) -> str | None:
        admitted, problem = limits.consumers(groups, "a", [consumer("g", topics=topics)])
        groups.heartbeat("a", "a", admitted, now_ns=at_ns, expiry_ns=10)
        groups.expire(at_ns)
        return None if problem is None else str(problem)

    assert beat(2, at_ns=0) is None
    for at_ns in range(5, 30, 5):
        assert (
            "client 'a' subscribes the same topics of group g as before: it names 3 topics, its"
            " max_member_topics; delete some, or raise it"
        ) in (beat(3, at_ns=at_ns) or "")
    assert groups.members(Group("g")) == ["a"]
    assert [each.topic for each in groups.subscriptions(Group("g"))] == ["t0", "t1"]
    assert beat(1, at_ns=30) is None
    assert [each.topic for each in groups.subscriptions(Group("g"))] == ["t0"]


def test_producers_have_the_same_limits() -> None:
    limits = MemberLimits(per_group=limit("max_group_members", 1), in_all=limit("max_members", 2))
    producers: Producers[Any] = Producers()

    def beat(client_id: str, *wanted: str) -> str | None:
        admitted, problem = limits.producers(producers, client_id, map(Group, wanted))
        producers.heartbeat(client_id, client_id, admitted, now_ns=0)
        return None if problem is None else str(problem)

    assert beat("a", "g", "h") is None
    assert "max_group_members" in (beat("b", "g") or "")
    assert "max_members" in (beat("b", "i") or "")
    producers.unregister("a", Group("g"))
    assert beat("b", "g") is None
    assert producers.memberships == 2
