"""What operators see of messages: those with a key or an id, and one whole, by its place.

Any proxy can look, whichever owns the queue. A key is one that a producer gave the message (its
property KEYS): brokers keep an index of those. An order key that stands in a body has none; the
place of its first message stands on its page.
"""

from __future__ import annotations

from typing import Any

from broker_core.client import PullStatus
from broker_core.errors import RemotingError
from broker_core.names import Group, QueueName, Topic, parse_qid
from broker_core.remoting.message import StoredMessage
from proxy.core.dead_letters.copies import as_sent
from proxy.core.dead_letters.dead_letter import content_of
from proxy.core.keys.order_key import key_text
from proxy.core.records.parked_key import parked_topic
from proxy.errors import Unavailable, UnknownName
from proxy.lane.group_lane import GroupLane
from proxy.lane.lanes import Lanes, topic_named
from proxy.lane.topic_rules import rules_of
from proxy.upstream.context import UpstreamContext

#: Messages of one look, of each broker.
MOST_SHOWN = 64


class MessageDesk:
    """One per process."""

    def __init__(self, context: UpstreamContext, lanes: Lanes) -> None:
        self._context = context
        self._lanes = lanes

    async def find(
        self, group: str, topic: str, *, key: str | None, message_id: str | None, limit: int
    ) -> dict[str, Any]:
        """Messages of *topic* with that key, or with that id, the newest *limit* of each broker,
        the oldest first. ``unanswered``: brokers that could not say, with why.

        Raises UnknownName; Unavailable if no broker could say.
        """
        lane = self._lanes.named(group)
        ours = topic_named(lane, topic)
        found: list[dict[str, Any]] = []
        unanswered: dict[str, str] = {}
        brokers = await self._context.client.broker_names(ours)
        text = message_id if message_id is not None else key or ""
        for broker in brokers:
            try:
                messages = await self._context.client.queries.find(
                    broker, ours, text, most=limit, is_id=message_id is not None
                )
            except RemotingError as error:
                unanswered[broker] = str(error)
                continue
            found += [_row(lane, queue, message) for queue, message in messages]
        if unanswered and len(unanswered) == len(brokers):
            raise Unavailable("; ".join(f"{broker}: {why}" for broker, why in unanswered.items()))
        found.sort(key=lambda row: (row["store_ms"], row["message"]))
        return {"group": group, "topic": topic, "messages": found, "unanswered": unanswered}

    async def show(self, group: str, topic: str, place: str) -> dict[str, Any]:
        """The message at *place*, as in ``broker-a_0@17``, with its body; ``broker-a_0p@17`` is one
        of the parked topic. Raises UnknownName, RemotingError.
        """
        lane = self._lanes.named(group)
        ours = topic_named(lane, topic)
        text, _, number = place.rpartition("@")
        if not (text and number.isascii() and number.isdecimal() and len(number) < 19):
            raise UnknownName(
                f"{place[:200]!r} is no place of a message: it should be as in broker-a_0@17"
            )
        parked = text.endswith("p")
        stands_in = parked_topic(lane.name, ours) if parked else ours
        try:
            queue = parse_qid(stands_in, text.removesuffix("p"))
        except ValueError as error:
            raise UnknownName(str(error)) from None
        if queue not in await self._queues(stands_in):
            raise UnknownName(f"topic {stands_in} has no queue {text}")
        message = await self._at(queue, int(number))
        if message is None:
            raise UnknownName(
                f"there is no message at {place}: it was deleted, or is not written yet"
            )
        if parked:
            message = as_sent(message)
        return {**_row(lane, queue, message, parked=parked), **content_of(message)}

    async def _queues(self, topic: Topic) -> list[QueueName]:
        try:
            return await self._context.client.queues(topic)
        except RemotingError as error:
            raise UnknownName(f"topic {topic} is not there: {error}") from None

    async def _at(self, queue: QueueName, offset: int) -> StoredMessage | None:
        client = self._context.client
        if not await client.min_offset(queue) <= offset < await client.max_offset(queue):
            return None
        result = await client.pull(
            queue, group=Group(queue.topic), offset=offset, max_messages=1, suspend_ms=0
        )
        if result.status is not PullStatus.FOUND:
            return None
        return next((each for each in result.messages if each.queue_offset == offset), None)


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
    """By the rule of now; None without one, and for a copy, whose key the parked topic has."""
    settings = None if parked else lane.settings.topic(queue.topic)
    if settings is None:
        return None
    key = rules_of(settings).order_key.of(message)
    return None if key is None else key_text(key)
