"""A valid request for every request code, and invalid variants that must be refused."""

from __future__ import annotations

import zlib
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import orjson

from broker_core.names import Group, Topic
from broker_core.remoting import (
    admin_headers,
    header_fields,
    headers,
    nameserver_headers,
    query_headers,
    retry_headers,
)
from broker_core.remoting.codes import RequestCode
from broker_core.remoting.header_fields import Header
from broker_core.remoting.lock_renewal import RenewLocksHeader
from broker_core.remoting.message import OutgoingMessage
from broker_core.remoting.message_batch import encode_batch
from broker_core.remoting.queue_ranges import ReadRangesHeader
from broker_core.remoting.read_sessions import (
    Changes,
    Reading,
    ReadQueuesHeader,
    changes_to_bytes,
)
from broker_core.remoting.replication_headers import FetchLogHeader, JoinMasterHeader
from broker_core.remoting.together import CommitEntry, commits_to_bytes
from broker_core.remoting.transaction_headers import EndTransactionHeader

TOPIC = Topic("orders")

_SEND = {
    "producerGroup": "p", "topic": TOPIC, "defaultTopic": "TBW102", "defaultTopicQueueNums": "4",
    "queueId": "0", "sysFlag": "0", "bornTimestamp": "5", "flag": "0", "properties": "KEYS\x01k",
    "reconsumeTimes": "0", "unitMode": "false", "maxReconsumeTimes": "3", "batch": "false",
}  # fmt: skip
_PULL = {
    "consumerGroup": "g", "topic": TOPIC, "queueId": "0", "queueOffset": "0", "maxMsgNums": "32",
    "sysFlag": "4", "commitOffset": "0", "suspendTimeoutMillis": "0", "subscription": "*",
    "subVersion": "0", "expressionType": "TAG", "maxMsgBytes": "1000",
}  # fmt: skip
_QUEUE = {"topic": TOPIC, "queueId": "0"}
_COMMITTED = {"consumerGroup": "g", **_QUEUE}
_BROKER = {
    "brokerName": "b", "brokerAddr": "127.0.0.1:1", "clusterName": "c", "brokerId": "0"
}  # fmt: skip
_SUBSCRIPTION = {
    "topic": TOPIC, "subString": "a", "tagsSet": ["a"], "codeSet": [97], "subVersion": 1,
    "expressionType": "TAG",
}  # fmt: skip
_HEARTBEAT = {
    "clientID": "one", "producerDataSet": [{"groupName": "p"}],
    "consumerDataSet": [
        {
            "groupName": "g2", "consumeType": "CONSUME_PASSIVELY", "messageModel": "CLUSTERING",
            "consumeFromWhere": "CONSUME_FROM_FIRST_OFFSET",
            "subscriptionDataSet": [_SUBSCRIPTION],
        }
    ],
}  # fmt: skip
_LOCK = {
    "consumerGroup": "g", "clientId": "one",
    "mqSet": [{"topic": TOPIC, "brokerName": "broker-a", "queueId": 0}],
}  # fmt: skip
_GROUP = {
    "groupName": "g4", "consumeEnable": True, "retryQueueNums": 1, "retryMaxTimes": 16,
    "consumeTimeoutMinute": 15, "attributes": {},
}  # fmt: skip
_VERSION = {"timestamp": 1, "counter": 2, "stateVersion": 0}
_REGISTRATION = {
    "topicConfigSerializeWrapper": {
        "topicConfigTable": {"t": {"topicName": "t", "readQueueNums": 4, "perm": 6, "order": True}},
        "dataVersion": _VERSION,
    },
    "filterServerList": [],
}


@dataclass(frozen=True, slots=True)
class Good:
    """A request that succeeds. *header* describes its fields, *json* or *body* is its body."""

    header: type[Header] | None = None
    values: dict[str, str] = field(default_factory=dict)
    json: Any = None
    body: bytes = b""
    unset: frozenset[str] = frozenset()  # fields that depend on the broker
    letters: bool = False  # the one-letter names of a send
    first: int | None = None  # requests needed before it on the same connection

    def fields(self) -> list[tuple[str, str, bool]]:
        """Expected fields: name on the wire, kind of value, whether it is required."""
        if self.header is None:
            return []
        known = headers.v2_fields() if self.letters else header_fields.fields_of(self.header)
        return [
            (each.wire_name, each.expected, each.default is header_fields.MISSING) for each in known
        ]

    def ext(self) -> dict[str, str]:
        """Return the header fields as sent."""
        if not self.letters:
            return dict(self.values)
        known = header_fields.fields_of(headers.SendMessageHeader)
        return {
            short.wire_name: self.values[long.wire_name]
            for short, long in zip(headers.v2_fields(), known, strict=True)
        }

    def content(self) -> bytes:
        """Return the body as sent."""
        return self.body if self.json is None else orjson.dumps(self.json)


