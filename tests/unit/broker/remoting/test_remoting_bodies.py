"""JSON bodies: captured ones, fastjson's dialect, and errors that name the field."""

from __future__ import annotations

from typing import Any

import orjson
import pytest

from broker_core.errors import InvalidCommand
from broker_core.names import Group, QueueName, Topic
from broker_core.remoting import bodies, route_bodies
from broker_core.remoting.admin_bodies import (
    ClientFacts,
    connections_to_json,
    running_to_json,
    subscribed_from_json,
)
from broker_core.remoting.bodies import ConsumerData, Heartbeat, LockBatch, Subscription
from broker_core.remoting.json_fields import JsonObject, parse_json
from broker_core.remoting.route_bodies import (
    BrokerData,
    BrokerRegistration,
    ClusterTable,
    DataVersion,
    QueueData,
    TopicConfig,
    TopicRoute,
)

T = Topic("T")

# Captured from a Java client of the 4.2 line.
JAVA_HEARTBEAT = b"""{"clientID":"192.0.2.2@capC","producerDataSet":[{"groupName":
"CLIENT_INNER_PRODUCER"}],"consumerDataSet":[{"groupName":"G","consumeType":"CONSUME_PASSIVELY",
"messageModel":"CLUSTERING","consumeFromWhere":"CONSUME_FROM_FIRST_OFFSET","unitMode":false,
"subscriptionDataSet":[{"classFilterMode":false,"topic":"T","subString":"tagA || tagB","tagsSet":
["tagA","tagB"],"codeSet":[3552231,3552232],"subVersion":1795249129060,"expressionType":"TAG"},
{"topic":"%RETRY%G","subString":"*","tagsSet":[],"codeSet":[]}]}]}"""


def test_a_java_heartbeat() -> None:
    heartbeat = Heartbeat.from_json(JAVA_HEARTBEAT)
    assert heartbeat == Heartbeat(
        client_id="192.0.2.2@capC",
        producers=(Group("CLIENT_INNER_PRODUCER"),),
        consumers=(
            ConsumerData(
                group=Group("G"),
                subscriptions=(
                    Subscription.of_tags(T, "tagA || tagB", version=1795249129060),
                    Subscription(topic=Topic("%RETRY%G")),
                ),
            ),
        ),
    )
    assert Heartbeat.from_json(heartbeat.to_json()) == heartbeat


def test_a_heartbeat_says_how_long_it_holds_only_if_that_is_not_as_long_as_ever() -> None:
    short = Heartbeat(client_id="one", expiry_ms=10_000)
    assert Heartbeat.from_json(short.to_json()) == short
    assert b"Timeout" not in Heartbeat(client_id="one").to_json()


@pytest.mark.parametrize("expiry", [b"0", b"-1", b"120001", b'"soon"', b"1.5"])
def test_a_heartbeat_that_holds_for_no_time_or_for_ever_is_refused(expiry: bytes) -> None:
    with pytest.raises(InvalidCommand, match="heartbeatTimeoutMillis"):
        Heartbeat.from_json(b'{"clientID":"one","heartbeatTimeoutMillis":%s}' % expiry)


@pytest.mark.parametrize("expression", ["*", " * ", "", None, "||"])
def test_expressions_that_mean_everything(expression: str | None) -> None:
    subscription = Subscription.of_tags(T, expression)
    assert (subscription.tags, subscription.codes) == (frozenset(), frozenset())


def test_tags_are_split_and_trimmed() -> None:
    subscription = Subscription.of_tags(T, " tagA||  tagB ||")
    assert subscription.tags == {"tagA", "tagB"}
    assert subscription.codes == {3552231, 3552232}


def test_lock_requests_and_answers() -> None:
    queues = frozenset({QueueName(T, "b", 1), QueueName(T, "b", 0)})
    batch = LockBatch(group=Group("G"), client_id="c", queues=queues)
    assert orjson.loads(batch.to_json()) == {
        "consumerGroup": "G",
        "clientId": "c",
        "mqSet": [
            {"topic": "T", "brokerName": "b", "queueId": 0},
            {"topic": "T", "brokerName": "b", "queueId": 1},
        ],
    }
    from_5_x = batch.to_json()[:-1] + b',"onlyThisBroker":false}'
    assert LockBatch.from_json(from_5_x) == batch
    assert bodies.locked_from_json(bodies.locked_to_json(queues)) == queues
    assert bodies.locked_from_json(b"{}") == set()


def test_lists_and_tables() -> None:
    assert bodies.consumer_ids_from_json(bodies.consumer_ids_to_json(["a", "b"])) == ["a", "b"]
    facts = [ClientFacts(each, "127.0.0.1:1", "JAVA", 400) for each in ("a", "b")]
    assert bodies.connected_ids_from_json(connections_to_json(facts)) == ["a", "b"]


