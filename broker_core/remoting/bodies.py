"""JSON bodies of requests and responses between clients and brokers. Pure.

Each has ``to_json`` and ``from_json``; the latter raises InvalidCommand that names the field. They
write standard JSON and read fastjson's output. Bodies of nameservers are in ``route_bodies.py``.
Source: ``org.apache.rocketmq.common.protocol.body`` and ``.heartbeat`` (4.9.8),
``remoting.protocol`` (5.3.3).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

import orjson

from broker_core.errors import InvalidCommand
from broker_core.names import Group, QueueName, Topic, check_name
from broker_core.remoting.json_fields import MAX_REQUEST_ELEMENTS, JsonObject
from broker_core.remoting.key_hash import java_hash

D = TypeVar("D")

PASSIVELY = "CONSUME_PASSIVELY"  # a push consumer, which the proxy appears as
CLUSTERING = "CLUSTERING"  # members share the queues
FROM_FIRST = "CONSUME_FROM_FIRST_OFFSET"
#: Java's enumerations, in the order of their ordinals.
CONSUME_TYPES = ("CONSUME_ACTIVELY", PASSIVELY, "CONSUME_POP")
MESSAGE_MODELS = ("BROADCASTING", CLUSTERING)
CONSUME_FROM = (
    "CONSUME_FROM_LAST_OFFSET",
    "CONSUME_FROM_LAST_OFFSET_AND_FROM_MIN_WHEN_BOOT_FIRST",
    "CONSUME_FROM_MIN_OFFSET",
    "CONSUME_FROM_MAX_OFFSET",
    FROM_FIRST,
    "CONSUME_FROM_TIMESTAMP",
)

#: Time for which a member is kept without a heartbeat.
MEMBER_EXPIRY_MS = 120_000

#: Limits of one request; its names are kept while the member or lock exists.
MAX_HEARTBEAT_BYTES = 4 * 1024 * 1024
MAX_HEARTBEAT_GROUPS = 4096
#: A proxy sends one for each topic that its clients want, of each group.
MAX_HEARTBEAT_PRODUCERS = 32_768
MAX_LOCK_BYTES = 1024 * 1024
MAX_CLIENT_ID_CHARS = 1024
MAX_EXPRESSION_CHARS = 32_767


@dataclass(frozen=True, slots=True, kw_only=True)
class Subscription:
    """A group's subscription to a topic. Empty ``tags`` mean everything.

    ``codes`` are the hash codes of the tags, which the broker compares; consumers compare the tags
    themselves. A broker replaces a subscription only by one of a higher ``version``.
    """

    topic: Topic
    expression: str = "*"
    tags: frozenset[str] = frozenset()
    codes: frozenset[int] = frozenset()
    version: int = 0
    expression_type: str = "TAG"

    @classmethod
    def of_tags(cls, topic: Topic, expression: str | None, *, version: int = 0) -> Subscription:
        """Parse ``tagA || tagB``; ``*``, empty or None is everything."""
        expression = (expression or "*").strip()
        tags = frozenset(filter(None, (tag.strip() for tag in expression.split("||"))))
        if not tags or expression == "*":
            return cls(topic=topic, version=version)
        return cls(
            topic=topic,
            expression=expression,
            tags=tags,
            codes=frozenset(java_hash(tag) for tag in tags),
            version=version,
        )

    def to_fields(self) -> dict[str, Any]:
        """Return the JSON object."""
        return {
            "classFilterMode": False,
            "topic": self.topic,
            "subString": self.expression,
            "tagsSet": sorted(self.tags),
            "codeSet": sorted(self.codes),
            "subVersion": self.version,
            "expressionType": self.expression_type,
        }

    @classmethod
    def from_fields(cls, fields: JsonObject) -> Subscription:
        """Read the JSON object. Raise InvalidCommand.

        Missing tags or codes are derived from the expression.
        """
        expression = fields.text("subString", "*")
        kind = fields.text("expressionType", "TAG") or "TAG"  # both, as in Java
        tags, codes = frozenset(fields.texts("tagsSet")), frozenset(fields.integers("codeSet"))
        topic, version = Topic(fields.text("topic")), fields.integer("subVersion", 0)
        if kind == "TAG" and not (tags and codes):
            whole = cls.of_tags(topic, expression)
            tags, codes = tags or whole.tags, codes or whole.codes
        return cls(
            topic=topic,
            expression=expression,
            tags=tags,
            codes=codes,
            version=version,
            expression_type=kind,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class ConsumerData:
    """One consumer group of a heartbeat."""

    group: Group
    subscriptions: tuple[Subscription, ...]
    consume_type: str = PASSIVELY
    message_model: str = CLUSTERING
    consume_from_where: str = FROM_FIRST

    def to_fields(self) -> dict[str, Any]:
        """Return the JSON object."""
        return {
            "groupName": self.group,
            "consumeType": self.consume_type,
            "messageModel": self.message_model,
            "consumeFromWhere": self.consume_from_where,
            "unitMode": False,
            "subscriptionDataSet": [item.to_fields() for item in self.subscriptions],
        }

    @classmethod
    def from_fields(cls, fields: JsonObject) -> ConsumerData:
        """Read the JSON object. Raise InvalidCommand."""
        return cls(
            group=_group_of(fields, "groupName"),
            subscriptions=tuple(
                _readable(Subscription.from_fields, fields.objects("subscriptionDataSet"))
            ),
            consume_type=fields.member("consumeType", CONSUME_TYPES, PASSIVELY),
            message_model=fields.member("messageModel", MESSAGE_MODELS, CLUSTERING),
            consume_from_where=fields.member("consumeFromWhere", CONSUME_FROM, FROM_FIRST),
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Heartbeat:
    """Request 34: all groups of a client, to keep it a member for 120 s.

    *expiry_ms*: a shorter time. An extension; Apache RocketMQ ignores it.
    """

    client_id: str
    consumers: tuple[ConsumerData, ...] = ()
    producers: tuple[Group, ...] = ()
    expiry_ms: int = MEMBER_EXPIRY_MS

    def to_json(self) -> bytes:
        """Return the body."""
        fields: dict[str, Any] = {
            "clientID": self.client_id,
            "producerDataSet": [{"groupName": group} for group in self.producers],
            "consumerDataSet": [item.to_fields() for item in self.consumers],
        }
        if self.expiry_ms != MEMBER_EXPIRY_MS:
            fields["heartbeatTimeoutMillis"] = self.expiry_ms
        return orjson.dumps(fields)

    @classmethod
    def from_json(cls, data: bytes | memoryview) -> Heartbeat:
        """Read the body. Raise InvalidCommand.

        An invalid group or subscription does not affect the others.
        """
        fields = JsonObject.parse(
            data,
            "heartbeat",
            max_bytes=MAX_HEARTBEAT_BYTES,
            max_elements=MAX_REQUEST_ELEMENTS,
            forgiving=True,
        )
        groups = _at_most(MAX_HEARTBEAT_GROUPS, fields, "consumerDataSet")
        producers = _at_most(MAX_HEARTBEAT_PRODUCERS, fields, "producerDataSet")
        expiry_ms = MEMBER_EXPIRY_MS
        if "heartbeatTimeoutMillis" in fields.all():
            expiry_ms = fields.integer("heartbeatTimeoutMillis")
        if not 1 <= expiry_ms <= MEMBER_EXPIRY_MS:
            raise InvalidCommand(
                f"heartbeat.heartbeatTimeoutMillis is {expiry_ms}: expected 1 to {MEMBER_EXPIRY_MS}"
            )
        return cls(
            client_id=_client_id_of(fields, "clientID"),
            expiry_ms=expiry_ms,
            consumers=tuple(_readable(ConsumerData.from_fields, groups)),
            producers=tuple(_readable(lambda item: Group(item.text("groupName")), producers)),
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class LockBatch:
    """Requests 41 and 42: the queues that a client wants to lock, or unlock, for a group.

    ``only_this_broker``: the broker must not ask its replicas; so they ask each other. ``sequence``
    is an extension: it increases with each request of a client, so that the embedded broker detects
    late ones. 0: not given.
    """

    group: Group
    client_id: str
    queues: frozenset[QueueName]
    only_this_broker: bool = False
    sequence: int = 0

    def to_json(self) -> bytes:
        """Return the body."""
        return orjson.dumps(
            {
                "consumerGroup": self.group,
                "clientId": self.client_id,
                "mqSet": _queue_fields(self.queues),
                **({"onlyThisBroker": True} if self.only_this_broker else {}),
                **({"sequence": self.sequence} if self.sequence else {}),
            }
        )

    @classmethod
    def from_json(cls, data: bytes | memoryview) -> LockBatch:
        """Read the body. Raise InvalidCommand."""
        fields = JsonObject.parse(
            data, "lock request", max_bytes=MAX_LOCK_BYTES, max_elements=MAX_REQUEST_ELEMENTS
        )
        return cls(
            group=_group_of(fields, "consumerGroup"),
            client_id=_client_id_of(fields, "clientId"),
            queues=frozenset(_queue_of(item) for item in fields.objects("mqSet")),
            only_this_broker=fields.boolean("onlyThisBroker", False),
            sequence=fields.integer("sequence", 0),
        )


def locked_to_json(queues: Iterable[QueueName]) -> bytes:
    """Return the body that answers 41: the queues that were granted."""
    return orjson.dumps({"lockOKMQSet": _queue_fields(queues)})


def locked_from_json(data: bytes | memoryview) -> set[QueueName]:
    """Read the body that answers 41. Raise InvalidCommand."""
    fields = JsonObject.parse(data, "lock answer")
    return {_queue_of(item) for item in fields.objects("lockOKMQSet")}


def consumer_ids_to_json(client_ids: Iterable[str]) -> bytes:
    """Return the body that answers 38: the members of a group."""
    return orjson.dumps({"consumerIdList": list(client_ids)})


def consumer_ids_from_json(data: bytes | memoryview) -> list[str]:
    """Read the body that answers 38. Raise InvalidCommand."""
    return JsonObject.parse(data, "consumer list").texts("consumerIdList")


def connected_ids_from_json(data: bytes | memoryview) -> list[str]:
    """Read the body that answers 204: the clients of a producer group. Raise InvalidCommand."""
    clients = JsonObject.parse(data, "list of producers").objects("connectionSet")
    return [client.text("clientId") for client in clients]


def table_to_json(table: Mapping[str, str]) -> bytes:
    """Return the body that answers 28 and 219: names and values."""
    return orjson.dumps({"table": dict(table)})


def table_from_json(data: bytes | memoryview) -> dict[str, str]:
    """Read the body that answers 28 and 219, values as text. Raise InvalidCommand."""
    items = JsonObject.parse(data, "table").items("table")
    return {name: str(value) for name, value in items.items()}


def committed_queues_from_json(data: bytes | memoryview, group: Group, topic: Topic) -> set[int]:
    """Return the queue ids of *topic* with an offset of *group*, from the body that answers 43.

    It is RocketMQ's own table, ``{"offsetTable": {"topic@group": {"0": 5}}}``. Raises
    InvalidCommand.
    """
    table = JsonObject.parse(data, "offsets").object("offsetTable")
    return {int(queue_id) for queue_id in table.items(f"{topic}@{group}")}


def consumers_from_json(data: bytes | memoryview) -> set[tuple[Group, Topic]]:
    """Return all groups with an offset and their topics, from the same body. Raise
    InvalidCommand.
    """
    table = JsonObject.parse(data, "offsets").items("offsetTable")
    names = (name.partition("@") for name in table)
    return {(Group(group), Topic(topic)) for topic, _, group in names}


def _queue_fields(queues: Iterable[QueueName]) -> list[dict[str, Any]]:
    return [
        {"topic": topic, "brokerName": broker, "queueId": queue_id}
        for topic, broker, queue_id in sorted(queues)
    ]


def _readable(read: Callable[[JsonObject], D], items: Sequence[JsonObject]) -> list[D]:
    """Return the readable items. Raise InvalidCommand if none of them is."""
    found, why = [], None
    for item in items:
        try:
            found.append(read(item))
        except InvalidCommand as error:
            why = why or str(error)
    if why is not None and not found:
        raise InvalidCommand(why)
    return found


def _at_most(limit: int, heartbeat: JsonObject, name: str) -> list[JsonObject]:
    groups = heartbeat.objects(name)
    if len(groups) > limit:
        raise InvalidCommand(
            f"heartbeat.{name} has {len(groups)} groups: at most {limit} are allowed"
        )
    return groups


def _group_of(fields: JsonObject, name: str) -> Group:
    try:
        return Group(check_name("group", fields.text(name)))
    except ValueError as error:
        raise InvalidCommand(str(error)) from error


def _client_id_of(fields: JsonObject, name: str) -> str:
    client_id = fields.text(name)
    if not 0 < len(client_id) <= MAX_CLIENT_ID_CHARS:
        raise InvalidCommand(
            f"{name} has {len(client_id)} characters: expected 1 to {MAX_CLIENT_ID_CHARS}"
        )
    return client_id


def _queue_of(fields: JsonObject) -> QueueName:
    return QueueName(
        Topic(fields.text("topic")), fields.text("brokerName"), fields.integer("queueId")
    )
