"""Custom headers of administrative requests to brokers and nameservers. Pure.

``headers`` has the encoding, and the headers of clients' requests. Source: as there.
"""

from __future__ import annotations

from dataclasses import dataclass

from broker_core.remoting.header_fields import Header, Int32


@dataclass(frozen=True, slots=True, kw_only=True)
class ProducerGroupHeader(Header):
    """Code 204."""

    producer_group: str


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicOnlyHeader(Header):
    """Codes 202, 300 and 351."""

    topic: str


@dataclass(frozen=True, slots=True, kw_only=True)
class ConfirmClockHeader(Header):
    """Code 7110, an extension: the person and the reason."""

    by: str
    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class ConsumeStatsHeader(Header):
    """Code 208. ``topic_list`` (5.x) has topics with ``;`` between them, instead of ``topic``."""

    consumer_group: str
    topic: str | None = None
    topic_list: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class BrokerConsumeStatsHeader(Header):
    """Code 317: stats of all groups. ``is_order``: of ordered topics only."""

    is_order: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupTopicHeader(Header):
    """Codes 303 and 345."""

    group: str
    topic: str


@dataclass(frozen=True, slots=True, kw_only=True)
class CloneOffsetsHeader(Header):
    """Code 314. Without a topic: all; ``offline``: including topics no longer subscribed."""

    src_group: str
    dest_group: str
    topic: str | None = None
    offline: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class ConsumeQueueHeader(Header):
    """Code 321: *count* entries of a queue from *index* on, and whether a group would receive
    them.
    """

    topic: str
    queue_id: Int32
    index: int
    count: Int32
    consumer_group: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class StatsHeader(Header):
    """Code 315: a kind of figure, and its subject."""

    stats_name: str
    stats_key: str


@dataclass(frozen=True, slots=True, kw_only=True)
class ClientOfGroupHeader(Header):
    """Code 307: a client of a group, which the broker asks for the requester."""

    consumer_group: str
    client_id: str


@dataclass(frozen=True, slots=True, kw_only=True)
class BrokerConfigResponse(Header):
    """Answers 26: the version of the settings, as JSON."""

    version: str


@dataclass(frozen=True, slots=True, kw_only=True)
class BrokerNameHeader(Header):
    """Codes 205 and 327."""

    broker_name: str


@dataclass(frozen=True, slots=True, kw_only=True)
class WipedResponse(Header):
    """Answers 205: the number of topics."""

    wipe_topic_count: Int32


@dataclass(frozen=True, slots=True, kw_only=True)
class AddedResponse(Header):
    """Answers 327: the number of topics."""

    add_topic_count: Int32


@dataclass(frozen=True, slots=True, kw_only=True)
class ClusterHeader(Header):
    """Code 224."""

    cluster: str
