"""From statistics to what the HTTP surface shows: plain values, ready for JSON. Pure."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import asdict
from typing import Any

from pydantic import BaseModel, ConfigDict, RootModel

from broker_core.names import Group
from proxy.admin.operations import Answer
from proxy.core.effects import PipelineStatistics
from proxy.group_lane import GroupLane


class TopicView(Answer):
    """A topic of a group; no order key: its messages are unordered. ``rate_limited``: messages are
    ready and wait for ``max_rate``.
    """

    name: str
    order_key: str | None
    max_rate: float | None
    rate_limited: bool


class QueueView(BaseModel):
    """The figures of an owned queue; metrics have more of them."""

    model_config = ConfigDict(extra="allow")

    topic: str
    queue: str
    epoch: int
    unfinished: int
    ready: int
    leased: int
    blocked: int
    committed: int
    end: int


class PausedView(Answer):
    """Who paused a group, and why."""

    since_ms: int
    by: str
    reason: str


class GroupView(Answer):
    """One group at this proxy. ``paused``: queues of it are, since the group is; ``deliveries``:
    topics that the proxy delivers itself; ``refused``: queues that its settings are too old for.
    """

    max_rate: float | None
    paused: PausedView | None
    deliveries: list[dict[str, Any]]
    topics: list[TopicView]
    taking_part: bool
    waiting_pulls: int
    bulk_readers: int
    refused: dict[str, str]
    queues: list[QueueView]


class GroupsView(RootModel[dict[str, GroupView]]):
    """Groups by name."""


def groups_view(
    lanes: Iterable[GroupLane],
    bulk_readers: Mapping[Group, int] | None = None,
    deliveries: Callable[[Group], list[dict[str, Any]]] | None = None,
) -> dict[str, Any]:
    """Every group with its topics and the queues that this proxy owns of it, with how many
    *bulk_readers* it has here, and with its *deliveries*: topics that the proxy delivers itself.
    """
    reading = bulk_readers or {}
    return {
        lane.name: {
            "max_rate": lane.settings.max_rate,
            "paused": None if (pause := lane.buffer.paused_whole) is None else asdict(pause),
            "topics": _topics(lane),
            "taking_part": lane.presence.joined,
            "waiting_pulls": lane.presence.waiting_pulls,
            "bulk_readers": reading.get(lane.name, 0),
            "deliveries": [] if deliveries is None else deliveries(lane.name),
            "refused": {str(queue): why for queue, (why, _) in lane.refused.items()},
            "queues": [_queue_view(figures) for figures in lane.statistics()],
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
        }
        for topic in lane.settings.topics
    ]


def _queue_view(figures: PipelineStatistics) -> dict[str, Any]:
    queue = figures.queue
    return {**asdict(figures), "topic": queue.topic, "queue": queue.qid}
