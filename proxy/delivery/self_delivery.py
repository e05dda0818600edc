"""The topics that this proxy delivers itself, over all groups.

``apply`` follows the settings: it starts new topics, lets changed ones finish messages in progress
with their previous settings, and stops removed ones.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Container, Iterator
from dataclasses import asdict, dataclass, field
from itertools import count
from typing import Any

from broker_core.clock import now_ns
from broker_core.names import Group, Topic
from broker_core.tasks import spawn
from proxy.core.leases.lease_book import Holder
from proxy.delivery.deliverer import Deliverer
from proxy.delivery.topic_delivery import DeliveryCounts, TopicDelivery
from proxy.lane.group_lane import GroupLane
from proxy.settings.delivery import DeliverySettings

#: Creates the deliverer of one topic of one group.
MakeDeliverer = Callable[[Group, Topic, DeliverySettings], Deliverer]


@dataclass(frozen=True, slots=True)
class OpenConnections(Container[int]):
    """Open connections: those of *clients*, and the proxy's own consumers with numbers below -1,
    which a client's connection never has.
    """

    clients: Container[int]

    def __contains__(self, number: object) -> bool:
        return number in self.clients or (isinstance(number, int) and number < -1)


@dataclass(slots=True)
class SelfDelivery:
    """The proxy's own consumers. ``client_id`` names this process in histories; ``source_of``
    returns the source of a group's settings, on which the access of its receivers depends.
    """

    make: MakeDeliverer
    client_id: str
    max_bytes: int
    source_of: Callable[[Group], object] = lambda _group: None
    _topics: dict[tuple[Group, Topic], TopicDelivery] = field(default_factory=dict)
    _counts: dict[tuple[Group, Topic], DeliveryCounts] = field(default_factory=dict)
    _sources: dict[Group, object] = field(default_factory=dict)
    _ending: set[asyncio.Task[None]] = field(default_factory=set)
    _connections: Iterator[int] = field(default_factory=lambda: count(-2, -1))

    def apply(self, lane: GroupLane) -> None:
        """Follow the settings of *lane* from now on."""
        wanted = {
            Topic(topic.name): topic.delivery
            for topic in lane.settings.topics
            if topic.delivery is not None
        }
        source = self.source_of(lane.name)
        moved = self._sources.setdefault(lane.name, source) is not source
        self._sources[lane.name] = source
        for name, present in list(self._topics.items()):
            if name[0] == lane.name and (moved or wanted.get(name[1]) != present.settings):
                self._end(*name)
        for group, topic in list(self._counts):
            if group == lane.name and topic not in lane.topics:
                del self._counts[group, topic]
        news = wanted.keys() - lane.presence.shown
        lane.presence.deliver(wanted)
        for topic, settings in wanted.items():
            if (lane.name, topic) not in self._topics:
                self._topics[lane.name, topic] = self._begin(lane, topic, settings)
        if news:
            lane.listener.on_wanted(lane)
        for topic in wanted:
            self._topics[lane.name, topic].dispatch()

    def forget(self, lane: GroupLane) -> None:
        """Stop the deliveries of a group that this proxy no longer has."""
        lane.presence.deliver(())
        self._sources.pop(lane.name, None)
        for group, topic in list(self._topics):
            if group == lane.name:
                self._end(group, topic)
        for name in [name for name in self._counts if name[0] == lane.name]:
            del self._counts[name]

    def dispatch(self, lane: GroupLane) -> None:
        """Deliver jobs of *lane* that became ready; topics without any already wait for them."""
        if lane.presence.delivers_itself:
            for topic in lane.buffer.ready_topics():
                if (found := self._topics.get((lane.name, topic))) is not None:
                    found.dispatch()

    def view(self, group: Group) -> list[dict[str, Any]]:
        """Return the state of each delivered topic of *group*, as plain values."""
        return [
            {
                "topic": topic,
                "to": each.settings.kind,
                "under_way": each.under_way,
                "down_for_s": _seconds_since(each.pause.down_since_ns),
                "reason": each.pause.reason,
                "slow": each.slow,
                **asdict(each.counts),
            }
            for (of, topic), each in self._topics.items()
            if of == group
        ]

    def figures(self) -> dict[tuple[Group, Topic], dict[str, float]]:
        """Return metrics by group and topic."""
        figures: dict[tuple[Group, Topic], dict[str, float]] = {
            name: dict(asdict(counts)) for name, counts in self._counts.items()
        }
        for name, each in self._topics.items():
            figures[name] |= {
                "under_way": each.under_way,
                "down": each.pause.down_since_ns is not None,
                "slow": each.slow,
            }
        return figures

    def stop(self) -> None:
        """Take no more messages (drain); attempts in progress continue."""
        for each in self._topics.values():
            each.stop()

    async def close(self) -> None:
        """Cancel attempts in progress and close all targets."""
        await asyncio.gather(*(each.close(wait=False) for each in self._topics.values()))
        self._topics.clear()
        for task in self._ending:
            task.cancel()
        if self._ending:
            await asyncio.wait(self._ending)

    # ---- internals ------------------------------------------------------------------------------

    def _begin(self, lane: GroupLane, topic: Topic, settings: DeliverySettings) -> TopicDelivery:
        return TopicDelivery(
            lane,
            topic,
            settings,
            self.make(lane.name, topic, settings),
            holder=Holder(next(self._connections), f"proxy {self.client_id}"),
            max_bytes=self.max_bytes,
            counts=self._counts.setdefault((lane.name, topic), DeliveryCounts()),
        )

    def _end(self, group: Group, topic: Topic) -> None:
        ended = self._topics.pop((group, topic))
        ended.stop()
        task = spawn(ended.close(wait=True), name=f"end of deliveries of {group} {topic}")
        self._ending.add(task)
        task.add_done_callback(self._ending.discard)


def _seconds_since(since_ns: int | None) -> float | None:
    return None if since_ns is None else round((now_ns() - since_ns) / 1e9, 3)
