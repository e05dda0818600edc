"""Chooses queues and retries sends. Who needs neither uses BrokerClient.send."""

from __future__ import annotations

import asyncio
from itertools import count

from broker_core.client.broker_client import DEFAULT_PRODUCER, BrokerClient
from broker_core.client.results import SendReceipt
from broker_core.client.sending import with_id
from broker_core.errors import BrokerError, RemotingError
from broker_core.names import Group, QueueName, Topic
from broker_core.remoting.codes import ResponseCode
from broker_core.remoting.key_hash import queue_index
from broker_core.remoting.message import OutgoingMessage

_FIRST_PAUSE_S = 0.05
_MAX_PAUSE_S = 1.0


class Producer:
    """Sends messages of one key to one queue: the one that RocketMQ's producers choose as well.

    Order inside a key holds for a caller that awaits each send before the next. A retry never
    moves a keyed message to another queue; it may store the message twice, under the same
    UNIQ_KEY, when an answer was lost.
    """

    def __init__(
        self, client: BrokerClient, *, group: Group = DEFAULT_PRODUCER, retries: int = 2
    ) -> None:
        """*retries*: how often a send that may succeed later is tried again."""
        self._client = client
        self._group = group
        self._retries = retries
        self._turn = count()

    async def send(
        self,
        message: OutgoingMessage,
        *,
        sharding_key: str | None = None,
        timeout_s: float | None = None,
    ) -> SendReceipt:
        """Send to the queue of *sharding_key* (default: the message's key), else round robin.

        *timeout_s* holds for each try. Raises the last try's RemotingError.
        """
        message = with_id(message)
        key = message.key if sharding_key is None else sharding_key
        queue = await self._queue(message.topic, key)
        pause_s = _FIRST_PAUSE_S
        for tries_left in range(self._retries, -1, -1):
            try:
                return await self._client.send(
                    queue, message, group=self._group, timeout_s=timeout_s
                )
            except RemotingError as error:
                if not error.retriable or not tries_left:
                    raise
            await asyncio.sleep(pause_s)
            pause_s = min(2 * pause_s, _MAX_PAUSE_S)
            if key is None:
                queue = await self._queue(message.topic, None)
        raise AssertionError("unreachable: the last try returns or raises")

    async def _queue(self, topic: Topic, key: str | None) -> QueueName:
        queues = await self._client.writable_queues(topic)
        if not queues:
            raise BrokerError(
                ResponseCode.NO_PERMISSION, f"topic {topic} has no writable queue", request="send"
            )
        index = next(self._turn) % len(queues) if key is None else queue_index(key, len(queues))
        return queues[index]
