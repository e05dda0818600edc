"""Single messages: by key or id from the brokers' indexes, and by queue and offset."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from functools import partial

from broker_core.client import BrokerClient, PullStatus
from broker_core.client.queries import MOST_OF_ID, FoundByKey
from broker_core.errors import BrokerError, RemotingError
from broker_core.names import Group, QueueName, Topic
from broker_core.remoting.codes import ResponseCode
from broker_core.remoting.message import StoredMessage
from proxy.core.dead_letters.copies import ORIGIN_OFFSET, ORIGIN_QUEUE
from proxy.errors import Unavailable, UnknownName
from proxy.upstream.broker_questions import BrokerQuestions

#: Messages per request and broker.
MOST_SHOWN = 64


@dataclass(frozen=True, slots=True)
class Found:
    """Messages with a key or id, oldest first, and the errors of brokers that failed, by name.

    ``complete``: none of the other brokers has older ones.
    """

    messages: list[tuple[QueueName, StoredMessage]]
    unanswered: dict[str, str]
    complete: bool


async def found_by(
    client: BrokerClient, topic: Topic, text: str, *, limit: int, is_id: bool
) -> Found:
    """Return the newest *limit* messages per broker with a key or id. Raises Unavailable if all
    brokers failed, RemotingError without a route.
    """
    route = await client.topic_route(topic)
    brokers, ask = {data.broker for data in route.brokers}, BrokerQuestions()

    async def at_broker(broker: str) -> FoundByKey | None:
        find = partial(client.queries.find, broker, topic, text, most=limit, is_id=is_id)
        return await ask.ask(broker, find)

    answers = await asyncio.gather(*map(at_broker, sorted(brokers)))
    ask.refuse_if_silent(brokers)
    told = [each for each in answers if each is not None]
    found = [message for each in told for message in each.messages]
    found.sort(key=lambda each: (each[1].store_ms, each[0], each[1].queue_offset))
    return Found(found, ask.unanswered, all(each.complete for each in told))


async def has_copy(
    client: BrokerClient, topic: Topic, queue: QueueName, message: StoredMessage
) -> bool | None:
    """Return whether *topic* has a copy of *message*, which is in *queue*; None if its brokers
    cannot tell.
    """
    try:
        found = await found_by(client, topic, message.message_id, limit=MOST_OF_ID, is_id=True)
    except BrokerError as error:
        return False if error.code == ResponseCode.TOPIC_NOT_EXIST else None
    except (RemotingError, Unavailable):
        return None
    origin = (queue.qid, str(message.queue_offset))
    for _, copy in found.messages:
        if (copy.properties.get(ORIGIN_QUEUE), copy.properties.get(ORIGIN_OFFSET)) == origin:
            return True
    return None if found.unanswered or not found.complete else False


def parse_place(place: str) -> tuple[str, int]:
    """Return queue and offset of a *place*, such as ``broker-a_0@17``. Raises UnknownName."""
    text, _, number = place.rpartition("@")
    if not (text and number.isascii() and number.isdecimal() and len(number) < 19):
        raise UnknownName(
            f"invalid location {place[:200]!r}: give queue and offset, such as broker-a_0@17"
        )
    return text, int(number)


async def message_at(client: BrokerClient, queue: QueueName, offset: int) -> StoredMessage | None:
    """Return the message at *offset* of *queue*, None if there is none. Raises RemotingError."""
    if not await client.min_offset(queue) <= offset < await client.max_offset(queue):
        return None
    result = await client.pull(
        queue, group=Group(queue.topic), offset=offset, max_messages=1, suspend_ms=0
    )
    if result.status is not PullStatus.FOUND:
        return None
    return next((each for each in result.messages if each.queue_offset == offset), None)
