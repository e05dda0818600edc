"""From statistics to what the HTTP surface shows: plain values, ready for JSON. Pure."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import asdict
from typing import Any

from proxy.core.effects import PipelineStatistics
from proxy.group_lane import GroupLane


def groups_view(lanes: Iterable[GroupLane]) -> dict[str, Any]:
    """Every group with its topics and the queues that this proxy owns of it."""
    return {
        lane.name: {
            "topics": [
                {"name": topic.name, "order_key": topic.order_key} for topic in lane.settings.topics
            ],
            "taking_part": lane.joined,
            "waiting_pulls": lane.waiting_pulls,
            "queues": [_queue_view(figures) for figures in lane.statistics()],
        }
        for lane in lanes
    }


def _queue_view(figures: PipelineStatistics) -> dict[str, Any]:
    queue = figures.queue
    return {**asdict(figures), "topic": queue.topic, "queue": queue.qid}
