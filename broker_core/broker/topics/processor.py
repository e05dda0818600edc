"""Requests for topics: define (17, 18), show (21, 351), list the broker's own (305)."""

from __future__ import annotations

from broker_core.broker.topics.directory import TopicDirectory
from broker_core.broker.topics.topics import MAX_QUEUES, RESERVED_TOPICS, named_topic
from broker_core.errors import BrokerError, InvalidCommand
from broker_core.names import Topic
from broker_core.remoting.admin_bodies import topic_config_to_json, topics_at_to_json
from broker_core.remoting.admin_headers import TopicOnlyHeader
from broker_core.remoting.codes import RequestCode, ResponseCode
from broker_core.remoting.command import RemotingCommand
from broker_core.remoting.headers import CreateTopicHeader
from broker_core.remoting.json_fields import MAX_REQUEST_ELEMENTS, JsonObject
from broker_core.remoting.route_bodies import Perm, TopicConfig, topics_to_json
from broker_core.remoting_channel import Answer, Handler, RemotingChannel

_MAX_TOPICS_BYTES = 4 * 1024 * 1024
_FILTER_TYPES = ("SINGLE_TAG", "MULTI_TAG")


class AdminProcessor:
    """Confirms changes when they are on disk and announced to the nameservers."""

    def __init__(self, directory: TopicDirectory) -> None:
        self._directory = directory

    def handlers(self) -> dict[int, Handler]:
        """Return the handlers by request code."""
        return {
            RequestCode.UPDATE_AND_CREATE_TOPIC: self._define_topic,
            RequestCode.GET_ALL_TOPIC_CONFIG: self._topics,
            RequestCode.UPDATE_AND_CREATE_TOPIC_LIST: self._define_topics,
            RequestCode.GET_TOPIC_CONFIG: self._topic,
            RequestCode.GET_SYSTEM_TOPIC_LIST_FROM_BROKER: self._system_topics,
        }

    async def _define_topic(self, request: RemotingCommand, channel: RemotingChannel) -> Answer:
        await self._define(_config_of(CreateTopicHeader.from_ext(request.ext)))
        return request.response()

    async def _define_topics(self, request: RemotingCommand, channel: RemotingChannel) -> Answer:
        fields = JsonObject.parse(
            request.body,
            "topics",
            max_bytes=_MAX_TOPICS_BYTES,
            max_elements=MAX_REQUEST_ELEMENTS,
        )
        wanted = [_config_of(_header_of(each)) for each in fields.objects("topicConfigList")]
        await self._define(*wanted)
        return request.response()

    async def _define(self, *configs: TopicConfig) -> None:
        try:
            await self._directory.define(*configs)
        except OSError as error:
            raise BrokerError(
                ResponseCode.SYSTEM_ERROR, f"the topic table cannot be saved: {error.strerror}"
            ) from error

    def _topics(self, request: RemotingCommand, channel: RemotingChannel) -> Answer:
        topics = self._directory.topics
        return request.response(body=topics_to_json(topics, topics.version))

    def _topic(self, request: RemotingCommand, channel: RemotingChannel) -> Answer:
        topic = TopicOnlyHeader.from_ext(request.ext).topic
        config = self._directory.topics.find(Topic(topic))
        if config is None:
            raise BrokerError(
                ResponseCode.TOPIC_NOT_EXIST, f"No topic in this broker. topic: {topic}"
            )
        return request.response(body=topic_config_to_json(config))

    def _system_topics(self, request: RemotingCommand, channel: RemotingChannel) -> Answer:
        return request.response(body=topics_at_to_json(RESERVED_TOPICS, None))


def _header_of(fields: JsonObject) -> CreateTopicHeader:
    return CreateTopicHeader(
        topic=fields.text("topicName"),
        read_queue_nums=fields.count("readQueueNums", 16),
        write_queue_nums=fields.count("writeQueueNums", 16),
        perm=fields.count("perm", Perm.READ_WRITE),
        topic_filter_type=fields.text("topicFilterType", "SINGLE_TAG"),
        topic_sys_flag=fields.count("topicSysFlag", 0),
        order=fields.boolean("order", False),
    )


def _config_of(header: CreateTopicHeader) -> TopicConfig:
    topic = named_topic(header.topic)
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
    for attribute in filter(None, (header.attributes or "").split(",")):
        if not attribute.startswith(("-", "+message.type=")):
            raise InvalidCommand(
                f"topic attribute {attribute[:80]!r} has no effect on this broker: leave it out"
            )
    return TopicConfig(
        topic=topic,
        read_queues=header.read_queue_nums,
        write_queues=header.write_queue_nums,
        perm=header.perm,
        sys_flag=header.topic_sys_flag or 0,
        order=header.order,
    )
