"""Looking single messages up: by a key that a producer gave them, by their id, by their place."""

from __future__ import annotations

from broker_core.client.requests import BrokerRequests
from broker_core.errors import BrokerError
from broker_core.names import QueueName, Topic
from broker_core.remoting.codes import RequestCode, ResponseCode
from broker_core.remoting.key_hash import plain_key
from broker_core.remoting.message import StoredMessage, decode_messages
from broker_core.remoting.query_headers import QueryMessageHeader

#: Beyond any time that a message can have.
_END_OF_TIME_MS = 2**62
#: What compressed bodies of one answer may take.
_INFLATED_BYTES = 64 * 1024 * 1024


class Queries:
    """Asks the masters of brokers, which have to keep an index of keys."""

    def __init__(self, requests: BrokerRequests) -> None:
        self._requests = requests

    async def find(
        self, broker: str, topic: Topic, key: str, *, most: int, is_id: bool = False
    ) -> list[tuple[QueueName, StoredMessage]]:
        """Messages of *topic* at *broker* with *key* among their keys, *most* of the newest, with
        the queues that they stand in; *is_id*: *key* is the id that a producer gave one message.
        Blanks around a key count for nothing.

        None found is an empty list. Raises RemotingError, also of a broker without an index.
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
                return []
            raise
        messages = decode_messages(bytes(answer.body), most_inflated_bytes=_INFLATED_BYTES)
        return [
            (QueueName(topic, broker, message.queue_id), message)
            for message in messages
            if message.topic == topic
        ]
