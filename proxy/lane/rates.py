"""The shell around the rate limits of one group: its timer, what it writes down and shows."""

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
    """``wake`` is called when messages may go on that were held back."""

    group: Group
    history: History
    wake: Callable[[], None]
    gate: RateGate = field(default_factory=RateGate)
    _limits: dict[Topic | None, float | None] = field(default_factory=dict)
    queues: dict[Topic, int] = field(default_factory=dict)  # of each topic, wherever they are owned
    _timer: EarliestTimer = field(init=False)

    def __post_init__(self) -> None:
        self._timer = EarliestTimer(self.wake)

    def follow(self, settings: GroupSettings) -> None:
        """Go by the limits in *settings* from now on."""
        topics = {Topic(topic.name): topic.max_rate for topic in settings.topics}
        limits: dict[Topic | None, float | None] = {None: settings.max_rate}
        for name, rate in topics.items():
            limits[name] = rate
        for topic in {**limits, **self._limits}:
            if limits.get(topic) != self._limits.get(topic):
                self.history.write(
                    "rate", group=self.group, topic=topic, max_rate=limits.get(topic)
                )
        self._limits = limits
        self.queues = {topic: count for topic, count in self.queues.items() if topic in topics}
        self.gate.limit(settings.max_rate, topics, now_ns=now_ns())

    def route(self, topic: Topic, queues: Collection[QueueName]) -> None:
        """These are the queues of *topic*, wherever they are owned."""
        self.queues[topic] = len(queues)
        self.gate.route(topic, queues, now_ns=now_ns())

    def doubt(self, pipeline: QueuePipeline) -> None:
        """Its lock may be forgotten: nothing is handed out, and it has no share of a limit."""
        self.gate.before_change(now_ns())
        pipeline.doubt()
        self.gate.changed(now_ns())

    def wait(self, wait_ns: int | None) -> None:
        """Messages are held back that somebody wants: wake in so long (None: something else will
        have happened before).
        """
        if wait_ns is not None:
            self._timer.set(now_ns() + wait_ns)

    def close(self) -> None:
        """Stop the timer."""
        self._timer.stop()

    def shares(self) -> dict[Topic | None, float]:
        """Messages a second that this proxy may hand out, of each topic that has a limit, and of
        the group (None) if it has.
        """
        return dict(self.gate.shares(now_ns()))

    def limited_topics(self) -> list[Topic]:
        """Those that a limit holds for, be it the group's."""
        group = self._limits.get(None)
        limits = self._limits.items()
        return [name for name, rate in limits if name is not None and (rate or group) is not None]

    def held_back(self, ready: Collection[Topic]) -> set[Topic]:
        """Those of the topics with *ready* messages that may hand out none now."""
        return {topic for topic in ready if self.gate.left(topic, now_ns()) == 0}
