"""Look-ups of single messages: by key, by id, and by position."""

from __future__ import annotations

from typing import NamedTuple

from broker_core.client.requests import BrokerRequests
from broker_core.errors import BrokerError
from broker_core.names import QueueName, Topic
from broker_core.remoting.codes import RequestCode, ResponseCode
from broker_core.remoting.key_hash import plain_key
from broker_core.remoting.message import StoredMessage, decode_message, decode_messages
from broker_core.remoting.query_headers import (
    QueryMessageHeader,
    QueryMessageResponse,
    ViewMessageHeader,
)

#: Later than any message.
_END_OF_TIME_MS = 2**62
#: Limit of inflated bodies of one answer.
_INFLATED_BYTES = 64 * 1024 * 1024
#: Most messages that brokers return, of an id or a key.
MOST_OF_ID, _MOST_OF_KEY = 32, 64


class FoundByKey(NamedTuple):
    """Messages of one broker, oldest first, with their queues.

    ``complete``: it has no older ones.
    """

    messages: list[tuple[QueueName, StoredMessage]]
    complete: bool


class Queries:
    """Queries to the masters of brokers, which must have an index of keys."""

    def __init__(self, requests: BrokerRequests) -> None:
        self._requests = requests

    async def find(
        self, broker: str, topic: Topic, key: str, *, most: int, is_id: bool = False
    ) -> FoundByKey:
        """Return the newest messages of *topic* at *broker* with *key*; none is no error.

        Blanks around the key are ignored. Raises RemotingError, also for a broker without an index.

        Args:
            broker: name of the broker
            topic: the topic
            key: one of the message's keys
            most: maximum number of messages
            is_id: *key* is the unique id that a producer gave one message
        """
        header = QueryMessageHeader(
            topic=topic,
            key=key if is_id else plain_key(key),
            max_num=most,
            begin_timestamp=0,
            end_timestamp=_END_OF_TIME_MS,
            unique_key=is_id,
        )
        try:
            answer = await self._requests.ask(
                broker, RequestCode.QUERY_MESSAGE, header.to_ext(), timeout_s=10.0
            )
        except BrokerError as error:
            if error.code == ResponseCode.QUERY_NOT_FOUND:
                return FoundByKey([], complete=True)
            raise
        messages = decode_messages(bytes(answer.body), most_inflated_bytes=_INFLATED_BYTES)
        complete = QueryMessageResponse.from_ext(answer.ext).complete
        if complete is None:  # another broker's: it has no limit but the number
            complete = len(messages) < min(most, MOST_OF_ID if is_id else _MOST_OF_KEY)
        found = [
            (QueueName(topic, broker, message.queue_id), message)
            for message in messages
            if message.topic == topic
        ]
        return FoundByKey(found, complete)

    async def at(
        self, broker: str, log_offset: int, *, timeout_s: float | None = None
    ) -> StoredMessage:
        """Return the message at *log_offset* of the log of *broker*, of any topic.

        Raises RemotingError, also if no message begins there.
        """
        header = ViewMessageHeader(offset=log_offset)
        answer = await self._requests.ask(
            broker, RequestCode.VIEW_MESSAGE_BY_ID, header.to_ext(), timeout_s=timeout_s
        )
        return decode_message(bytes(answer.body))
