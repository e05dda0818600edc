"""From statistics to what the HTTP surface shows: plain values, ready for JSON. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import asdict
from typing import Any

from broker_core.names import Group
from proxy.core.effects import PipelineStatistics
from proxy.group_lane import GroupLane


def groups_view(
    lanes: Iterable[GroupLane], bulk_readers: Mapping[Group, int] | None = None
) -> dict[str, Any]:
    """Every group with its topics and the queues that this proxy owns of it, and with how many
    *bulk_readers* it has here.
    """
    reading = bulk_readers or {}
    return {
        lane.name: {
            "topics": [
                {"name": topic.name, "order_key": topic.order_key} for topic in lane.settings.topics
            ],
            "taking_part": lane.joined,
            "waiting_pulls": lane.waiting_pulls,
            "bulk_readers": reading.get(lane.name, 0),
            "queues": [_queue_view(figures) for figures in lane.statistics()],
        }
        for lane in lanes
    }


def _queue_view(figures: PipelineStatistics) -> dict[str, Any]:
    queue = figures.queue
    return {**asdict(figures), "topic": queue.topic, "queue": queue.qid}
