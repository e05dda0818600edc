"""Reads and writes the ownership topic (``proxy.core.ownership_record`` says what it holds)."""

from __future__ import annotations

import structlog

from broker_core.client import BrokerClient
from broker_core.errors import BrokerError
from broker_core.names import Group, QueueName, Topic
from broker_core.remoting.codes import ResponseCode
from broker_core.remoting.message import OutgoingMessage
from proxy.core.ownership_record import (
    LastOwner,
    Record,
    decode,
    encode,
    ownership_topic,
    replay,
)

_log = structlog.get_logger("ownership")

#: Records read at once from the tail; an ownership period writes three of them.
_TAIL = 32


class OwnershipLog:
    """The twin queues of all groups and topics of this proxy."""

    def __init__(self, client: BrokerClient) -> None:
        self._client = client
        self._known: set[QueueName] = set()  # twins that are in the route

    async def append(self, group: Group, queue: QueueName, record: Record) -> int:
        """Write *record*; returns its queue offset. Raises RemotingError; it may be stored then."""
        twin = await self._twin(group, queue)
        message = OutgoingMessage(topic=twin.topic, body=encode(record))
        return (await self._client.send(twin, message)).offset

    async def last(self, group: Group, queue: QueueName) -> LastOwner | None:
        """The newest ownership period of *queue*, None if there was none. Raises RemotingError."""
        twin = await self._twin(group, queue)
        end = await self._client.max_offset(twin)
        lowest = await self._client.min_offset(twin)
        span = _TAIL
        while True:
            start = max(lowest, end - span)
            found = replay(await self._read(group, twin, start=start, end=end))
            if found is not None or start == lowest:
                return found
            span *= 8

    async def _read(
        self, group: Group, twin: QueueName, *, start: int, end: int
    ) -> list[tuple[int, Record]]:
        records: list[tuple[int, Record]] = []
        offset = start
        while offset < end:
            result = await self._client.pull(
                twin, group=group, offset=offset, max_messages=_TAIL, suspend_ms=0
            )
            for message in result.messages:
                try:
                    records.append((message.queue_offset, decode(message.body)))
                except ValueError as error:
                    _log.warning(
                        "ownership record passed over",
                        twin=str(twin),
                        offset=message.queue_offset,
                        reason=str(error),
                    )
            if result.next_offset <= offset:
                break
            offset = result.next_offset
        return records

    async def _twin(self, group: Group, queue: QueueName) -> QueueName:
        """The queue of the ownership topic beside *queue*, created if it is not there."""
        twin = QueueName(ownership_topic(group, queue.topic), queue.broker, queue.queue_id)
        if twin in self._known:
            return twin
        if twin not in await self._queues(twin.topic):
            beside = [
                each for each in await self._queues(queue.topic) if each.broker == queue.broker
            ]
            count = max((each.queue_id + 1 for each in beside), default=queue.queue_id + 1)
            await self._client.create_topic(twin.topic, queues=count, broker=queue.broker)
        self._known.add(twin)
        return twin

    async def _queues(self, topic: Topic) -> list[QueueName]:
        try:
            return await self._client.queues(topic, fresh=True)
        except BrokerError as error:
            if error.code == ResponseCode.TOPIC_NOT_EXIST:
                return []
            raise
