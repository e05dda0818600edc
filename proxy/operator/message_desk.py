"""Message lookup by message key or id, and one message by queue and offset.

Any proxy can look up any queue. Brokers index message keys (the property KEYS) only; for an order
key in the body, ``key show`` names the offset of its first message.
"""

from __future__ import annotations

from typing import Any

from broker_core.errors import RemotingError
from broker_core.names import QueueName, Topic, parse_qid
from broker_core.remoting.message import StoredMessage
from proxy.core.dead_letters.copies import as_sent
from proxy.core.dead_letters.dead_letter import content_of
from proxy.core.keys.order_key import key_text
from proxy.core.records.parked_key import TWIN_MARK, parked_topic
from proxy.errors import UnknownName
from proxy.lane.group_lane import GroupLane
from proxy.lane.lanes import Lanes, topic_named
from proxy.lane.topic_rules import rules_of
from proxy.operator.message_lookup import found_by, message_at, parse_place
from proxy.upstream.context import UpstreamContext


class MessageDesk:
    """Message lookup, one object per process."""

    def __init__(self, context: UpstreamContext, lanes: Lanes) -> None:
        self._context = context
        self._lanes = lanes

    async def find(
        self, group: str, topic: str, *, key: str | None, message_id: str | None, limit: int
    ) -> dict[str, Any]:
        """Return messages of *topic* with a key or id: the newest *limit* per broker, oldest first.

        ``unanswered`` maps brokers that failed to their errors; ``complete``: there are no older
        ones. Raises UnknownName; Unavailable if all brokers failed.
        """
        lane = self._lanes.named(group)
        ours = topic_named(lane, topic)
        text = message_id if message_id is not None else key or ""
        found = await found_by(
            self._context.client, ours, text, limit=limit, is_id=message_id is not None
        )
        return {
            "group": group,
            "topic": topic,
            "messages": [_row(lane, *each) for each in found.messages],
            "unanswered": found.unanswered,
            "complete": found.complete,
        }

    async def show(self, group: str, topic: str, place: str) -> dict[str, Any]:
        """Return the message at *place*, such as ``broker-a_0@17``, with its body.

        ``broker-a_0p@17`` is in the parked topic. Raises UnknownName, RemotingError.
        """
        lane = self._lanes.named(group)
        ours = topic_named(lane, topic)
        text, offset = parse_place(place)
        parked = text.endswith(TWIN_MARK)
        stands_in = parked_topic(lane.name, ours) if parked else ours
        try:
            queue = parse_qid(stands_in, text.removesuffix(TWIN_MARK))
        except ValueError as error:
            raise UnknownName(str(error)) from None
        if queue not in await self._queues(stands_in):
            raise UnknownName(f"topic {stands_in} has no queue {text}")
        message = await message_at(self._context.client, queue, offset)
        if message is None:
            raise UnknownName(f"no message at {place}: it is deleted, or not written yet")
        if parked:
            message = as_sent(message)
        return {**_row(lane, queue, message, parked=parked), **content_of(message)}

    async def _queues(self, topic: Topic) -> list[QueueName]:
        try:
            return await self._context.client.queues(topic)
        except RemotingError as error:
            raise UnknownName(f"topic {topic} cannot be found: {error}") from None


def _row(
    lane: GroupLane, queue: QueueName, message: StoredMessage, *, parked: bool = False
) -> dict[str, Any]:
    return {
        "message": f"{queue.qid}{'p' if parked else ''}@{message.queue_offset}",
        "topic": queue.topic,
        "queue": queue.qid,
        "offset": message.queue_offset,
        "message_id": message.message_id,
        "keys": message.key,
        "order_key": _order_key(lane, queue, message, parked=parked),
        "tag": message.properties.get("TAGS"),
        "born_ms": message.born_ms,
        "store_ms": message.store_ms,
        "bytes": message.size,
    }


def _order_key(
    lane: GroupLane, queue: QueueName, message: StoredMessage, *, parked: bool
) -> str | None:
    """Return the order key under the recorded rule of a queue that is owned here, or else by the
    settings; None without one and for parked copies.
    """
    settings = None if parked else lane.settings.topic(queue.topic)
    if settings is None:
        return None
    pipeline = lane.buffer.find(queue)
    rule = rules_of(settings) if pipeline is None else pipeline.keys.rule_of(message)
    key = rule.order_key.of(message)
    return None if key is None else key_text(key)
