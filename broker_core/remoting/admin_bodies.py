"""Bodies of a broker's answers to administrators: encodes facts as JSON. Pure.

Source: ``org.apache.rocketmq.common.admin`` and ``.protocol.body`` (4.9.7), the same below
``remoting.protocol`` (5.3.3).
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import orjson

from broker_core.errors import InvalidCommand
from broker_core.names import Group, QueueName, Topic
from broker_core.remoting.bodies import Subscription
from broker_core.remoting.json_fields import JsonObject, short
from broker_core.remoting.queue_maps import object_to_json, queue_fields, queue_map_to_json
from broker_core.remoting.route_bodies import TopicConfig


class QueueEnds(NamedTuple):
    """A queue's oldest and next offset, and the store time of its last message (ms; 0: none)."""

    min_offset: int
    max_offset: int
    last_ms: int


def topic_stats_to_json(ends: Mapping[QueueName, QueueEnds], put_rate: float) -> bytes:
    """Return the body that answers 202; *put_rate* in messages per second."""
    table = (
        (queue, {"minOffset": low, "maxOffset": high, "lastUpdateTimestamp": last_ms})
        for queue, (low, high, last_ms) in ends.items()
    )
    return object_to_json(
        {"offsetTable": queue_map_to_json(table), "topicPutTps": orjson.dumps(put_rate)}
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class QueueProgress:
    """Progress of a group in a queue.

    ``last_ms``: store time of the last message it finished, 0 if none or unknown; ``pull_offset``:
    the offset of its last pull.
    """

    broker_offset: int
    consumer_offset: int
    pull_offset: int
    last_ms: int

    @property
    def lag(self) -> int:
        """Number of messages that the group has not finished."""
        return self.broker_offset - self.consumer_offset

    @property
    def in_flight(self) -> int:
        """Number of messages delivered to the group and not finished."""
        return self.pull_offset - self.consumer_offset

    def to_fields(self) -> dict[str, int]:
        """Return the JSON object."""
        return {
            "brokerOffset": self.broker_offset,
            "consumerOffset": self.consumer_offset,
            "pullOffset": self.pull_offset,
            "lastTimestamp": self.last_ms,
        }


@dataclass(frozen=True, slots=True)
class ConsumeStats:
    """Progress of a group in some queues; *rate* in messages per second."""

    queues: Mapping[QueueName, QueueProgress]
    rate: float = 0.0

    def to_json(self) -> bytes:
        """Return the body that answers 208."""
        table = ((queue, each.to_fields()) for queue, each in self.queues.items())
        return object_to_json(
            {"consumeTps": orjson.dumps(self.rate), "offsetTable": queue_map_to_json(table)}
        )


def all_consume_stats_to_json(
    stats: Mapping[Group, Sequence[ConsumeStats]], *, address: str
) -> bytes:
    """Return the body that answers 317: the stats of each topic of each group."""
    every = [queue for each in stats.values() for one in each for queue in one.queues.values()]
    groups = b",".join(
        object_to_json({group: b"[%s]" % b",".join(one.to_json() for one in each)})
        for group, each in stats.items()
    )
    return object_to_json(
        {
            "brokerAddr": orjson.dumps(address),
            "consumeStatsList": b"[%s]" % groups,
            "totalDiff": b"%d" % sum(queue.lag for queue in every),
            "totalInflightDiff": b"%d" % sum(queue.in_flight for queue in every),
        }
    )


class ClientFacts(NamedTuple):
    """A client: ``address`` is host:port, ``version`` RocketMQ's version number."""

    client_id: str
    address: str
    language: str
    version: int

    def to_fields(self) -> dict[str, Any]:
        """Return the JSON object."""
        return {
            "clientId": self.client_id,
            "clientAddr": self.address,
            "language": self.language,
            "version": self.version,
        }


def connections_to_json(clients: Iterable[ClientFacts], **more: Any) -> bytes:
    """Return the body that answers 203 and 204."""
    return orjson.dumps({"connectionSet": [each.to_fields() for each in clients], **more})


def consumers_to_json(
    clients: Iterable[ClientFacts],
    subscriptions: Mapping[Topic, Subscription],
    *,
    consume_type: str,
    message_model: str,
    consume_from_where: str,
) -> bytes:
    """Return the body that answers 203."""
    return connections_to_json(
        clients,
        subscriptionTable={topic: each.to_fields() for topic, each in subscriptions.items()},
        consumeType=consume_type,
        messageModel=message_model,
        consumeFromWhere=consume_from_where,
    )


def producers_to_json(groups: Mapping[Group, Iterable[ClientFacts]]) -> bytes:
    """Return the body that answers 328: the clients of all producer groups."""
    return orjson.dumps(
        {
            "data": {
                group: [
                    {
                        "clientId": each.client_id,
                        "remoteIP": each.address,
                        "language": each.language,
                        "version": each.version,
                    }
                    for each in clients
                ]
                for group, clients in groups.items()
            }
        }
    )


def group_list_to_json(groups: Iterable[Group]) -> bytes:
    """Return the body that answers 300."""
    return orjson.dumps({"groupList": sorted(groups)})


def group_list_from_json(data: bytes | memoryview) -> list[Group]:
    """Read the body that answers 300, sorted. Raise InvalidCommand."""
    return sorted(map(Group, JsonObject.parse(data, "group list").texts("groupList")))


def topics_at_to_json(topics: Iterable[str], address: str | None) -> bytes:
    """Return the body that answers 304, 305 and 343; *address* of the broker with more details."""
    return orjson.dumps({"topicList": sorted(topics), "brokerAddr": address})


def subscription_to_json(group: Group, topic: Topic, subscription: Subscription | None) -> bytes:
    """Return the body that answers 345."""
    found = None if subscription is None else subscription.to_fields()
    return orjson.dumps({"group": group, "topic": topic, "subscriptionData": found})


class TimeSpan(NamedTuple):
    """Store times of messages of a queue, ms since 1970, -1 if there is none.

    The oldest, the newest, and the last one that a group finished; *delay_ms* since the next one
    that it needs was stored.
    """

    first_ms: int
    last_ms: int
    consumed_ms: int
    delay_ms: int


def time_spans_to_json(spans: Mapping[QueueName, TimeSpan]) -> bytes:
    """Return the body that answers 303."""
    return orjson.dumps(
        {
            "consumeTimeSpanSet": [
                {
                    "messageQueue": queue_fields(queue),
                    "minTimeStamp": span.first_ms,
                    "maxTimeStamp": span.last_ms,
                    "consumeTimeStamp": span.consumed_ms,
                    "delayTime": span.delay_ms,
                }
                for queue, span in spans.items()
            ]
        }
    )


def consume_queue_to_json(
    entries: Iterable[tuple[int, int, int]],
    ends: QueueEnds,
    *,
    subscription: Subscription | None,
    filter_data: str | None,
) -> bytes:
    """Return the body that answers 321; *entries* are positions, sizes and codes."""
    return orjson.dumps(
        {
            "minQueueIndex": ends.min_offset,
            "maxQueueIndex": ends.max_offset,
            "subscriptionData": None if subscription is None else subscription.to_fields(),
            "filterData": filter_data,
            "queueData": [
                {
                    "physicOffset": place,
                    "physicSize": size,
                    "tagsCode": code,
                    "eval": subscription is not None
                    and (not subscription.codes or code in subscription.codes),
                }
                for place, size, code in entries
            ],
        }
    )


def topic_config_to_json(config: TopicConfig) -> bytes:
    """Return the body that answers 351."""
    return orjson.dumps(config.to_fields())


class Pace(NamedTuple):
    """Messages in a time span, and messages per second."""

    messages: int = 0
    rate: float = 0.0


def stats_to_json(minute: Pace, hour: Pace, day: Pace) -> bytes:
    """Return the body that answers 315."""
    named = {"statsMinute": minute, "statsHour": hour, "statsDay": day}
    return orjson.dumps(
        {
            name: {"sum": pace.messages, "tps": pace.rate, "avgpt": 0.0}
            for name, pace in named.items()
        }
    )


def minute_rate_from_json(data: bytes | memoryview) -> float:
    """Return the messages per second in the last minute, from a body that answers 315. Raise
    InvalidCommand.
    """
    rate = JsonObject.parse(data, "stats").object("statsMinute").all().get("tps")
    if not isinstance(rate, int | float) or not 0 <= rate < float("inf"):
        raise InvalidCommand(f"statsMinute.tps is {short(rate)}: expected a number from 0")
    return float(rate)


def subscribed_from_json(data: bytes | memoryview) -> frozenset[Topic]:
    """Return the topics in a body that answers 307. Raise InvalidCommand.

    Java's clients include maps with objects as keys, which are not JSON: only the list of
    subscriptions is read.
    """
    text = bytes(data).decode("utf-8", "replace")
    _, found, rest = text.partition('"subscriptionSet":')
    try:
        entries, _ = json.JSONDecoder().raw_decode(rest.lstrip())
    except (ValueError, RecursionError):
        entries = None
    if not found or not isinstance(entries, list):
        raise InvalidCommand("the client's state has no list of subscriptions")
    fields = [JsonObject(each, "subscription") for each in entries]
    return frozenset(Topic(each.text("topic")) for each in fields)


def running_to_json(properties: Mapping[str, str], subscriptions: Iterable[Subscription]) -> bytes:
    """Return the body with which a client answers 307; queues are omitted, as their owners show
    them.
    """
    return orjson.dumps(
        {
            "properties": dict(properties),
            "subscriptionSet": [each.to_fields() for each in subscriptions],
            "mqTable": {},
            "mqPopTable": {},
            "statusTable": {},
            "userConsumerInfo": {},
        }
    )
