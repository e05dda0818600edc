"""Administrative requests to the embedded broker and nameserver: progress, connections,
settings.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import orjson
import pytest

from broker_core.client.connection_pool import ConnectionPool
from broker_core.client.membership import Membership
from broker_core.clock import wall_ms
from broker_core.errors import BrokerError
from broker_core.names import Group, QueueName, Topic
from broker_core.remoting.bodies import ConsumerData, Heartbeat, Subscription
from broker_core.remoting.codes import RequestCode, ResponseCode
from broker_core.remoting.command import RemotingCommand
from broker_core.remoting.message import OutgoingMessage
from broker_core.remoting.queue_maps import object_with_queue_map
from testkit.broker_process import Cluster, run_broker

ORDERS = Topic("orders")
BILLING = Group("billing")
ANSWERED = b'{"properties":{"PROP_CONSUME_TYPE":"CONSUME_PASSIVELY"}}'


class Admin:
    """A cluster with a topic of 2 queues, 5 messages in the first, of which a group finished 2."""

    def __init__(self, cluster: Cluster, queues: list[QueueName]) -> None:
        self.cluster = cluster
        self.queues = queues
        self.pool = ConnectionPool(handlers={RequestCode.GET_CONSUMER_RUNNING_INFO: self._running})
        self.asked: list[dict[str, str]] = []
        self._silent = False

    def fall_silent(self) -> None:
        """Stop answering the broker's requests."""
        self._silent = True

    def _running(self, request: RemotingCommand, _channel: object) -> RemotingCommand | None:
        self.asked.append(request.ext)
        return None if self._silent else request.response(body=ANSWERED)

    async def ask(
        self, code: RequestCode, body: bytes = b"", *, at: str = "", **ext: str
    ) -> RemotingCommand:
        address = at or self.cluster.broker_address
        request = RemotingCommand(code, ext=ext, body=body)
        answer = await self.pool.request(address, request, timeout_s=20)
        if answer.code:
            raise BrokerError(answer.code, answer.remark or "")
        return answer

    async def json(self, code: RequestCode, **ext: str) -> Any:
        return orjson.loads((await self.ask(code, **ext)).body)

    async def subscribe(self, *topics: str) -> None:
        subscriptions = tuple(Subscription.of_tags(Topic(each), "red") for each in topics)
        heartbeat = Heartbeat(
            client_id="one",
            consumers=(ConsumerData(group=BILLING, subscriptions=subscriptions),),
            producers=(Group("shop"),),
        )
        await self.ask(RequestCode.HEART_BEAT, heartbeat.to_json())


@pytest.fixture
async def admin(tmp_path: Path) -> AsyncIterator[Admin]:
    async with run_broker(tmp_path) as cluster:
        queues = await cluster.create_topic(ORDERS, queues=2)
        client = await cluster.client()
        for n in range(5):
            await client.send(queues[0], OutgoingMessage(ORDERS, b"%d" % n, key="k", tag="red"))
        await client.pull(queues[0], group=BILLING, offset=2, suspend_ms=0)
        await client.commit_offset(BILLING, queues[0], 2)
        made = Admin(cluster, queues)
        yield made
        await made.pool.close()


async def test_progress_of_a_group_and_ends_of_a_topic(admin: Admin) -> None:
    began_ms = wall_ms() - 60_000
    answer = await admin.ask(RequestCode.GET_TOPIC_STATS_INFO, topic=ORDERS)
    _, ends = object_with_queue_map(answer.body, "offsetTable", what="ends")
    assert {queue: (each["minOffset"], each["maxOffset"]) for queue, each in ends.items()} == {
        admin.queues[0]: (0, 5),
        admin.queues[1]: (0, 0),
    }
    assert ends[admin.queues[0]]["lastUpdateTimestamp"] > began_ms
    assert ends[admin.queues[1]]["lastUpdateTimestamp"] == 0
    for named in ({}, {"topic": ORDERS}, {"topicList": f"{ORDERS};gone;"}):
        answer = await admin.ask(RequestCode.GET_CONSUME_STATS, consumerGroup=BILLING, **named)
        rest, table = object_with_queue_map(answer.body, "offsetTable", what="stats")
        assert rest["consumeTps"] > 0
        first, second = (table[queue] for queue in admin.queues)
        assert first.pop("lastTimestamp") > began_ms
        assert first == {"brokerOffset": 5, "consumerOffset": 2, "pullOffset": 2}
        assert set(second.values()) == {0}