def test_the_topics_of_a_client_are_read_beside_maps_whose_keys_are_objects() -> None:
    java = (
        b'{"jstack":"x","mqTable":{{"brokerName":"broker-a","queueId":0,"topic":"t"}:{"locked":true'
        b'}},"properties":{"PROP_CONSUMEORDERLY":"true"},"subscriptionSet":[{"classFilterMode":false'
        b',"codeSet":[],"subString":"*","subVersion":1,"tagsSet":[],"topic":"orders"},{"topic":'
        b'"%RETRY%g"}],"userConsumerInfo":{}}'
    )
    assert subscribed_from_json(java) == {"orders", "%RETRY%g"}
    ours = running_to_json({}, [bodies.Subscription(topic=Topic("orders"))])
    assert subscribed_from_json(ours) == {"orders"}
    for bad in (b"", b"{}", b'{"subscriptionSet":', b'{"subscriptionSet":{}}', b"\xff" * 9):
        with pytest.raises(InvalidCommand):
            subscribed_from_json(bad)
    assert bodies.table_from_json(b'{"table":{"a":"1","n":2}}') == {"a": "1", "n": "2"}
    topics = [Topic("a"), Topic("b")]
    assert route_bodies.topic_list_from_json(route_bodies.topic_list_to_json(topics)) == topics


@pytest.mark.parametrize("flag_name", ["topicSynFlag", "topicSysFlag"])
def test_a_route_as_fastjson_writes_it(flag_name: str) -> None:
    data = (
        b'{"brokerDatas":[{"brokerAddrs":{0:"127.0.0.1:20911",1 :"h:{1:2"},"brokerName":"broker-a",'
        b'"cluster":"C"}],"filterServerTable":{},"orderTopicConf":"broker-a:4","queueDatas":'
        b'[{"brokerName":"broker-a","perm":6,"readQueueNums":8,"%s":2,"writeQueueNums":4}]}'
    ) % flag_name.encode()
    route = TopicRoute.from_json(data)
    assert route == TopicRoute(
        queues=(QueueData(broker="broker-a", read_queues=8, write_queues=4, perm=6, sys_flag=2),),
        brokers=(
            BrokerData(
                cluster="C", broker="broker-a", addresses={0: "127.0.0.1:20911", 1: "h:{1:2"}
            ),
        ),
        order_conf="broker-a:4",
    )
    assert TopicRoute.from_json(route.to_json()) == route


def test_a_static_topic_fails_loudly() -> None:
    with pytest.raises(InvalidCommand, match="static topic"):
        TopicRoute.from_json(b'{"topicQueueMappingByBroker":{"b":{}}}')


def test_a_registration_and_a_cluster() -> None:
    config = TopicConfig(topic=T, read_queues=3, write_queues=2, perm=4, sys_flag=1, order=True)
    registration = BrokerRegistration(topics={T: config}, version=DataVersion(5, 6, 7))
    assert BrokerRegistration.from_json(registration.to_json()) == registration
    assert BrokerRegistration.from_json(b"").topics == {}
    nameless = b'{"topicConfigSerializeWrapper":{"topicConfigTable":{"T":{}}}}'
    assert BrokerRegistration.from_json(nameless).topics == {T: TopicConfig(topic=T)}

    broker = BrokerData(cluster="c", broker="b", addresses={0: "h:1"})
    table = ClusterTable(brokers={"b": broker}, clusters={"c": ("b",)})
    assert ClusterTable.from_json(table.to_json()) == table


def test_a_broker_without_an_elected_master_hides_no_other_broker() -> None:
    """Brokers of Apache RocketMQ with DLedger have the id -1 until their first election."""
    data = (
        b'{"brokerAddrTable":{"a":{"brokerAddrs":{-1:"h:1"},"brokerName":"a","cluster":"c"},'
        b'"b":{"brokerAddrs":{0:"h:2"},"brokerName":"b","cluster":"c"}},'
        b'"clusterAddrTable":{"c":["a","b"]}}'
    )
    table = ClusterTable.from_json(data)
    assert {name: dict(each.addresses) for name, each in table.brokers.items()} == {
        "a": {-1: "h:1"},
        "b": {0: "h:2"},
    }
    assert ClusterTable.from_json(table.to_json()) == table


def test_bare_integer_keys_are_read_and_strings_left_alone() -> None:
    data = rb'{"a":{0:1, -3 : 2},"s":"{4:\"5\",6:","l":[1,{7:[8]}]}'
    assert parse_json(data, what="x") == {
        "a": {"0": 1, "-3": 2},
        "s": '{4:"5",6:',
        "l": [1, {"7": [8]}],
    }
    with pytest.raises(InvalidCommand, match="x is not JSON"):  # not searched beyond 1 MiB
        parse_json(b"{0:" * 400_000, what="x")


@pytest.mark.parametrize(
    ("data", "text"),
    [
        (b"", "heartbeat is not JSON"),
        (b'{"clientID":', "heartbeat is not JSON"),
        (b"7", "heartbeat is 7: expected an object"),
        (b"{}", "heartbeat.clientID is missing: expected a text"),
        (b'{"clientID":null}', "heartbeat.clientID is missing"),
        (b'{"clientID":[]}', "heartbeat.clientID is an array: expected a text"),
        (
            b'{"clientID":"c","consumerDataSet":[{"groupName":{}}]}',
            r"heartbeat.consumerDataSet\[0\].groupName is an object: expected a text",
        ),
        (
            b'{"clientID":"c","consumerDataSet":[{"groupName":"g","subscriptionDataSet":[{}]}]}',
            r"subscriptionDataSet\[0\].topic is missing: expected a text",
        ),
    ],
)
def test_a_bad_body_is_named_with_its_field(data: bytes, text: str) -> None:
    with pytest.raises(InvalidCommand, match=text):
        Heartbeat.from_json(data)


