"""JSON bodies of nameservers: routes, registrations, topic lists. Pure.

Source: ``org.apache.rocketmq.common.protocol.route`` and ``.body`` (4.9.8), the same packages below
``remoting.protocol`` (5.3.3). Forms of the 4.2 line are read as well.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

import orjson

from broker_core.errors import InvalidCommand
from broker_core.names import Topic
from broker_core.remoting.json_fields import MAX_REQUEST_ELEMENTS, JsonObject

MASTER_ID = 0
_BROKER_ID = re.compile(r"-?[0-9]{1,19}")


class Perm:
    """Bits of a topic's ``perm``."""

    INHERIT = 1  # new topics may copy this one's configuration
    WRITE = 2
    READ = 4
    READ_WRITE = 6


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicConfig:
    """A topic on one broker."""

    topic: Topic
    read_queues: int = 16
    write_queues: int = 16
    perm: int = Perm.READ_WRITE
    sys_flag: int = 0
    order: bool = False

    def to_fields(self) -> dict[str, Any]:
        """Return the JSON object, also for the broker's topic file."""
        return {
            "topicName": self.topic,
            "readQueueNums": self.read_queues,
            "writeQueueNums": self.write_queues,
            "perm": self.perm,
            "topicFilterType": "SINGLE_TAG",
            "topicSysFlag": self.sys_flag,
            "order": self.order,
        }

    @classmethod
    def from_fields(cls, fields: JsonObject, *, topic: str | None = None) -> TopicConfig:
        """Read the JSON object; *topic* replaces a missing name."""
        return cls(
            topic=Topic(
                fields.text("topicName") if topic is None else fields.text("topicName", topic)
            ),
            read_queues=fields.count("readQueueNums", 16),
            write_queues=fields.count("writeQueueNums", 16),
            perm=fields.count("perm", Perm.READ_WRITE),
            sys_flag=fields.integer("topicSysFlag", 0),
            order=fields.boolean("order", False),
        )


@dataclass(frozen=True, slots=True)
class DataVersion:
    """Time of a table's last change (ms since 1970) and number of changes since the start.

    ``state_version`` increases with each election of a master (5.x), otherwise it is 0. A
    nameserver only compares versions.
    """

    timestamp: int = 0
    counter: int = 0
    state_version: int = 0

    def to_fields(self) -> dict[str, Any]:
        """Return the JSON object."""
        return {
            "stateVersion": self.state_version,
            "timestamp": self.timestamp,
            "counter": self.counter,
        }

    @classmethod
    def from_fields(cls, fields: JsonObject) -> DataVersion:
        """Read the JSON object. Raise InvalidCommand."""
        return cls(
            timestamp=fields.integer("timestamp", 0),
            counter=fields.integer("counter", 0),
            state_version=fields.integer("stateVersion", 0),
        )

    def to_json(self) -> bytes:
        """Return the body that answers 322."""
        return orjson.dumps(self.to_fields())

    @classmethod
    def from_json(cls, data: bytes | memoryview) -> DataVersion:
        """Read the body of 322. Raise InvalidCommand."""
        fields = JsonObject.parse(data, "data version", max_elements=MAX_REQUEST_ELEMENTS)
        return cls.from_fields(fields)


def topics_to_json(topics: Iterable[TopicConfig], version: DataVersion) -> bytes:
    """Return the body that answers 21: a broker's topics."""
    return orjson.dumps(_wrapped_topics(topics, version))


@dataclass(frozen=True, slots=True, kw_only=True)
class BrokerRegistration:
    """Body of 103: the topics of a broker."""

    topics: Mapping[Topic, TopicConfig]
    version: DataVersion = DataVersion()

    def to_json(self) -> bytes:
        """Return the body."""
        return orjson.dumps(
            {
                "topicConfigSerializeWrapper": _wrapped_topics(self.topics.values(), self.version),
                "filterServerList": [],
            }
        )

    @classmethod
    def from_json(cls, data: bytes | memoryview) -> BrokerRegistration:
        """Read the body; an empty one registers no topics. Raises InvalidCommand."""
        if not data:
            return cls(topics={})
        wrapper = JsonObject.parse(data, "registration").object("topicConfigSerializeWrapper")
        version = JsonObject(wrapper.items("dataVersion"), "registration's dataVersion")
        topics = {
            Topic(name): TopicConfig.from_fields(JsonObject(value, f"topic {name}"), topic=name)
            for name, value in wrapper.items("topicConfigTable").items()
        }
        return cls(topics=topics, version=DataVersion.from_fields(version))


def _wrapped_topics(topics: Iterable[TopicConfig], version: DataVersion) -> dict[str, Any]:
    return {
        "topicConfigTable": {item.topic: item.to_fields() for item in topics},
        "dataVersion": version.to_fields(),
    }