async def test_a_topic_that_is_named_often_is_looked_at_once(admin: Admin) -> None:
    often = f"{ORDERS};" * 100_000
    answer = await admin.ask(RequestCode.GET_CONSUME_STATS, consumerGroup=BILLING, topicList=often)
    _, table = object_with_queue_map(answer.body, "offsetTable", what="stats")
    assert set(table) == set(admin.queues)


async def test_topics_that_a_group_does_not_subscribe_any_more_do_not_count(admin: Admin) -> None:
    await admin.subscribe("others")
    answer = await admin.ask(RequestCode.GET_CONSUME_STATS, consumerGroup=BILLING)
    assert object_with_queue_map(answer.body, "offsetTable", what="stats")[1] == {}


async def test_a_group_that_has_an_offset_may_keep_it(admin: Admin) -> None:
    client, queue = await admin.cluster.client(), admin.queues[0]
    for offset, kept in ((0, 0), (2, 0)):
        await client.commit_offset(Group("new"), queue, offset, if_none=True)
        assert await client.committed_offset(Group("new"), queue) == kept


async def test_a_commit_may_refuse_to_set_a_group_back(admin: Admin) -> None:
    client, queue = await admin.cluster.client(), admin.queues[0]
    for offset in (2, 2, 4):
        await client.commit_offset(Group("new"), queue, offset, not_lower=True)
    with pytest.raises(BrokerError, match="has a higher one, 4, in queue 0"):
        await client.commit_offset(Group("new"), queue, 3, not_lower=True)
    assert await client.committed_offset(Group("new"), queue) == 4
    beyond_the_end = 100
    await client.commit_offset(Group("new"), queue, beyond_the_end)
    await client.commit_offset(Group("new"), queue, 3, not_lower=True)
    assert await client.committed_offset(Group("new"), queue) == 3


async def test_all_groups_at_once(admin: Admin) -> None:
    for is_order, total in (("false", 3), ("true", 0)):
        answer = await admin.ask(RequestCode.GET_BROKER_CONSUME_STATS, isOrder=is_order)
        assert b'"totalDiff":%d,' % total in answer.body
        assert b'"brokerAddr":"%s"' % admin.cluster.broker_address.encode() in answer.body


async def test_who_consumes_what_and_how_old_it_is(admin: Admin) -> None:
    by_topic = await admin.json(RequestCode.QUERY_TOPIC_CONSUME_BY_WHO, topic=ORDERS)
    by_group = await admin.json(RequestCode.QUERY_TOPICS_BY_CONSUMER, group=BILLING)
    assert (by_topic["groupList"], by_group["topicList"]) == ([BILLING], [ORDERS])
    await admin.subscribe("others")
    by_topic = await admin.json(RequestCode.QUERY_TOPIC_CONSUME_BY_WHO, topic="others")
    assert by_topic["groupList"] == [BILLING]
    spans = await admin.json(RequestCode.QUERY_CONSUME_TIME_SPAN, topic=ORDERS, group=BILLING)
    full, empty = spans["consumeTimeSpanSet"]
    assert full["minTimeStamp"] <= full["consumeTimeStamp"] <= full["maxTimeStamp"] <= wall_ms()
    assert 0 <= full["delayTime"] < 60_000
    assert (empty["minTimeStamp"], empty["maxTimeStamp"], empty["delayTime"]) == (-1, -1, 0)