#: A heartbeat as written by Java's client, and by others.
_AS_JAVA = {
    "clientID": "5",
    "consumerDataSet": [
        {
            "groupName": "7",
            "consumeType": "CONSUME_ACTIVELY",
            "messageModel": "BROADCASTING",
            "consumeFromWhere": "CONSUME_FROM_TIMESTAMP",
            "unitMode": False,
            "subscriptionDataSet": [
                {
                    "topic": "t",
                    "subString": "1 || b",
                    "tagsSet": ["1", "b"],
                    "codeSet": [49, 98],
                    "subVersion": 12,
                    "classFilterMode": False,
                }
            ],
        }
    ],
    "producerDataSet": [{"groupName": "9"}],
}


def _rewritten(value: Any, **changes: Any) -> Any:
    """Return *value* with some fields changed at any depth; None removes a field."""
    if isinstance(value, list):
        return [_rewritten(each, **changes) for each in value]
    if not isinstance(value, dict):
        return value
    pairs = {name: changes.get(name, _rewritten(each, **changes)) for name, each in value.items()}
    return {name: each for name, each in pairs.items() if each is not None}


@pytest.mark.parametrize(
    "changes",
    [
        {"clientID": 5},
        {"unitMode": "0"},
        {"unitMode": 0, "classFilterMode": "no"},
        {"subVersion": "12", "codeSet": ["49", "98"], "tagsSet": [1, "b"]},
        {"consumeType": 0, "messageModel": 0, "consumeFromWhere": 5},
        {"consumeType": "0", "messageModel": "0", "consumeFromWhere": "5"},
        {"messageModel": "BroadCasting"},
        {"codeSet": None},
        {"codeSet": "49", "tagsSet": {}},
        {"tagsSet": [[], "1", "b"], "codeSet": [49, {}, 98]},
    ],
)
def test_a_heartbeat_is_read_as_java_reads_it(changes: dict[str, Any]) -> None:
    wanted = Heartbeat.from_json(orjson.dumps(_AS_JAVA))
    assert Heartbeat.from_json(orjson.dumps(_rewritten(_AS_JAVA, **changes))) == wanted


@pytest.mark.parametrize("kind", ["", None])
def test_an_empty_kind_of_expression_means_tags_as_in_java(kind: str | None) -> None:
    fields = {"topic": "t", "subString": "1 || b", "expressionType": kind}
    read = Subscription.from_fields(JsonObject(fields, "subscription"))
    assert read == Subscription.of_tags(Topic("t"), "1 || b")


@pytest.mark.parametrize(
    ("changes", "attribute", "value"),
    [
        ({"consumeType": 99}, "consume_type", "CONSUME_PASSIVELY"),
        ({"messageModel": "ALL"}, "message_model", "CLUSTERING"),
        ({"consumeFromWhere": None}, "consume_from_where", "CONSUME_FROM_FIRST_OFFSET"),
        ({"consumeFromWhere": []}, "consume_from_where", "CONSUME_FROM_FIRST_OFFSET"),
    ],
)
def test_an_unknown_enumeration_member_has_its_default(
    changes: dict[str, Any], attribute: str, value: str
) -> None:
    (consumer,) = Heartbeat.from_json(orjson.dumps(_rewritten(_AS_JAVA, **changes))).consumers
    assert getattr(consumer, attribute) == value
    assert (consumer.group, len(consumer.subscriptions)) == ("7", 1)


def test_what_cannot_be_read_of_one_group_costs_no_other_its_membership() -> None:
    (good,) = _AS_JAVA["consumerDataSet"]
    unknown = {"topic": "u", "subVersion": "soon"}
    mixed = {**good, "groupName": "mixed", "subscriptionDataSet": [{}, 5, unknown]}
    heartbeat = Heartbeat.from_json(
        orjson.dumps({"clientID": "c", "consumerDataSet": [{}, "x", mixed, good]})
    )
    assert [each.group for each in heartbeat.consumers] == ["mixed", "7"]
    (subscription,) = heartbeat.consumers[0].subscriptions
    assert (subscription.topic, subscription.version) == ("u", 0)


def test_an_address_table_with_a_bad_id_is_refused() -> None:
    with pytest.raises(InvalidCommand, match="brokerAddrs holds 'x'"):
        TopicRoute.from_json(b'{"brokerDatas":[{"brokerName":"b","brokerAddrs":{"x":"h:1"}}]}')


@pytest.mark.timeout(5)
@pytest.mark.parametrize("unit", [b'{"a\\"', b'\\"', b'"', b"{1", b",1 ", b"[", b'{"a":'])
def test_broken_json_costs_one_pass(unit: bytes) -> None:
    with pytest.raises(InvalidCommand):
        parse_json(unit * (1 << 19), what="x")
