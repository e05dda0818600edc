"""Requests to delete topics: code 215."""

from __future__ import annotations

from broker_core.broker.admin.topic_deletion import TopicDeletion
from broker_core.broker.topics.topics import RESERVED_TOPICS, named_topic
from broker_core.errors import BrokerError
from broker_core.remoting.codes import RequestCode, ResponseCode
from broker_core.remoting.command import RemotingCommand
from broker_core.remoting.headers import TopicHeader
from broker_core.remoting_channel import Answer, Handler, RemotingChannel


class DeleteProcessor:
    """Answers when the deletion is on disk."""

    def __init__(self, deletion: TopicDeletion) -> None:
        self._deletion = deletion

    def handlers(self) -> dict[int, Handler]:
        """Return the handlers by request code."""
        return {RequestCode.DELETE_TOPIC_IN_BROKER: self._delete_topic}

    async def _delete_topic(self, request: RemotingCommand, channel: RemotingChannel) -> Answer:
        header = TopicHeader.from_ext(request.ext)
        topic = named_topic(header.topic)
        if topic in RESERVED_TOPICS:
            raise BrokerError(
                ResponseCode.NO_PERMISSION,
                f"topic {topic} is the broker's own and cannot be deleted",
            )
        try:
            await self._deletion.delete(topic)
        except OSError as error:
            raise BrokerError(
                ResponseCode.SYSTEM_ERROR,
                f"the deletion of topic {topic} cannot be written now: {error.strerror}",
            ) from error
        return request.response()
