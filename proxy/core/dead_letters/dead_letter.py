"""Dead letters: their content, and the message that is sent back for one. Pure.

Dead letters of the gateway and of RocketMQ's own consumers are in the same topic, ``%DLQ%group``.
The message sent back is new: it has the key, tag, body and properties that its producer set,
without those added by brokers and gateways, and with marks of the redrive. Its id is derived from
the place of the dead letter, so a message sent back twice has one id.
"""

from __future__ import annotations

import base64
import hashlib
import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from broker_core.names import DEAD_LETTER_PREFIX, INTERNAL_PREFIX, QueueName, Topic, check_name
from broker_core.remoting.compression import SYS_COMPRESSED, SYS_COMPRESSION_TYPE
from broker_core.remoting.key_hash import plain_key, queue_index
from broker_core.remoting.message import (
    KEYS,
    TAGS,
    UNIQ_KEY,
    OutgoingMessage,
    StoredMessage,
    decode_properties,
    encode_properties,
)
from broker_core.remoting.raw_properties import changed_properties
from proxy.core.dead_letters.copies import (
    ATTEMPTS,
    FIRST_FAILURE,
    LAST_FAILURE,
    LEFT_OUT,
    ORDER_KEY,
    ORIGIN_OFFSET,
    ORIGIN_QUEUE,
    REASON,
    ROOM,
    SENT,
    as_sent,
    body_as_sent,
    is_cut,
    number_in,
    text_properties,
)
from proxy.core.dead_letters.redriven import FIRST_ID, MARKS, REDRIVES, is_marked, marked
from proxy.core.keys.order_key import known_as

#: Properties with the original topic: of the gateway and newer brokers, of RocketMQ's consumers, of
#: delayed messages.
_ORIGINS = ("DLQ_ORIGIN_TOPIC", "RETRY_TOPIC", "REAL_TOPIC")
_NO_ORIGINS = (INTERNAL_PREFIX, "SCHEDULE_TOPIC_", "rmq_sys_")
#: Properties that RocketMQ's consumers and brokers write into dead letters.
_BOOKKEEPING = LEFT_OUT | frozenset(
    "__transactionId__ CHECK_IMMUNITY_TIME_IN_SECONDS ARRIVE_TIME __BORNHOST BORN_TIMESTAMP"
    " DLQ_ORIGIN_TOPIC DLQ_ORIGIN_MESSAGE_ID".split()
)
_SHARDING_KEY = "__SHARDINGKEY"
_CLIENT_ID = re.compile(r"[0-9A-Fa-f]{32}\Z")


class NotSendable(ValueError):
    """A dead letter cannot be sent back; the text gives the reason."""


@dataclass(frozen=True, slots=True)
class DeadLetter:
    """A message of a dead-letter topic as shown to operators. None: not recorded in the message."""

    queue: QueueName
    offset: int
    store_ms: int
    topic: str | None
    """The original topic."""
    origin: str | None
    """The original queue with the offset: ``broker-a_3@812``."""
    key: str | None
    """The order key, else the message key."""
    message_id: str
    """The id that its producer got."""
    attempts: int | None
    reason: str | None
    first_failure_ms: int | None
    last_failure_ms: int | None
    redrives: int
    """Number of redrives before it came here."""


def dead_letter(stored: StoredMessage, queue: QueueName) -> DeadLetter:
    """Return *stored*, a dead letter in *queue*, as shown to operators."""
    properties = stored.properties
    origin, offset = properties.get(ORIGIN_QUEUE), properties.get(ORIGIN_OFFSET)
    attempts = number_in(properties.get(ATTEMPTS))
    if origin is None and attempts is None:
        attempts = stored.reconsume_times or None  # those of RocketMQ's consumers
    return DeadLetter(
        queue=queue,
        offset=stored.queue_offset,
        store_ms=stored.store_ms,
        topic=_origin_topic(stored),
        origin=None if origin is None else f"{origin}@{offset}",
        key=known_as(plain_key(properties.get(ORDER_KEY) or stored.key or "")) or None,
        message_id=stored.message_id,
        attempts=attempts,
        reason=properties.get(REASON),
        first_failure_ms=number_in(properties.get(FIRST_FAILURE)),
        last_failure_ms=number_in(properties.get(LAST_FAILURE)),
        redrives=number_in(_whole(stored).properties.get(REDRIVES)) or 0,
    )


def content_of(stored: StoredMessage) -> dict[str, Any]:
    """Return tag, all properties and body, the latter in base64 if it is not UTF-8 or could not be
    decompressed. For a dead letter, both the original properties and those added to it.
    """
    whole = _whole(stored)
    packed = {name: text for name, text in stored.properties.items() if name != SENT}
    content: dict[str, Any] = {
        "tag": whole.properties.get(TAGS),
        "properties": {**whole.properties, **packed} if whole is not stored else whole.properties,
        "compressed": whole.body_is_compressed,
    }
    try:
        if not whole.body_is_compressed:
            return {**content, "body": whole.body.decode()}
    except UnicodeDecodeError:
        pass
    return {**content, "body_base64": base64.b64encode(whole.body).decode()}