_BATCH = encode_batch([OutgoingMessage(TOPIC, b"one", key="k")])

AT_BROKER: dict[int, Good] = {
    RequestCode.SEND_MESSAGE: Good(headers.SendMessageHeader, _SEND, body=b"x"),
    RequestCode.SEND_MESSAGE_V2: Good(headers.SendMessageHeader, _SEND, body=b"x", letters=True),
    RequestCode.SEND_BATCH_MESSAGE: Good(
        headers.SendMessageHeader, _SEND | {"batch": "true"}, body=_BATCH, letters=True
    ),
    RequestCode.PULL_MESSAGE: Good(
        headers.PullMessageHeader, _PULL, unset=frozenset({"life"})
    ),
    RequestCode.LITE_PULL_MESSAGE: Good(
        headers.PullMessageHeader, _PULL, unset=frozenset({"life"})
    ),
    RequestCode.QUERY_CONSUMER_OFFSET: Good(
        headers.QueryConsumerOffsetHeader, _COMMITTED | {"setZeroIfNotFound": "true"}
    ),
    RequestCode.UPDATE_CONSUMER_OFFSET: Good(
        headers.UpdateConsumerOffsetHeader,
        _COMMITTED
        | {"commitOffset": "0", "epoch": "0", "epochLife": "0"}
        | {"atOnce": "false", "ifNone": "true", "notLower": "true"},
        unset=frozenset({"life"}),
    ),
    RequestCode.QUERY_MESSAGE: Good(
        query_headers.QueryMessageHeader,
        {
            "topic": TOPIC, "key": "k", "maxNum": "1", "beginTimestamp": "0",
            "endTimestamp": "9999999999999", "_UNIQUE_KEY_QUERY": "false",
        },
    ),
    RequestCode.CONSUMER_SEND_MSG_BACK: Good(
        retry_headers.SendBackHeader,
        {
            "offset": "0", "group": "g", "delayLevel": "0", "originMsgId": "m",
            "originTopic": TOPIC, "unitMode": "false", "maxReconsumeTimes": "16",
        },
    ),
    RequestCode.RECALL_MESSAGE: Good(
        retry_headers.RecallMessageHeader,
        {"producerGroup": "p", "topic": TOPIC, "recallHandle": "none"},
    ),
    RequestCode.INVOKE_BROKER_TO_RESET_OFFSET: Good(
        query_headers.ResetOffsetHeader,
        {
            "topic": TOPIC, "group": "g4", "timestamp": "-1", "isForce": "true", "queueId": "-1",
            "offset": "0",
        },
    ),
    RequestCode.VIEW_MESSAGE_BY_ID: Good(query_headers.ViewMessageHeader, {"offset": "0"}),
    RequestCode.GET_EARLIEST_MSG_STORETIME: Good(headers.QueueHeader, _QUEUE),
    RequestCode.SEARCH_OFFSET_BY_TIMESTAMP: Good(
        headers.SearchOffsetHeader, _QUEUE | {"timestamp": "0", "boundaryType": "upper"}
    ),
    RequestCode.GET_MAX_OFFSET: Good(headers.QueueHeader, _QUEUE),
    RequestCode.GET_MIN_OFFSET: Good(headers.QueueHeader, _QUEUE),
    RequestCode.HEART_BEAT: Good(json=_HEARTBEAT),
    RequestCode.CHECK_CLIENT_CONFIG: Good(
        json={"clientId": "one", "group": "g2", "subscriptionData": _SUBSCRIPTION}
    ),
    RequestCode.UNREGISTER_CLIENT: Good(
        headers.UnregisterClientHeader,
        {"clientID": "one", "producerGroup": "p", "consumerGroup": "g2"},
    ),
    RequestCode.END_TRANSACTION: Good(
        EndTransactionHeader,
        {
            "producerGroup": "p", "tranStateTableOffset": "0", "commitLogOffset": "0",
            "commitOrRollback": "0", "fromTransactionCheck": "true", "msgId": "m",
            "transactionId": "m", "topic": "orders",
        },
    ),
    RequestCode.GET_CONSUMER_LIST_BY_GROUP: Good(
        headers.ConsumerGroupHeader, {"consumerGroup": "members"}
    ),
    RequestCode.LOCK_BATCH_MQ: Good(json=_LOCK),
    RequestCode.UNLOCK_BATCH_MQ: Good(json=_LOCK),
    RequestCode.UPDATE_AND_CREATE_TOPIC: Good(
        headers.CreateTopicHeader,
        {
            "topic": "other", "defaultTopic": "TBW102", "readQueueNums": "4",
            "writeQueueNums": "4", "perm": "6", "topicFilterType": "SINGLE_TAG",
            "topicSysFlag": "0", "order": "false", "attributes": "+message.type=NORMAL",
        },
    ),
    RequestCode.GET_ALL_TOPIC_CONFIG: Good(),
    RequestCode.GET_ALL_CONSUMER_OFFSET: Good(),
    RequestCode.DELETE_SUBSCRIPTIONGROUP: Good(
        headers.DeleteGroupHeader,
        {"groupName": "g3", "cleanOffset": "true", "removeOffset": "true"},
    ),
    RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP: Good(json=_GROUP),
    RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP_LIST: Good(json={"groupConfigList": [_GROUP]}),
    RequestCode.GET_ALL_SUBSCRIPTIONGROUP_CONFIG: Good(),
    RequestCode.GET_SUBSCRIPTIONGROUP_CONFIG: Good(headers.GroupHeader, {"group": "g"}),
    RequestCode.DELETE_TOPIC_IN_BROKER: Good(
        headers.TopicHeader, {"topic": "unknown", "acceptStandardJsonOnly": "false"}
    ),
    RequestCode.GET_BROKER_RUNTIME_INFO: Good(),
    RequestCode.JOIN_MASTER: Good(
        JoinMasterHeader,
        {
            "brokerName": "broker-a", "brokerId": "1", "brokerAddr": "127.0.0.1:1", "logId": "",
            "epoch": "0", "endOffset": "0",
        },
        json=[],
    ),
    RequestCode.FETCH_LOG: Good(
        FetchLogHeader, {"offset": "0", "examined": "true"}, first=RequestCode.JOIN_MASTER
    ),
    RequestCode.FETCH_TABLES: Good(json={"names": ["topics"]}),
    RequestCode.UPDATE_AND_CREATE_TOPIC_LIST: Good(
        json={"topicConfigList": [{"topicName": "other", "readQueueNums": 4, "perm": 6}]}
    ),
    RequestCode.UPDATE_BROKER_CONFIG: Good(body=b"brokerId=0\n"),
    RequestCode.GET_BROKER_CONFIG: Good(),
    RequestCode.RENEW_LOCKS: Good(
        RenewLocksHeader, {"clientId": "one"}, json={"g": {TOPIC: [0]}}
    ),
    RequestCode.READ_QUEUES: Good(
        ReadQueuesHeader,
        {"session": "1", "epoch": "0", "suspendTimeoutMillis": "0", "maxBytes": "1000"},
        body=changes_to_bytes(
            Changes(begun=[Reading(1, Group("g"), TOPIC, 0, "*", None)])
        ),
    ),
    RequestCode.COMMIT_OFFSETS: Good(
        body=commits_to_bytes([CommitEntry(Group("g"), TOPIC, 0, 0, None, None, None)])
    ),
    RequestCode.READ_RANGES: Good(
        ReadRangesHeader,
        {"topic": TOPIC, "queueId": "0", "count": "2", "consumerGroup": "g"},
    ),
    RequestCode.SEND_MESSAGES: Good(),  # with no message, as no answer tells how many are stored
    RequestCode.CONFIRM_CLOCK: Good(
        admin_headers.ConfirmClockHeader, {"by": "ada", "reason": "the clock was set right"}
    ),
    RequestCode.GET_TOPIC_STATS_INFO: Good(admin_headers.TopicOnlyHeader, {"topic": TOPIC}),
    RequestCode.GET_CONSUMER_CONNECTION_LIST: Good(
        headers.ConsumerGroupHeader, {"consumerGroup": "members"}
    ),
    RequestCode.GET_PRODUCER_CONNECTION_LIST: Good(
        admin_headers.ProducerGroupHeader, {"producerGroup": "members"}
    ),
    RequestCode.GET_CONSUME_STATS: Good(
        admin_headers.ConsumeStatsHeader, {"consumerGroup": "g", "topic": TOPIC, "topicList": TOPIC}
    ),
    RequestCode.QUERY_TOPIC_CONSUME_BY_WHO: Good(admin_headers.TopicOnlyHeader, {"topic": TOPIC}),
    RequestCode.QUERY_CONSUME_TIME_SPAN: Good(
        admin_headers.GroupTopicHeader, {"group": "g", "topic": TOPIC}
    ),
    RequestCode.GET_SYSTEM_TOPIC_LIST_FROM_BROKER: Good(),
    RequestCode.GET_CONSUMER_RUNNING_INFO: Good(
        admin_headers.ClientOfGroupHeader, {"consumerGroup": "members", "clientId": "m"}
    ),
    RequestCode.CLONE_GROUP_OFFSET: Good(
        admin_headers.CloneOffsetsHeader,
        {"srcGroup": "g", "destGroup": "g5", "topic": TOPIC, "offline": "true"},
    ),
    RequestCode.VIEW_BROKER_STATS_DATA: Good(
        admin_headers.StatsHeader, {"statsName": "TOPIC_PUT_NUMS", "statsKey": TOPIC}
    ),
    RequestCode.GET_BROKER_CONSUME_STATS: Good(
        admin_headers.BrokerConsumeStatsHeader, {"isOrder": "false"}
    ),
    RequestCode.QUERY_CONSUME_QUEUE: Good(
        admin_headers.ConsumeQueueHeader,
        _QUEUE | {"index": "0", "count": "1", "consumerGroup": "members"},
    ),
    RequestCode.GET_ALL_PRODUCER_INFO: Good(),
    RequestCode.DELETE_EXPIRED_COMMITLOG: Good(),
    RequestCode.QUERY_TOPICS_BY_CONSUMER: Good(headers.GroupHeader, {"group": "g"}),
    RequestCode.QUERY_SUBSCRIPTION_BY_CONSUMER: Good(
        admin_headers.GroupTopicHeader, {"group": "members", "topic": TOPIC}
    ),
    RequestCode.GET_TOPIC_CONFIG: Good(admin_headers.TopicOnlyHeader, {"topic": TOPIC}),
}  # fmt: skip