async def test_cloned_offsets_survive_a_crash_and_touch_nothing_else(admin: Admin) -> None:
    client = await admin.cluster.client("second")
    await client.commit_offset(Group("copy"), admin.queues[1], 0)
    await client.commit_offset(BILLING, admin.queues[0], 2, epoch=7)
    await admin.ask(RequestCode.CLONE_GROUP_OFFSET, srcGroup=BILLING, destGroup="copy")
    await admin.cluster.restart_broker(crash=True)
    table = await admin.json(RequestCode.GET_ALL_CONSUMER_OFFSET)
    assert table["offsetTable"] == {
        f"{ORDERS}@{BILLING}": {"0": 2},
        f"{ORDERS}@copy": {"0": 2, "1": 0},
    }
    client = await admin.cluster.client("third")
    await client.commit_offset(Group("copy"), admin.queues[0], 3, epoch=1)  # no fence was copied


async def test_connections_are_shown_while_they_are_there(admin: Admin) -> None:
    for code, ext, wanted in (
        (RequestCode.GET_CONSUMER_CONNECTION_LIST, {"consumerGroup": BILLING}, 206),
        (RequestCode.GET_PRODUCER_CONNECTION_LIST, {"producerGroup": "shop"}, 1),
    ):
        with pytest.raises(BrokerError) as refused:
            await admin.ask(code, **ext)
        assert refused.value.code == wanted
    await admin.subscribe(ORDERS)
    consumers = await admin.json(RequestCode.GET_CONSUMER_CONNECTION_LIST, consumerGroup=BILLING)
    producers = await admin.json(RequestCode.GET_PRODUCER_CONNECTION_LIST, producerGroup="shop")
    assert consumers["connectionSet"] == producers["connectionSet"]
    (one,) = consumers["connectionSet"]
    assert one.pop("clientAddr").startswith("127.0.0.1:")
    assert one == {"clientId": "one", "language": "PYTHON", "version": 409}
    assert consumers["subscriptionTable"][ORDERS]["tagsSet"] == ["red"]
    assert consumers["messageModel"] == "CLUSTERING"
    every = await admin.json(RequestCode.GET_ALL_PRODUCER_INFO)
    assert [each["clientId"] for each in every["data"]["shop"]] == ["one"]
    found = await admin.json(
        RequestCode.QUERY_SUBSCRIPTION_BY_CONSUMER, group=BILLING, topic=ORDERS
    )
    assert found["subscriptionData"]["subString"] == "red"
    unregister = {"clientID": "one", "producerGroup": "shop", "consumerGroup": BILLING}
    await admin.ask(RequestCode.UNREGISTER_CLIENT, **unregister)
    with pytest.raises(BrokerError, match="not exist"):
        await admin.ask(RequestCode.GET_PRODUCER_CONNECTION_LIST, producerGroup="shop")


async def test_a_client_is_asked_for_others_and_its_answer_passed_on(admin: Admin) -> None:
    await admin.subscribe(ORDERS)
    asked = {"consumerGroup": BILLING, "clientId": "one", "jstackEnable": "true"}
    answer = await admin.ask(RequestCode.GET_CONSUMER_RUNNING_INFO, **asked)
    assert (answer.body, admin.asked) == (ANSWERED, [asked])
    with pytest.raises(BrokerError, match="<billing> <two> not online"):
        await admin.ask(RequestCode.GET_CONSUMER_RUNNING_INFO, **asked | {"clientId": "two"})


