"""The proxy's own consumer of a topic on a hand-fed lane; a test plays its target."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

from broker_core.names import QueueName, Topic
from broker_core.remoting.message import StoredMessage
from proxy.core.jobs.window import Budget
from proxy.core.leases.lease_book import Holder
from proxy.core.pipeline.queue_pipeline import QueuePipeline
from proxy.delivery.deliverer import ACKED, Delivery, Pace, Verdict
from proxy.delivery.topic_delivery import DeliveryCounts, TopicDelivery
from proxy.lane.group_lane import GroupLane
from proxy.lane.topic_rules import rules_of
from proxy.settings.delivery import DeliverySettings
from testkit.lanes import TOPIC, Listener, Notes, group_settings, make_lane
from testkit.pipelines import Budgets, pipeline


class ScriptedSettings(DeliverySettings):
    """Settings of an action that exists only in tests."""

    kind = "scripted"


@dataclass(slots=True)
class Target:
    """A deliverer whose attempts end when the test says so."""

    pace: Pace | None = None
    seen: list[Delivery] = field(default_factory=list)
    cut: list[int] = field(default_factory=list)  # offsets of attempts that were cancelled
    closed: bool = False
    open: dict[int, asyncio.Future[Verdict]] = field(default_factory=dict)  # by offset

    async def deliver(self, delivery: Delivery) -> Verdict:
        assert delivery.offset not in self.open, "twice at a time"
        self.seen.append(delivery)
        answer = self.open[delivery.offset] = asyncio.get_running_loop().create_future()
        try:
            return await answer
        except asyncio.CancelledError:
            self.cut.append(delivery.offset)
            raise
        finally:
            del self.open[delivery.offset]

    async def close(self) -> None:
        assert not self.open
        self.closed = True

    def answer(self, offset: int, found: Verdict | BaseException = ACKED) -> None:
        """End the attempt at that offset."""
        if isinstance(found, Verdict):
            self.open[offset].set_result(found)
        else:
            self.open[offset].set_exception(found)

    @property
    def offsets(self) -> list[int]:
        """Offsets of all attempts so far, in order."""
        return [each.offset for each in self.seen]


class _Dispatcher(Listener):
    """Lets the topic's delivery check for ready jobs, as the proxy does."""

    delivery: TopicDelivery | None = None

    def on_ready(self, lane: GroupLane) -> None:
        super().on_ready(lane)
        if self.delivery is not None:
            self.delivery.dispatch()


@dataclass(slots=True)
class Site:
    """The objects that a test controls."""

    lane: GroupLane
    listener: _Dispatcher
    notes: Notes
    target: Target
    delivery: TopicDelivery

    @property
    def counts(self) -> DeliveryCounts:
        return self.delivery.counts

    def own(self, *messages: StoredMessage, queue_id: int = 0, **times: int) -> QueuePipeline:
        """Add a queue of the topic with *messages*."""
        budgets = Budgets(Budget(1 << 40), self.lane.leases_of_group)
        wanted = rules_of(self.lane.settings.topics[0])
        of = QueueName(Topic(TOPIC), "broker-a", queue_id)
        owned = pipeline(wanted, of=of, budgets=budgets, **times)
        self.lane.add(owned)
        if messages:
            self.feed(owned, *messages)
        return owned

    def feed(self, owned: QueuePipeline, *messages: StoredMessage) -> None:
        """Add *messages*, as the reader does."""
        self.lane.on_messages(owned, messages, next_offset=messages[-1].queue_offset + 1)


@asynccontextmanager
async def delivering(
    *,
    concurrency: int = 8,
    timeout_s: float = 30.0,
    pace: Pace | None = None,
    **settings: Any,
) -> AsyncIterator[Site]:
    """Run a lane whose only topic is delivered; *settings* are those of the topic or its group."""
    listener, notes, target = _Dispatcher(), Notes(), Target(pace)
    lane = make_lane(group_settings(**settings), listener=listener, history=notes)
    listener.delivery = TopicDelivery(
        lane,
        Topic(TOPIC),
        ScriptedSettings(concurrency=concurrency, timeout_s=timeout_s),
        target,
        holder=Holder(-2, "proxy us@1#1"),
        max_bytes=1 << 20,
        counts=DeliveryCounts(),
    )
    listener.delivery.dispatch()
    try:
        yield Site(lane, listener, notes, target, listener.delivery)
    finally:
        await listener.delivery.close(wait=False)
        lane.close()
