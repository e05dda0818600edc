"""Group lanes without a proxy: their listeners and their histories."""

from __future__ import annotations

from collections import Counter
from collections.abc import Container
from typing import Any

from proxy.admin.guard import Guard
from proxy.core.jobs.chains import Job
from proxy.core.jobs.refills import Refill
from proxy.core.jobs.window import Budget
from proxy.core.pipeline.queue_pipeline import QueuePipeline
from proxy.history.record import History, NullHistory
from proxy.lane.group_lane import GroupLane
from proxy.lane.tracing import LaneTracing
from proxy.net.principals import Principals
from proxy.settings.groups import GroupSettings
from proxy.settings.proxy_settings import Settings

GROUP, TOPIC = "billing", "orders"


def group_settings(
    name: str = GROUP, *, topics: tuple[str, ...] = (TOPIC,), **others: Any
) -> GroupSettings:
    """Return a group ordered by message key, with quick retries.

    *others* are settings of its topics, or of the group itself if it has one of that name.
    """
    of_group = {key: others.pop(key) for key in list(others) if key in GroupSettings.model_fields}
    of_topic = {"order_key": "KEY", "retry_intervals_ms": (10,), **others}
    return GroupSettings.model_validate(
        {"name": name, "topics": [{"name": topic, **of_topic} for topic in topics], **of_group}
    )


class Listener:
    """A lane's listener that records its calls."""

    def __init__(self) -> None:
        self.told: Counter[str] = Counter()
        self.dead_letters: list[Job] = []
        self.refills: list[Refill] = []

    def on_ready(self, lane: GroupLane) -> None:
        """Count the call, only if jobs are ready."""
        assert lane.buffer.has_ready
        self.told["ready"] += 1

    def on_dead_letter(self, lane: GroupLane, pipeline: QueuePipeline, job: Job) -> None:
        """Keep the call; the test decides when the copy is stored."""
        self.dead_letters.append(job)

    def on_refill(self, lane: GroupLane, pipeline: QueuePipeline, refill: Refill) -> None:
        """Keep the call; the test decides when the jobs are read."""
        self.refills.append(refill)

    def on_parking(self, lane: GroupLane, pipeline: QueuePipeline) -> None:
        """Count the call."""
        self.told["parking"] += 1

    def on_wanted(self, lane: GroupLane) -> None:
        """Count the call."""
        self.told["wanted"] += 1

    def on_settled(self) -> None:
        """Count the call."""
        self.told["settled"] += 1


class Notes:
    """A history in memory."""

    enabled = True

    def __init__(self) -> None:
        self.events: list[tuple[str, dict[str, Any]]] = []

    def write(self, event: str, **fields: Any) -> None:
        """Keep one event."""
        self.events.append((event, fields))

    def write_many(self, event: str, each: Any) -> None:
        """Keep several."""
        self.events += [(event, dict(fields)) for fields in each]

    def close(self) -> None:
        """Do nothing: no file is open."""

    def of(self, event: str) -> list[dict[str, Any]]:
        """Return the events of one kind."""
        return [fields for name, fields in self.events if name == event]


def make_lane(
    settings: GroupSettings | None = None,
    *,
    listener: Any = None,
    memory: Budget | None = None,
    history: History | None = None,
    open_connections: Container[int] = (),
    tracing: LaneTracing | None = None,
    batch_wait_ms: int = 0,
) -> GroupLane:
    """Return a lane of plain components, except for those that a test replaces."""
    return GroupLane(
        settings=settings or group_settings(),
        memory=memory or Budget(1 << 40),
        history=history or NullHistory(),
        listener=listener or Listener(),
        open_connections=open_connections,
        tracing=tracing,
        batch_wait_ms=batch_wait_ms,
    )


def open_guard() -> Guard:
    """Return the guard of an HTTP port on loopback without authentication."""
    return Guard(Principals(Settings()), loopback=True)