@dataclass(frozen=True, slots=True, kw_only=True)
class QueueData:
    """Number of queues of a topic at a broker, and the permission."""

    broker: str
    read_queues: int
    write_queues: int
    perm: int
    sys_flag: int = 0

    def to_fields(self) -> dict[str, Any]:
        """Return the JSON object."""
        return {
            "brokerName": self.broker,
            "readQueueNums": self.read_queues,
            "writeQueueNums": self.write_queues,
            "perm": self.perm,
            "topicSysFlag": self.sys_flag,
            "topicSynFlag": self.sys_flag,  # misspelt name of 4.8 and before
        }

    @classmethod
    def from_fields(cls, fields: JsonObject) -> QueueData:
        """Read the JSON object. Raise InvalidCommand."""
        return cls(
            broker=fields.text("brokerName"),
            read_queues=fields.integer("readQueueNums"),
            write_queues=fields.integer("writeQueueNums"),
            perm=fields.integer("perm"),
            sys_flag=fields.integer("topicSysFlag", 0) or fields.integer("topicSynFlag", 0),
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class BrokerData:
    """A broker's addresses (host:port) by id; 0 is the master's. Brokers of Apache RocketMQ that
    have not elected a master yet register with id -1.
    """

    cluster: str
    broker: str
    addresses: Mapping[int, str]

    def to_fields(self) -> dict[str, Any]:
        """Return the JSON object."""
        return {
            "cluster": self.cluster,
            "brokerName": self.broker,
            "brokerAddrs": {str(broker_id): text for broker_id, text in self.addresses.items()},
        }

    @classmethod
    def from_fields(cls, fields: JsonObject) -> BrokerData:
        """Read the JSON object. Raise InvalidCommand."""
        addresses = {}
        for broker_id, address in fields.items("brokerAddrs").items():
            if not _BROKER_ID.fullmatch(broker_id) or not isinstance(address, str):
                raise InvalidCommand(
                    f"brokerAddrs holds {broker_id!r}: {address!r}: expected an id and host:port"
                )
            addresses[int(broker_id)] = address
        return cls(
            cluster=fields.text("cluster", ""),
            broker=fields.text("brokerName"),
            addresses=addresses,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicRoute:
    """Body that answers 105: the queues of a topic."""

    queues: tuple[QueueData, ...] = ()
    brokers: tuple[BrokerData, ...] = ()
    order_conf: str | None = None  # "brokerA:4;brokerB:4"

    def to_json(self) -> bytes:
        """Return the body."""
        fields: dict[str, Any] = {
            "queueDatas": [item.to_fields() for item in self.queues],
            "brokerDatas": [item.to_fields() for item in self.brokers],
            "filterServerTable": {},
        }
        if self.order_conf is not None:
            fields["orderTopicConf"] = self.order_conf
        return orjson.dumps(fields)

    @classmethod
    def from_json(cls, data: bytes | memoryview) -> TopicRoute:
        """Read the body. Raise InvalidCommand, also for a static topic of 5.x."""
        fields = JsonObject.parse(data, "route")
        if fields.items("topicQueueMappingByBroker"):
            raise InvalidCommand("the topic is a static topic of RocketMQ 5: not supported")
        return cls(
            queues=tuple(QueueData.from_fields(item) for item in fields.objects("queueDatas")),
            brokers=tuple(BrokerData.from_fields(item) for item in fields.objects("brokerDatas")),
            order_conf=fields.text("orderTopicConf", None),
        )

    def order_queues(self) -> list[tuple[str, int]] | None:
        """Return brokers and ids of an order topic's queues in producers' order; None for others.

        They stay while a broker is down, so that no key moves. Raises InvalidCommand.
        """
        if not self.order_conf:
            return None
        queues = []
        for part in self.order_conf.rstrip(";").split(";"):
            broker, _, count = part.partition(":")
            if not broker or not count.isdecimal():
                raise InvalidCommand(
                    f"orderTopicConf is {self.order_conf!r}: expected broker:queues;broker:queues"
                )
            queues += [(broker, queue_id) for queue_id in range(int(count))]
        return queues


@dataclass(frozen=True, slots=True, kw_only=True)
class ClusterTable:
    """Body that answers 106: all brokers by name, and the brokers' names by cluster."""

    brokers: Mapping[str, BrokerData] = field(default_factory=dict)
    clusters: Mapping[str, tuple[str, ...]] = field(default_factory=dict)

    def to_json(self) -> bytes:
        """Return the body."""
        brokers = {name: item.to_fields() for name, item in self.brokers.items()}
        return orjson.dumps({"brokerAddrTable": brokers, "clusterAddrTable": dict(self.clusters)})

    @classmethod
    def from_json(cls, data: bytes | memoryview) -> ClusterTable:
        """Read the body. Raise InvalidCommand."""
        fields = JsonObject.parse(data, "cluster table")
        clusters = JsonObject(fields.items("clusterAddrTable"), "clusterAddrTable")
        return cls(
            brokers={
                name: BrokerData.from_fields(JsonObject(value, f"broker {name}"))
                for name, value in fields.items("brokerAddrTable").items()
            },
            clusters={
                name: tuple(clusters.texts(name)) for name in fields.items("clusterAddrTable")
            },
        )


def topic_list_to_json(topics: Iterable[Topic]) -> bytes:
    """Return the body that answers 206."""
    return orjson.dumps({"topicList": list(topics)})


def topic_list_from_json(data: bytes | memoryview) -> list[Topic]:
    """Read the body that answers 206. Raise InvalidCommand."""
    return [Topic(name) for name in JsonObject.parse(data, "topic list").texts("topicList")]