_KEY = {"namespace": "n", "key": "k"}

AT_NAMESERVER: dict[int, Good] = {
    RequestCode.PUT_KV_CONFIG: Good(nameserver_headers.PutKvHeader, _KEY | {"value": "v"}),
    RequestCode.GET_KV_CONFIG: Good(nameserver_headers.KvKeyHeader, _KEY),
    RequestCode.DELETE_KV_CONFIG: Good(nameserver_headers.KvKeyHeader, _KEY | {"key": "other"}),
    RequestCode.GET_KVLIST_BY_NAMESPACE: Good(
        nameserver_headers.KvNamespaceHeader, {"namespace": "n"}
    ),
    RequestCode.REGISTER_BROKER: Good(
        nameserver_headers.RegisterBrokerHeader,
        _BROKER | {
            "haServerAddr": "127.0.0.1:2", "compressed": "false", "bodyCrc32": "0",
            "heartbeatTimeoutMillis": "1000", "part": "0", "parts": "2",
        },
        json=_REGISTRATION,
    ),
    RequestCode.UNREGISTER_BROKER: Good(nameserver_headers.BrokerHeader, _BROKER),
    RequestCode.QUERY_DATA_VERSION: Good(nameserver_headers.BrokerHeader, _BROKER, json=_VERSION),
    RequestCode.GET_ROUTEINFO_BY_TOPIC: Good(
        headers.TopicHeader, {"topic": TOPIC, "acceptStandardJsonOnly": "true"}
    ),
    RequestCode.GET_BROKER_CLUSTER_INFO: Good(),
    RequestCode.GET_ALL_TOPIC_LIST_FROM_NAMESERVER: Good(),
    RequestCode.WIPE_WRITE_PERM_OF_BROKER: Good(
        admin_headers.BrokerNameHeader, {"brokerName": "b"}
    ),
    RequestCode.ADD_WRITE_PERM_OF_BROKER: Good(
        admin_headers.BrokerNameHeader, {"brokerName": "b"}
    ),
    RequestCode.GET_TOPICS_BY_CLUSTER: Good(admin_headers.ClusterHeader, {"cluster": "c"}),
    RequestCode.GET_SYSTEM_TOPIC_LIST_FROM_NS: Good(),
    RequestCode.DELETE_TOPIC_IN_NAMESRV: Good(
        headers.TopicHeader, {"topic": "unknown", "acceptStandardJsonOnly": "false"}
    ),
}  # fmt: skip