async def test_our_own_clients_say_what_they_are_in_a_group(admin: Admin) -> None:
    client = await admin.cluster.client("proxy-1")
    membership = Membership(client)
    await membership.join(BILLING, [ORDERS])
    asked = {"consumerGroup": BILLING, "clientId": "proxy-1"}
    told = await admin.json(RequestCode.GET_CONSUMER_RUNNING_INFO, **asked)
    assert [each["topic"] for each in told["subscriptionSet"]] == [ORDERS]
    assert told["properties"]["PROP_CONSUME_TYPE"] == "CONSUME_PASSIVELY"
    assert int(told["properties"]["PROP_CONSUMER_START_TIMESTAMP"]) <= wall_ms()
    shown = await admin.json(RequestCode.GET_CONSUMER_CONNECTION_LIST, consumerGroup=BILLING)
    assert [each["clientId"] for each in shown["connectionSet"]] == ["proxy-1"]
    await membership.close()


async def test_a_client_that_does_not_answer_is_named(
    admin: Admin, monkeypatch: pytest.MonkeyPatch
) -> None:
    from broker_core.broker.groups import connections_processor as connections

    monkeypatch.setattr(connections, "CLIENT_ANSWERS_S", 0.05)
    admin.fall_silent()
    await admin.subscribe(ORDERS)
    with pytest.raises(BrokerError, match="no answer") as refused:
        await admin.ask(
            RequestCode.GET_CONSUMER_RUNNING_INFO, consumerGroup=BILLING, clientId="one"
        )
    assert refused.value.code == ResponseCode.CONSUME_MSG_TIMEOUT


async def test_entries_of_a_queue_and_whether_a_group_sees_them(admin: Admin) -> None:
    await admin.subscribe(ORDERS)
    ext = {"topic": ORDERS, "queueId": "0", "index": "1", "count": "2", "consumerGroup": BILLING}
    found = await admin.json(RequestCode.QUERY_CONSUME_QUEUE, **ext)
    assert (found["minQueueIndex"], found["maxQueueIndex"]) == (0, 5)
    assert [each["eval"] for each in found["queueData"]] == [True, True]
    with pytest.raises(BrokerError, match="1@orders is not exist"):
        await admin.ask(RequestCode.QUERY_CONSUME_QUEUE, **ext | {"queueId": "1"})


async def test_figures_are_those_of_what_was_done(admin: Admin) -> None:
    table = (await admin.json(RequestCode.GET_BROKER_RUNTIME_INFO))["table"]
    assert (table["msgPutTotalTodayNow"], table["msgGetTotalTodayNow"]) == ("5", "3")
    assert 0 < float(table["commitLogDiskRatio"]) < 1
    assert int(table["commitLogMaxOffset"]) > 0
    assert int(table["earliestMessageTimeStamp"]) <= wall_ms()
    stats = {"statsName": "TOPIC_PUT_NUMS", "statsKey": ORDERS}
    found = await admin.json(RequestCode.VIEW_BROKER_STATS_DATA, **stats)
    assert found["statsDay"]["sum"] == 5
    stats = {"statsName": "GROUP_GET_NUMS", "statsKey": f"{ORDERS}@{BILLING}"}
    found = await admin.json(RequestCode.VIEW_BROKER_STATS_DATA, **stats)
    assert found["statsMinute"]["sum"] == 3
    for unknown in ({"statsName": "FOO", "statsKey": ORDERS}, stats | {"statsKey": "a@b"}):
        with pytest.raises(BrokerError, match=r"The stats .* not exist"):
            await admin.ask(RequestCode.VIEW_BROKER_STATS_DATA, **unknown)


async def test_settings_are_shown_and_their_change_refused_by_name(admin: Admin) -> None:
    answer = await admin.ask(RequestCode.GET_BROKER_CONFIG)
    shown = bytes(answer.body).decode().splitlines()
    assert {"brokerName=broker-a", "flushDiskType=SYNC_FLUSH", "fileReservedTime=72"} <= set(shown)
    await admin.ask(RequestCode.UPDATE_BROKER_CONFIG, b"#comment\nbrokerName=broker-a\n")
    with pytest.raises(BrokerError, match="fileReservedTime, colour cannot be changed") as refused:
        await admin.ask(
            RequestCode.UPDATE_BROKER_CONFIG, b"brokerId=0\nfileReservedTime=1\ncolour=red"
        )
    assert refused.value.code == ResponseCode.NO_PERMISSION


