"""The shell around the rate limits of one group: timer, history and shares."""

from __future__ import annotations

from collections.abc import Callable, Collection
from dataclasses import dataclass, field

from broker_core.clock import now_ns
from broker_core.names import Group, QueueName, Topic
from proxy.core.group.rate_gate import RateGate
from proxy.core.pipeline.queue_pipeline import QueuePipeline
from proxy.history.record import History
from proxy.net.earliest_timer import EarliestTimer
from proxy.settings.groups import GroupSettings


@dataclass(slots=True, eq=False)
class LaneRates:
    """Rate limits of one group; ``wake`` is called when held back messages may be delivered."""

    group: Group
    history: History
    wake: Callable[[], None]
    gate: RateGate = field(default_factory=RateGate)
    _limits: dict[Topic | None, float | None] = field(default_factory=dict)
    # number of queues per topic, with any owner
    queues: dict[Topic, int] = field(default_factory=dict)
    _timer: EarliestTimer = field(init=False)

    def __post_init__(self) -> None:
        self._timer = EarliestTimer(self.wake)

    def follow(self, settings: GroupSettings) -> None:
        """Apply the limits in *settings*."""
        topics = {Topic(topic.name): topic.max_rate for topic in settings.topics}
        limits: dict[Topic | None, float | None] = {None: settings.max_rate}
        for name, rate in topics.items():
            limits[name] = rate
        self._have(limits)
        self.queues = {topic: count for topic, count in self.queues.items() if topic in topics}
        self.gate.limit(settings.max_rate, topics, now_ns=now_ns())

    def route(self, topic: Topic, queues: Collection[QueueName]) -> None:
        """Set the queues of *topic*, with any owner."""
        self.queues[topic] = len(queues)
        self.gate.route(topic, queues, now_ns=now_ns())

    def doubt(self, pipeline: QueuePipeline) -> None:
        """Suspend a queue whose lock may be lost: it delivers nothing and has no share
        of a limit.
        """
        self.gate.before_change(now_ns())
        pipeline.doubt()
        self.gate.changed(pipeline, now_ns())

    def wait(self, wait_ns: int | None) -> None:
        """Wake after *wait_ns*, when held back messages may be delivered; None: another event comes
        first.
        """
        if wait_ns is not None:
            self._timer.set(now_ns() + wait_ns)

    def close(self) -> None:
        """Stop the timer, and end the limits: a group of this name may return without any."""
        self._timer.stop()
        self._have({})

    def _have(self, limits: dict[Topic | None, float | None]) -> None:
        """Record in the history which *limits* are new and which have ended."""
        for topic in {**limits, **self._limits}:
            if limits.get(topic) != self._limits.get(topic):
                self.history.write(
                    "rate", group=self.group, topic=topic, max_rate=limits.get(topic)
                )
        self._limits = limits

    def shares(self) -> dict[Topic | None, float]:
        """Return this proxy's share of each limit in messages per second, by topic; None: the
        group.
        """
        return dict(self.gate.shares(now_ns()))

    def limited_topics(self) -> list[Topic]:
        """Return the topics with a limit, including that of the group."""
        group = self._limits.get(None)
        limits = self._limits.items()
        return [name for name, rate in limits if name is not None and (rate or group) is not None]

    def held_back(self, ready: Collection[Topic]) -> set[Topic]:
        """Return the topics with *ready* messages that must wait for a limit."""
        return {topic for topic in ready if self.gate.left(topic, now_ns()) == 0}