_NO_INTEGER = ("", " ", "x", "NaN", "Infinity", "1.5", "1e3", "0x10", "1_0", " 1", "²", "--1")
_WRONG = {
    "a 32-bit integer": (*_NO_INTEGER, str(1 << 31), str(-(1 << 31) - 1), "9" * 5000),
    "a 64-bit integer": (*_NO_INTEGER, str(1 << 63), str(-(1 << 63) - 1), "9" * 5000),
    "true or false": (),
    "a text": (),
}
_ABSURD = {
    "a 32-bit integer": ("-1", "2147483647", "-2147483648", "+0", "00099999"),
    "a 64-bit integer": ("-1", str((1 << 63) - 1), str(-(1 << 63))),
    "true or false": ("TRUE", "", "yes", "1", "null", "truefalse"),
    "a text": ("", " ", "a b", "\0", "\x01\x02", "\n", "é€\U0001f600", "x" * 300, "\0" * 100_000),
}
_JUNK: tuple[Any, ...] = (
    None, True, -1, 1.5, 1 << 31, 1 << 63, "", "\n", "é", "x" * 2000, [], {}, [[]], [1, "a", None],
    {"a": {}}, [{}] * 100,
)  # fmt: skip


def wrong_fields(good: Good) -> Iterator[tuple[dict[str, str], str]]:
    """Yield invalid headers, each with the text that the remark must contain."""
    ext = good.ext()
    for name, expected, required in good.fields():
        if required:
            without = {key: value for key, value in ext.items() if key != name}
            yield without, f"header field {name} is missing: expected {expected}"
            for text in _WRONG[expected]:
                remark = f"header field {name} is {text[:200]!r}: expected {expected}"
                yield ext | {name: text}, remark


