"""Requests for progress: of topics (202, 321), of groups in them (208, 303, 317, 300, 343), and
copies of offsets (314).
"""

from __future__ import annotations

from collections.abc import Callable

from broker_core.broker.groups.directory import GroupDirectory
from broker_core.broker.groups.offsets import clients_group
from broker_core.broker.groups.progress import Progress, joined
from broker_core.broker.table_saver import Saver
from broker_core.clock import wall_ms
from broker_core.errors import BrokerError
from broker_core.names import Group, Topic
from broker_core.remoting.admin_bodies import (
    QueueEnds,
    all_consume_stats_to_json,
    consume_queue_to_json,
    group_list_to_json,
    time_spans_to_json,
    topic_stats_to_json,
    topics_at_to_json,
)
from broker_core.remoting.admin_headers import (
    BrokerConsumeStatsHeader,
    CloneOffsetsHeader,
    ConsumeQueueHeader,
    ConsumeStatsHeader,
    GroupTopicHeader,
    TopicOnlyHeader,
)
from broker_core.remoting.codes import RequestCode, ResponseCode
from broker_core.remoting.command import RemotingCommand
from broker_core.remoting.headers import GroupHeader
from broker_core.remoting.route_bodies import TopicConfig
from broker_core.remoting_channel import Answer, Handler, RemotingChannel

_MAX_ENTRIES = 4096


class ProgressProcessor:
    """Answers from the current state; *address* is the broker's own."""

    def __init__(
        self,
        progress: Progress,
        *,
        group_directory: GroupDirectory,
        offset_saver: Saver,
        address: Callable[[], str],
    ) -> None:
        self._progress = progress
        self._group_directory = group_directory
        self._offset_saver = offset_saver
        self._address = address

    def handlers(self) -> dict[int, Handler]:
        """Return the handlers by request code."""
        return {
            RequestCode.GET_TOPIC_STATS_INFO: self._topic,
            RequestCode.GET_CONSUME_STATS: self._group,
            RequestCode.GET_BROKER_CONSUME_STATS: self._all_groups,
            RequestCode.QUERY_TOPIC_CONSUME_BY_WHO: self._groups_of,
            RequestCode.QUERY_TOPICS_BY_CONSUMER: self._topics_of,
            RequestCode.QUERY_CONSUME_TIME_SPAN: self._time_spans,
            RequestCode.QUERY_CONSUME_QUEUE: self._entries,
            RequestCode.CLONE_GROUP_OFFSET: self._clone,
        }

    def _topic(self, request: RemotingCommand, channel: RemotingChannel) -> Answer:
        config = self._config(TopicOnlyHeader.from_ext(request.ext).topic)
        ends = self._progress.ends(config)
        rate = self._progress.put_rate(config, now_ms=wall_ms())
        return request.response(body=topic_stats_to_json(ends, rate))

    def _group(self, request: RemotingCommand, channel: RemotingChannel) -> Answer:
        header = ConsumeStatsHeader.from_ext(request.ext)
        group = Group(header.consumer_group)
        # Each topic once: a list as long as a frame may name one a million times.
        wanted = dict.fromkeys((header.topic_list or "").split(";"))
        named = [Topic(each) for each in wanted if each]
        if not named:
            known = self._progress.offsets.topics_of(group)
            topic = (header.topic or "").strip()
            named = self._progress.consumed_topics(group, [Topic(topic)] if topic else known)
        stats = self._progress.of_group(group, named, now_ms=wall_ms())
        return request.response(body=joined(stats).to_json())

    def _all_groups(self, request: RemotingCommand, channel: RemotingChannel) -> Answer:
        header = BrokerConsumeStatsHeader.from_ext(request.ext)
        now_ms = wall_ms()
        stats = {}
        for config in self._group_directory.configs:
            wanted = [
                each
                for each in self._progress.consumed_topics(
                    config.group, self._progress.offsets.topics_of(config.group)
                )
                if not header.is_order or self._is_order(each)
            ]
            stats[config.group] = self._progress.of_group(config.group, wanted, now_ms=now_ms)
        return request.response(body=all_consume_stats_to_json(stats, address=self._address()))

    def _groups_of(self, request: RemotingCommand, channel: RemotingChannel) -> Answer:
        topic = Topic(TopicOnlyHeader.from_ext(request.ext).topic)
        groups = set(self._progress.groups.subscribers(topic))
        groups.update(self._progress.offsets.groups_of(topic))
        return request.response(body=group_list_to_json(groups))

    def _topics_of(self, request: RemotingCommand, channel: RemotingChannel) -> Answer:
        group = Group(GroupHeader.from_ext(request.ext).group)
        topics = self._progress.offsets.topics_of(group)
        return request.response(body=topics_at_to_json(topics, self._address()))

    def _time_spans(self, request: RemotingCommand, channel: RemotingChannel) -> Answer:
        header = GroupTopicHeader.from_ext(request.ext)
        config = self._config(header.topic)
        spans = self._progress.time_spans(Group(header.group), config, now_ms=wall_ms())
        return request.response(body=time_spans_to_json(spans))

    def _entries(self, request: RemotingCommand, channel: RemotingChannel) -> Answer:
        header = ConsumeQueueHeader.from_ext(request.ext)
        topic, queue_id = Topic(header.topic), header.queue_id
        reader = self._progress.reader
        ends = QueueEnds(reader.min_offset(topic, queue_id), reader.end_offset(topic, queue_id), 0)
        if not ends.max_offset:
            raise BrokerError(
                ResponseCode.SYSTEM_ERROR, f"{queue_id}@{topic} is not exist: it has no message"
            )
        subscription, filter_data = None, None
        if header.consumer_group is not None:
            subscription = self._progress.groups.subscription(Group(header.consumer_group), topic)
            if subscription is None:
                filter_data = f"{header.consumer_group}@{topic} is not online!"
        return request.response(
            body=consume_queue_to_json(
                reader.entries(
                    topic, queue_id, header.index, count=min(header.count, _MAX_ENTRIES)
                ),
                ends,
                subscription=subscription,
                filter_data=filter_data,
            )
        )

    async def _clone(self, request: RemotingCommand, channel: RemotingChannel) -> Answer:
        header = CloneOffsetsHeader.from_ext(request.ext)
        source, target = Group(header.src_group), clients_group(header.dest_group)
        self._group_directory.config(target)
        topics = [Topic(header.topic)] if header.topic else self._progress.offsets.topics_of(source)
        if not header.offline:
            topics = self._progress.consumed_topics(source, topics)
        known = {topic for topic in topics if self._progress.topics.find(topic) is not None}
        self._progress.offsets.clone(source, target, known)
        try:
            await self._offset_saver.save()
        except OSError as error:
            raise BrokerError(
                ResponseCode.SYSTEM_ERROR, f"the offsets cannot be saved now: {error.strerror}"
            ) from error
        return request.response()

    def _config(self, topic: str) -> TopicConfig:
        config = self._progress.topics.find(Topic(topic))
        if config is None:
            raise BrokerError(ResponseCode.TOPIC_NOT_EXIST, f"topic[{topic}] not exist")
        return config

    def _is_order(self, topic: Topic) -> bool:
        config = self._progress.topics.find(topic)
        return config is not None and config.order
