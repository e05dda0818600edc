"""Converts statistics to plain values for the admin API."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import asdict
from typing import Any

from pydantic import BaseModel, ConfigDict, RootModel

from broker_core.clock import now_ns
from broker_core.names import Group, Topic
from proxy.core.pipeline.queue_pipeline import QueuePipeline
from proxy.lane.counts import TopicCounts
from proxy.lane.group_lane import GroupLane
from proxy.operator.request_models import Answer


class TopicView(Answer):
    """A topic of a group; without an order key it is unordered.

    ``rate_limited``: ready messages wait for ``max_rate``; ``wanted``: clients pull it here or did
    recently, or the proxy pushes it. Message counts since the proxy started: ``delivered``;
    ``filtered``, here or by the broker; ``filtered_in_a_row``, since the last delivery;
    ``expired``, whose lease expired, the last one ``expired_ago_s`` seconds ago (null if none);
    ``keyless_in_a_row``, without the order key since the last one that had it, treated by the
    policy ``missing_key``. ``handler_p50_s``: an upper bound of the median handling time since
    then, null if unknown.
    """

    name: str
    order_key: str | None
    max_rate: float | None
    rate_limited: bool
    wanted: bool
    delivered: int
    filtered: int
    filtered_in_a_row: int
    expired: int
    expired_ago_s: float | None
    missing_key: str
    keyless_in_a_row: int
    handler_p50_s: float | None


class QueueView(BaseModel):
    """The figures of an owned queue. ``sure``: the proxy trusts its lock; otherwise it delivers
    nothing. ``for_topic`` and ``name``: under these, operations address it; the ``name`` of a queue
    of parked messages ends with ``p``.
    """

    model_config = ConfigDict(extra="allow")

    topic: str
    queue: str
    for_topic: str
    name: str
    epoch: int
    unfinished: int
    ready: int
    leased: int
    blocked: int
    committed: int
    end: int
    sure: bool


class PausedView(Answer):
    """The pause of a group: operator and reason."""

    since_ms: int
    by: str
    reason: str


class GroupView(Answer):
    """One group at this proxy.

    ``hand_out``: which ready messages go first, oldest or longest_chain; ``start_from``: where a
    group without committed offsets begins; ``mode``: clustering or broadcast; ``paused``: the pause
    of the whole group; ``deliveries``: topics with push delivery; ``refused``: queues for which its
    settings are too old; ``denied``: queues whose locks are held by others, with seconds since;
    ``clients_seen_s``: seconds since the last client, null if none.
    """

    max_rate: float | None
    hand_out: str
    start_from: str
    mode: str
    paused: PausedView | None
    deliveries: list[dict[str, Any]]
    topics: list[TopicView]
    taking_part: bool
    waiting_pulls: int
    bulk_readers: int
    refused: dict[str, str]
    denied: dict[str, float]
    clients_seen_s: float | None
    queues: list[QueueView]


class GroupsView(RootModel[dict[str, GroupView]]):
    """Groups by name."""


def groups_view(
    lanes: Iterable[GroupLane],
    bulk_readers: Mapping[Group, int] | None = None,
    deliveries: Callable[[Group], list[dict[str, Any]]] | None = None,
) -> dict[str, Any]:
    """Return every group with its topics, owned queues, *bulk_readers* and push *deliveries*."""
    reading = bulk_readers or {}
    return {
        lane.name: {
            "max_rate": lane.settings.max_rate,
            "hand_out": lane.settings.hand_out,
            "start_from": str(lane.settings.start_from),
            "mode": lane.settings.mode,
            "paused": None if (pause := lane.buffer.paused_whole) is None else asdict(pause),
            "topics": _topics(lane),
            "taking_part": lane.presence.joined,
            "waiting_pulls": lane.presence.waiting_pulls,
            "bulk_readers": reading.get(lane.name, 0),
            "deliveries": [] if deliveries is None else deliveries(lane.name),
            "refused": {str(queue): why for queue, (why, _) in lane.refused.items()},
            "denied": {
                str(queue): (now_ns() - since_ns) / 1e9 for queue, since_ns in lane.denied.items()
            },
            "clients_seen_s": lane.presence.seen_ago_s,
            "queues": [_queue_view(pipeline) for pipeline in lane.buffer],
        }
        for lane in lanes
    }


def _topics(lane: GroupLane) -> list[dict[str, Any]]:
    held_back = lane.rates.held_back(lane.buffer.ready_topics())
    return [
        {
            "name": topic.name,
            "order_key": topic.order_key,
            "max_rate": topic.max_rate,
            "rate_limited": topic.name in held_back,
            "wanted": topic.name in lane.presence.shown,
            "missing_key": topic.missing_key,
            **_passing(lane.counts.get(Topic(topic.name))),
        }
        for topic in lane.settings.topics
    ]


def _passing(counts: TopicCounts | None) -> dict[str, Any]:
    counts = counts or TopicCounts()
    last_ns = counts.last_expired_ns
    return {
        "delivered": counts.delivered,
        "filtered": counts.filtered + counts.passed_over,
        "filtered_in_a_row": counts.filtered_in_a_row,
        "expired": counts.expired,
        "keyless_in_a_row": counts.keyless_in_a_row,
        "handler_p50_s": _seconds(counts.measures.handler.median),
        "expired_ago_s": (now_ns() - last_ns) / 1e9 if last_ns else None,
    }


def _seconds(ns: int | None) -> float | None:
    return None if ns is None else ns / 1e9


def _queue_view(pipeline: QueuePipeline) -> dict[str, Any]:
    figures = pipeline.statistics()
    queue, fields = figures.queue, asdict(figures)
    del fields["committed_ns"]  # from the monotonic clock of this process
    place = {
        "topic": queue.topic,
        "queue": queue.qid,
        "for_topic": pipeline.topic,
        "name": pipeline.place,
    }
    return {**fields, **place, "sure": pipeline.is_owned(now_ns())}
