"""Progress of groups in the topics of a broker, from store, committed offsets and members.

Read-only; each query scans what it needs.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from broker_core.broker.groups.groups import Groups
from broker_core.broker.groups.offsets import CommittedOffsets
from broker_core.broker.topics.topics import Topics
from broker_core.broker.traffic import MINUTE_MS, Traffic
from broker_core.names import Group, QueueName, Topic
from broker_core.remoting.admin_bodies import ConsumeStats, QueueEnds, QueueProgress, TimeSpan
from broker_core.remoting.route_bodies import TopicConfig
from broker_core.remoting_channel import RemotingChannel
from broker_core.store.reader import StoreReader


@dataclass(frozen=True, slots=True, kw_only=True)
class Progress:
    """The progress at one broker. Times are milliseconds since 1970."""

    broker_name: str
    reader: StoreReader
    topics: Topics
    groups: Groups[RemotingChannel]
    offsets: CommittedOffsets
    traffic: Traffic

    def ends(self, config: TopicConfig) -> dict[QueueName, QueueEnds]:
        """Return the range of each queue of a topic."""
        found = {}
        for queue in self._queues(config, max(config.read_queues, config.write_queues)):
            where = (queue.topic, queue.queue_id)
            low, high = self.reader.min_offset(*where), self.reader.end_offset(*where)
            last_ms = self.reader.store_ms(*where, high - 1) if high else None
            found[queue] = QueueEnds(low, high, last_ms or 0)
        return found

    def put_rate(self, config: TopicConfig, *, now_ms: int) -> float:
        """Return the messages per second that a topic received in the last minute."""
        put = sum(ends.max_offset for ends in self.ends(config).values())
        return self.traffic.put_pace(config.topic, put, MINUTE_MS, now_ms=now_ms).rate

    def of_group(self, group: Group, topics: Iterable[Topic], *, now_ms: int) -> list[ConsumeStats]:
        """Return the progress of *group* in each of the topics that exist."""
        configs = (self.topics.find(topic) for topic in topics)
        return [self._stats(group, each, now_ms) for each in configs if each is not None]

    def consumed_topics(self, group: Group, topics: Iterable[Topic]) -> list[Topic]:
        """Return those of *topics* to which the group subscribes; all while it has no members."""
        members = self.groups.find(group)
        if members is None or not members.subscriptions:
            return list(topics)
        return [topic for topic in topics if topic in members.subscriptions]

    def time_spans(
        self, group: Group, config: TopicConfig, *, now_ms: int
    ) -> dict[QueueName, TimeSpan]:
        """Return by queue the store times of its messages, and of the next one that *group*
        needs.
        """
        found = {}
        for queue in self._queues(config, config.write_queues):
            where = (queue.topic, queue.queue_id)
            low, high = self.reader.min_offset(*where), self.reader.end_offset(*where)
            committed = self.offsets.committed(group, *where) or 0
            first_ms = self._stored_ms(*where, low)
            next_ms = self.reader.store_ms(*where, max(committed, low))
            found[queue] = TimeSpan(
                first_ms,
                self._stored_ms(*where, high - 1),
                self._stored_ms(*where, committed - 1) if committed else first_ms,
                0 if next_ms is None else now_ms - next_ms,
            )
        return found

    def _stats(self, group: Group, config: TopicConfig, now_ms: int) -> ConsumeStats:
        queues: dict[QueueName, QueueProgress] = {}
        for queue in self._queues(config, config.read_queues):
            where = (queue.topic, queue.queue_id)
            committed = self.offsets.committed(group, *where) or 0
            last_ms = self.reader.store_ms(*where, committed - 1) if committed else None
            queues[queue] = QueueProgress(
                broker_offset=self.reader.end_offset(*where),
                consumer_offset=committed,
                pull_offset=max(committed, self.traffic.pull_offset(group, *where)),
                last_ms=last_ms or 0,
            )
        pace = self.traffic.given_pace(group, config.topic, MINUTE_MS, now_ms=now_ms)
        return ConsumeStats(queues, pace.rate)

    def _stored_ms(self, topic: Topic, queue_id: int, offset: int) -> int:
        found = self.reader.store_ms(topic, queue_id, offset)
        return -1 if found is None else found

    def _queues(self, config: TopicConfig, count: int) -> Iterable[QueueName]:
        return (QueueName(config.topic, self.broker_name, each) for each in range(count))


def joined(stats: Iterable[ConsumeStats]) -> ConsumeStats:
    """Return the combined stats of several topics."""
    queues: dict[QueueName, QueueProgress] = {}
    rate = 0.0
    for each in stats:
        queues.update(each.queues)
        rate += each.rate
    return ConsumeStats(queues, rate)