async def test_topics_in_a_list_are_made_or_none(admin: Admin) -> None:
    async def define(*topics: dict[str, Any]) -> None:
        body = orjson.dumps({"topicConfigList": topics})
        await admin.ask(RequestCode.UPDATE_AND_CREATE_TOPIC_LIST, body)

    with pytest.raises(BrokerError, match="readQueueNums is 0"):
        await define({"topicName": "new"}, {"topicName": "wrong", "readQueueNums": 0})
    with pytest.raises(BrokerError, match="topic: new") as refused:
        await admin.ask(RequestCode.GET_TOPIC_CONFIG, topic="new")
    assert refused.value.code == ResponseCode.TOPIC_NOT_EXIST
    await define({"topicName": "new", "writeQueueNums": 3, "order": True})
    found = await admin.json(RequestCode.GET_TOPIC_CONFIG, topic="new")
    assert (found["readQueueNums"], found["writeQueueNums"], found["order"]) == (16, 3, True)
    with pytest.raises(BrokerError, match=r"attribute '\+cleanup.policy=COMPACTION' has no effect"):
        await admin.ask(
            RequestCode.UPDATE_AND_CREATE_TOPIC,
            topic="other",
            readQueueNums="1",
            writeQueueNums="1",
            attributes="+message.type=FIFO,+cleanup.policy=COMPACTION",
        )


async def test_a_broker_that_is_wiped_gets_no_sends_until_it_may_again(admin: Admin) -> None:
    at = admin.cluster.nameserver
    client = await admin.cluster.client("producer")
    wiped = await admin.ask(RequestCode.WIPE_WRITE_PERM_OF_BROKER, at=at, brokerName="broker-a")
    assert await client.writable_queues(ORDERS, fresh=True) == []
    assert await client.queues(ORDERS, fresh=True) == admin.queues
    added = await admin.ask(RequestCode.ADD_WRITE_PERM_OF_BROKER, at=at, brokerName="broker-a")
    assert await client.writable_queues(ORDERS, fresh=True) == admin.queues
    assert wiped.ext["wipeTopicCount"] == added.ext["addTopicCount"] != "0"
    unknown = await admin.ask(RequestCode.WIPE_WRITE_PERM_OF_BROKER, at=at, brokerName="unknown")
    assert unknown.ext["wipeTopicCount"] == "0"


async def test_a_broker_that_left_may_be_written_when_it_is_back(admin: Admin) -> None:
    at = admin.cluster.nameserver
    await admin.ask(RequestCode.WIPE_WRITE_PERM_OF_BROKER, at=at, brokerName="broker-a")
    await admin.cluster.restart_broker()
    client = await admin.cluster.client("producer")
    assert await client.writable_queues(ORDERS, fresh=True) == admin.queues


async def test_topics_of_a_cluster_and_of_the_system(admin: Admin) -> None:
    at = admin.cluster.nameserver
    mine = orjson.loads(
        (await admin.ask(RequestCode.GET_TOPICS_BY_CLUSTER, at=at, cluster="orderlane")).body
    )
    assert ORDERS in mine["topicList"]
    other = await admin.ask(RequestCode.GET_TOPICS_BY_CLUSTER, at=at, cluster="other")
    assert orjson.loads(other.body)["topicList"] == []
    system = orjson.loads((await admin.ask(RequestCode.GET_SYSTEM_TOPIC_LIST_FROM_NS, at=at)).body)
    assert system["brokerAddr"] == admin.cluster.broker_address
    of_broker = await admin.json(RequestCode.GET_SYSTEM_TOPIC_LIST_FROM_BROKER)
    assert "SCHEDULE_TOPIC_XXXX" in of_broker["topicList"]
    assert ORDERS not in of_broker["topicList"]