def absurd_fields(good: Good) -> Iterator[dict[str, str]]:
    """Yield headers that can be decoded but make little or no sense."""
    ext = good.ext()
    yield ext | {"unknown": "x" * 10_000, "": ""}
    for name, expected, required in good.fields():
        if not required:
            yield {key: value for key, value in ext.items() if key != name}
        for text in (*_ABSURD[expected], *(() if required else _WRONG[expected])):
            yield ext | {name: text}


def bad_bodies(good: Good) -> Iterator[bytes]:
    """Yield truncated, inconsistent and malformed bodies."""
    body = good.content()
    yield from (b"", b"{", b"[]", b"null", b"5", b'"x"', b"[" * 5000 + b"]" * 5000, b"\xff" * 100)
    yield from (b'{"a":' * 500 + b"1" + b"}" * 500, zlib.compress(bytes(1 << 20)), body + b"x")
    step = max(1, len(body) // 40)
    yield from (body[:end] for end in range(0, len(body), step))
    for at in range(min(len(body), 24)):  # a batch: all of its lengths
        for byte in (0, 1, 0x7F, 0x80, 0xFF):
            yield body[:at] + bytes((byte,)) + body[at + 1 :]
    if good.json is not None:
        yield from (orjson.dumps(each) for each in _with_junk(good.json))


def _with_junk(value: Any) -> Iterator[Any]:
    """Yield *value* with each of its fields removed, and replaced by each kind of junk."""
    yield from _JUNK
    if isinstance(value, dict):
        for name, part in value.items():
            yield {key: each for key, each in value.items() if key != name}
            yield from (value | {name: changed} for changed in _with_junk(part))
    elif isinstance(value, list):
        for changed in _with_junk(value[0]) if value else ():
            yield [*value, changed]
