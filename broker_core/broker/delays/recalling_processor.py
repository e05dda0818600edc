"""Requests to recall delayed messages: code 370, as in RocketMQ 5.3."""

from __future__ import annotations

from broker_core.broker.delays.delivery import DelayedDelivery
from broker_core.broker.store_answers import check_confirmed, not_written
from broker_core.broker.topics.directory import TopicDirectory
from broker_core.errors import BrokerError, InvalidCommand
from broker_core.names import Topic
from broker_core.remoting.codes import RequestCode, ResponseCode
from broker_core.remoting.command import RemotingCommand
from broker_core.remoting.recall_handle import RecallHandle
from broker_core.remoting.retry_headers import RecallMessageHeader, RecallMessageResponse
from broker_core.remoting_channel import Answer, Handler, RemotingChannel


class RecallProcessor:
    """Recalls messages. Unlike RocketMQ, it reports an error if the message cannot be recalled."""

    def __init__(
        self, delayed: DelayedDelivery, *, directory: TopicDirectory, broker_name: str
    ) -> None:
        self._delayed = delayed
        self._directory = directory
        self._broker_name = broker_name

    def handlers(self) -> dict[int, Handler]:
        """Return the handlers by request code."""
        return {RequestCode.RECALL_MESSAGE: self._recall}

    async def _recall(self, request: RemotingCommand, channel: RemotingChannel) -> Answer:
        header = RecallMessageHeader.from_ext(request.ext)
        if self._directory.topics.find(Topic(header.topic)) is None:
            raise BrokerError(
                ResponseCode.TOPIC_NOT_EXIST,
                f"topic {header.topic!r} does not exist on this broker",
            )
        handle = self._handle(header)
        try:
            kept = await self._delayed.recall(handle)
        except OSError as error:
            raise not_written(error) from error
        if kept is None:
            raise _refused(
                f"message {handle.message_id} does not wait: it was delivered or recalled before,"
                " or is being delivered"
            )
        check_confirmed(kept)
        return request.response(ext=RecallMessageResponse(msg_id=handle.message_id).to_ext())

    def _handle(self, header: RecallMessageHeader) -> RecallHandle:
        try:
            handle = RecallHandle.from_text(header.recall_handle)
        except InvalidCommand as error:
            raise _refused(str(error)) from error
        if handle.topic != header.topic:
            raise _refused(f"the message was sent to topic {handle.topic}, not {header.topic}")
        if handle.broker_name != self._broker_name:
            raise _refused(
                f"the message is at broker {handle.broker_name}, this is {self._broker_name}"
            )
        return handle


def _refused(why: str) -> BrokerError:
    return BrokerError(ResponseCode.ILLEGAL_OPERATION, why)
