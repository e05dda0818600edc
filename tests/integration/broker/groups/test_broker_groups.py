"""Configurations of groups on the embedded broker, over loopback."""

from __future__ import annotations

import errno
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import orjson
import pytest

from broker_core.errors import BrokerError
from broker_core.names import RETRY_PREFIX, Group, Topic
from broker_core.remoting.bodies import ConsumerData, Heartbeat, Subscription
from broker_core.remoting.codes import RequestCode, ResponseCode
from broker_core.remoting.command import RemotingCommand
from broker_core.remoting.group_bodies import GroupConfig, group_list_to_json
from broker_core.store.tables import JsonTable
from testkit.broker_process import Cluster, run_broker

BILLING = Group("billing")
DEFAULT = GroupConfig(group=BILLING)


@pytest.fixture
async def cluster(tmp_path: Path) -> AsyncIterator[Cluster]:
    async with run_broker(tmp_path) as running:
        yield running


async def ask(
    cluster: Cluster, code: RequestCode, body: bytes = b"", **ext: str
) -> RemotingCommand:
    client = await cluster.client(f"asker of {code.name}")
    return await client.requests.ask(cluster.broker_name, code, ext, body=body)


async def define(cluster: Cluster, *configs: GroupConfig) -> None:
    code = RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP_LIST
    await ask(cluster, code, group_list_to_json(configs))


async def configured(cluster: Cluster) -> dict[str, Any]:
    answer = await ask(cluster, RequestCode.GET_ALL_SUBSCRIPTIONGROUP_CONFIG)
    table: dict[str, Any] = orjson.loads(answer.body)["subscriptionGroupTable"]
    return table


async def subscribe_retries(cluster: Cluster, group: Group) -> None:
    topic = Topic(RETRY_PREFIX + group)
    wanted = ConsumerData(group=group, subscriptions=(Subscription.of_tags(topic, "*"),))
    heartbeat = Heartbeat(client_id="one", consumers=(wanted,))
    await ask(cluster, RequestCode.HEART_BEAT, heartbeat.to_json())


async def test_what_is_configured_survives_a_crash_as_it_came(cluster: Cluster) -> None:
    """Including fields that this broker ignores."""
    wanted = {
        **DEFAULT.to_fields(),
        "retryMaxTimes": 3,
        "consumeTimeoutMinute": 20,
        "groupRetryPolicy": {"type": "CUSTOMIZED"},
    }
    code = RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP
    await ask(cluster, code, orjson.dumps(wanted))
    await cluster.restart_broker(crash=True)
    answer = await ask(cluster, RequestCode.GET_SUBSCRIPTIONGROUP_CONFIG, group=BILLING)
    assert orjson.loads(answer.body) == wanted
    assert await configured(cluster) == {BILLING: wanted}


async def test_a_group_that_must_not_consume_is_refused_and_goes_on_later(cluster: Cluster) -> None:
    queue = (await cluster.create_topic("orders"))[0]
    client = await cluster.client()
    await define(cluster, GroupConfig(group=BILLING, consume_enable=False))
    with pytest.raises(BrokerError, match="consumeEnable is false") as refused:
        await client.pull(queue, group=BILLING, offset=0, suspend_ms=0)
    assert refused.value.code == ResponseCode.NO_PERMISSION
    await client.pull(queue, group=Group("other"), offset=0, suspend_ms=0)
    await define(cluster, DEFAULT)
    await client.pull(queue, group=BILLING, offset=0, suspend_ms=0)


async def test_groups_make_themselves_and_are_there_after_a_crash(cluster: Cluster) -> None:
    queue = (await cluster.create_topic("orders"))[0]
    client = await cluster.client()
    await client.pull(queue, group=BILLING, offset=0, suspend_ms=0)
    await subscribe_retries(cluster, Group("listening"))
    await cluster.broker.components.save_tables()
    await cluster.restart_broker(crash=True)
    assert await configured(cluster) == {
        name: GroupConfig(group=Group(name)).to_fields() for name in (BILLING, "listening")
    }


async def test_where_groups_must_be_configured_others_are_refused(tmp_path: Path) -> None:
    async with run_broker(tmp_path, auto_create_groups=False) as cluster:
        queue = (await cluster.create_topic("orders"))[0]
        client = await cluster.client()
        with pytest.raises(BrokerError, match="create it first") as refused:
            await client.pull(queue, group=BILLING, offset=0, suspend_ms=0)
        assert refused.value.code == ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST
        await subscribe_retries(cluster, BILLING)
        with pytest.raises(BrokerError, match="no consumer for this group"):
            await ask(cluster, RequestCode.GET_CONSUMER_LIST_BY_GROUP, consumerGroup=BILLING)
        await define(cluster, DEFAULT)
        await client.pull(queue, group=BILLING, offset=0, suspend_ms=0)


async def test_retry_topics_have_as_many_queues_as_is_configured(cluster: Cluster) -> None:
    await define(
        cluster,
        GroupConfig(group=BILLING, retry_queue_nums=3),
        GroupConfig(group=Group("never"), retry_queue_nums=0),
    )
    for group in (BILLING, Group("never")):
        await subscribe_retries(cluster, group)
    answer = await ask(cluster, RequestCode.GET_ALL_TOPIC_CONFIG)
    topics = orjson.loads(answer.body)["topicConfigTable"]
    assert topics[RETRY_PREFIX + BILLING]["readQueueNums"] == 3
    assert RETRY_PREFIX + "never" not in topics


async def test_a_deleted_configuration_stays_deleted(cluster: Cluster) -> None:
    await define(cluster, DEFAULT, GroupConfig(group=Group("other")))
    await ask(cluster, RequestCode.DELETE_SUBSCRIPTIONGROUP, groupName=BILLING)
    await cluster.restart_broker(crash=True)
    assert set(await configured(cluster)) == {"other"}


async def test_of_a_list_with_a_wrong_group_none_is_defined(cluster: Cluster) -> None:
    for wrong, named in (
        (GroupConfig(group=Group("a b")), "group 'a b'"),
        (GroupConfig(group=BILLING, retry_queue_nums=5000), "retryQueueNums of group billing"),
        (GroupConfig(group=BILLING, retry_max_times=-2), "retryMaxTimes of group billing"),
    ):
        with pytest.raises(BrokerError, match=named):
            await define(cluster, GroupConfig(group=Group("good")), wrong)
    assert await configured(cluster) == {}


async def test_what_the_disk_refuses_is_not_configured(
    cluster: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(_table: JsonTable, _content: bytes) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    with monkeypatch.context() as patched:
        patched.setattr(JsonTable, "save_bytes", full)
        with pytest.raises(BrokerError, match="cannot be saved: No space left"):
            await define(cluster, DEFAULT)
        assert await configured(cluster) == {}
    await define(cluster, DEFAULT)
    assert await configured(cluster) == {BILLING: DEFAULT.to_fields()}