def sent_back(stored: StoredMessage, queue: QueueName) -> OutgoingMessage:
    """Return the message to send back for *stored*, a dead letter in *queue*.

    Raise NotSendable if its topic is unknown, or its body is incomplete.
    """
    topic = _origin_topic(stored)
    if topic is None:
        raise NotSendable("its original topic is unknown")
    try:
        check_name("topic", topic)
    except ValueError as error:
        raise NotSendable(f"its original topic accepts no messages: {error}") from None
    if (size := is_cut(stored)) is not None:
        was = stored.properties
        place = f"{topic}/{was.get(ORIGIN_QUEUE)}@{was.get(ORIGIN_OFFSET)}"
        raise NotSendable(
            f"its body of {size} bytes exceeded the broker's limit; the complete message is at"
            f" {place} until retention deletes it"
        )
    whole = _whole(stored)
    left_out = {*(_BOOKKEEPING if whole is stored else LEFT_OUT), UNIQ_KEY}
    if is_marked(whole.properties):
        left_out |= MARKS
    raw = changed_properties(whole.raw_properties, without=[each.encode() for each in left_out])
    added = _marked(whole, stored, queue)
    has_own = whole.properties.keys() & (MARKS - left_out)  # set by its producer: they stay
    if has_own or len(raw) + len(encode_properties(added)) > ROOM:
        added = {UNIQ_KEY: added[UNIQ_KEY]}
    key = tag = None
    properties = text_properties(raw)
    if properties is not None:
        key, tag, raw = properties.pop(KEYS, None), properties.pop(TAGS, None), b""
    return OutgoingMessage(
        topic=Topic(topic),
        body=body_as_sent(whole),
        key=key,
        tag=tag,
        properties={**(properties or {}), **added},
        encoded=raw,
        flag=stored.flag,
        sys_flag=whole.sys_flag & (SYS_COMPRESSED | SYS_COMPRESSION_TYPE),
    )


def sent_again(stored: StoredMessage, queue: QueueName) -> OutgoingMessage:
    """Return a new message for the topic of *stored*, a message in *queue*: the same key, tag, body
    and properties of its producer, without its id, delay and transaction.

    Raise NotSendable if its body could not be decompressed.
    """
    if stored.body_is_compressed:
        raise NotSendable("its body cannot be decompressed")
    left_out = {*_BOOKKEEPING, UNIQ_KEY}
    if is_marked(stored.properties):
        left_out |= MARKS
    raw = changed_properties(stored.raw_properties, without=[each.encode() for each in left_out])
    key = tag = None
    properties = text_properties(raw)
    if properties is not None:
        key, tag, raw = properties.pop(KEYS, None), properties.pop(TAGS, None), b""
    return OutgoingMessage(
        topic=queue.topic,
        body=body_as_sent(stored),
        key=key,
        tag=tag,
        properties=properties or {},
        encoded=raw,
        flag=stored.flag,
        sys_flag=stored.sys_flag & (SYS_COMPRESSED | SYS_COMPRESSION_TYPE),
    )


def queue_for(
    message: OutgoingMessage, queues: Sequence[QueueName], *, stored: StoredMessage
) -> QueueName:
    """Return the queue for *message* among *queues*, the writable ones of its topic (at least one).

    With a key, the queue that producers select; without one its original queue, or else any.
    """
    sent = {**decode_properties(message.encoded), **message.all_properties()}
    key = plain_key(sent.get(_SHARDING_KEY) or sent.get(KEYS) or "")
    if key:
        return queues[queue_index(key, len(queues))]
    came_from = stored.properties.get(ORIGIN_QUEUE)
    for queue in queues:
        if queue.qid == came_from:
            return queue
    return queues[stored.queue_offset % len(queues)]


def _whole(stored: StoredMessage) -> StoredMessage:
    """Return the original message if the dead letter is the gateway's; else *stored*."""
    return as_sent(stored) if ORIGIN_QUEUE in stored.properties else stored


def _marked(whole: StoredMessage, stored: StoredMessage, queue: QueueName) -> dict[str, str]:
    """Return the marks of the redrive, with the new id."""
    was = whole.properties
    return marked(
        _new_id(stored, queue, was.get(UNIQ_KEY, "")),
        redrives=(number_in(was.get(REDRIVES)) or 0) + 1,
        group=queue.topic.removeprefix(DEAD_LETTER_PREFIX),
        first_id=_one_line(was.get(FIRST_ID) or whole.message_id),
    )


def _origin_topic(stored: StoredMessage) -> str | None:
    for name in _ORIGINS:
        topic = stored.properties.get(name)
        if topic and not topic.startswith(_NO_ORIGINS):
            return topic
    return None


def _one_line(text: str) -> str:
    return text.replace("\x01", " ")


def _new_id(stored: StoredMessage, queue: QueueName, was: str) -> str:
    """Return an id in the layout of producers' ids, without the last 4 digits. It keeps the time of
    the first id, from which tools search.
    """
    place = f"{queue}@{stored.queue_offset} {stored.store_ms} {stored.message_id}"
    digits = hashlib.sha1(place.encode(), usedforsecurity=False).hexdigest().upper()
    time = was[20:28].upper() if _CLIENT_ID.match(was) else digits[20:28]
    return digits[:20] + time
