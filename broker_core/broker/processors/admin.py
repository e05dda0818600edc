"""Administration: topics (17, 21) and what the broker says of itself (28)."""

from __future__ import annotations

from broker_core.broker.topic_directory import TopicDirectory
from broker_core.broker.topics import MAX_QUEUES, RESERVED_TOPICS
from broker_core.errors import BrokerError, InvalidCommand
from broker_core.names import Topic, check_name
from broker_core.remoting.bodies import table_to_json
from broker_core.remoting.codes import RequestCode, ResponseCode
from broker_core.remoting.command import VERSION, RemotingCommand
from broker_core.remoting.headers import CreateTopicHeader
from broker_core.remoting.route_bodies import Perm, TopicConfig, topics_to_json
from broker_core.remoting_channel import Answer, Handler, RemotingChannel

_FILTER_TYPES = ("SINGLE_TAG", "MULTI_TAG")


class AdminProcessor:
    """*boot_ms*: when the broker started, in milliseconds since 1970."""

    def __init__(self, directory: TopicDirectory, *, boot_ms: int) -> None:
        self._directory = directory
        self._boot_ms = boot_ms

    def handlers(self) -> dict[int, Handler]:
        """Request codes served."""
        return {
            RequestCode.UPDATE_AND_CREATE_TOPIC: self._define_topic,
            RequestCode.GET_ALL_TOPIC_CONFIG: self._topics,
            RequestCode.GET_BROKER_RUNTIME_INFO: self._runtime,
        }

    async def _define_topic(self, request: RemotingCommand, channel: RemotingChannel) -> Answer:
        config = _config_of(CreateTopicHeader.from_ext(request.ext))
        try:
            await self._directory.define(config)
        except OSError as error:
            raise BrokerError(
                ResponseCode.SYSTEM_ERROR, f"the topic table cannot be saved: {error.strerror}"
            ) from error
        return request.response()

    def _topics(self, request: RemotingCommand, channel: RemotingChannel) -> Answer:
        topics = self._directory.topics
        return request.response(body=topics_to_json(topics, topics.version))

    def _runtime(self, request: RemotingCommand, channel: RemotingChannel) -> Answer:
        return request.response(
            body=table_to_json(
                {
                    "bootTimestamp": str(self._boot_ms),
                    "brokerVersion": str(VERSION),
                    "brokerVersionDesc": "orderlane",
                }
            )
        )


def _config_of(header: CreateTopicHeader) -> TopicConfig:
    try:
        topic = Topic(check_name("topic", header.topic))
    except ValueError as error:
        raise InvalidCommand(str(error)) from error
    if topic in RESERVED_TOPICS:
        raise InvalidCommand(f"topic {topic} is the broker's own: choose another name")
    for name, queues in (
        ("readQueueNums", header.read_queue_nums),
        ("writeQueueNums", header.write_queue_nums),
    ):
        if not 1 <= queues <= MAX_QUEUES:
            raise InvalidCommand(f"header field {name} is {queues}: expected 1 to {MAX_QUEUES}")
    if not 0 <= header.perm <= Perm.READ_WRITE | Perm.INHERIT:
        raise InvalidCommand(
            f"header field perm is {header.perm}: expected a sum of 2 (write), 4 (read) and 1"
            " (inherit)"
        )
    if header.topic_filter_type not in _FILTER_TYPES:
        raise InvalidCommand(
            f"header field topicFilterType is {header.topic_filter_type[:80]!r}: expected"
            f" {' or '.join(_FILTER_TYPES)}"
        )
    return TopicConfig(
        topic=topic,
        read_queues=header.read_queue_nums,
        write_queues=header.write_queue_nums,
        perm=header.perm,
        sys_flag=header.topic_sys_flag or 0,
        order=header.order,
    )
