"""Dead letters: what one says of its message, and the message that goes back for it. Pure.

Those of this gateway and those of RocketMQ's own consumers stand in the same topic,
``%DLQ%group``. What goes back is a new message: key, tag, body and the properties of its producer
as they were, without what brokers and gateways wrote beside them, and with what says that it was
redriven. Its id follows from the dead letter's own place, so one that is sent twice has one id.
"""

from __future__ import annotations

import base64
import hashlib
import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from broker_core.names import DEAD_LETTER_PREFIX, INTERNAL_PREFIX, QueueName, Topic, check_name
from broker_core.remoting.compression import (
    SYS_COMPRESSED,
    SYS_COMPRESSION_TYPE,
    deflate,
)
from broker_core.remoting.key_hash import queue_index
from broker_core.remoting.message import (
    KEYS,
    TAGS,
    UNIQ_KEY,
    OutgoingMessage,
    StoredMessage,
)

#: Properties of a message that was redriven: how often, from the dead letters of which group (the
#: last time), and the id that it had before the first time.
REDRIVES, REDRIVEN_GROUP, FIRST_ID = (
    "ORDERLANE_REDRIVES",
    "ORDERLANE_REDRIVEN_GROUP",
    "ORDERLANE_FIRST_ID",
)
#: Of a dead letter of ours.
ORDER_KEY, _ORIGIN_QUEUE = "ORDERLANE_ORDER_KEY", "ORDERLANE_QUEUE"
_OURS = "ORDERLANE_"
#: Where a message came from, by who dead-lettered it: the gateway and newer brokers, RocketMQ's
#: consumers, messages that were delayed before.
_ORIGINS = ("DLQ_ORIGIN_TOPIC", "RETRY_TOPIC", "REAL_TOPIC")
_NO_ORIGINS = (INTERNAL_PREFIX, "SCHEDULE_TOPIC_", "rmq_sys_")
#: What brokers and consumers of RocketMQ write into messages. Sent back, some of it would do harm:
#: a delay would begin anew, and WAIT=false (of their dead letters) asks for no sync flush.
_BOOKKEEPING = frozenset(
    "WAIT DELAY RETRY_TOPIC REAL_TOPIC REAL_QID TRAN_MSG PGROUP MIN_OFFSET MAX_OFFSET"
    " ORIGIN_MESSAGE_ID TRANSFER_FLAG CORRECTION_FLAG MQ2_FLAG RECONSUME_TIME MSG_REGION TRACE_ON"
    " UNIQ_KEY MAX_RECONSUME_TIMES CONSUME_START_TIME CLUSTER TRAN_PREPARED_QUEUE_OFFSET"
    " TRANSACTION_CHECK_TIMES CHECK_IMMUNITY_TIME_IN_SECONDS ARRIVE_TIME INNER_MULTI_DISPATCH"
    " INNER_MULTI_QUEUE_OFFSET __transactionId__ POP_CK POP_CK_OFFSET 1ST_POP_TIME INNER_NUM"
    " INNER_BASE EXTEND_UNIQ_INFO __BORNHOST BORN_TIMESTAMP __CRC32# DLQ_ORIGIN_TOPIC"
    " DLQ_ORIGIN_MESSAGE_ID TIMER_DELAY_SEC TIMER_DELIVER_MS TIMER_DELAY_MS TIMER_OUT_MS"
    " TIMER_ENQUEUE_MS TIMER_DEL_UNIQKEY TIMER_DEQUEUE_MS TIMER_ROLL_TIMES".split()
)
_SHARDING_KEY = "__SHARDINGKEY"
_CLIENT_ID = re.compile(r"[0-9A-Fa-f]{32}\Z")


class NotSendable(ValueError):
    """A dead letter that cannot go back; the text says why."""


@dataclass(frozen=True, slots=True)
class DeadLetter:
    """A message of a dead-letter topic as people see it. None: the message does not say."""

    queue: QueueName
    offset: int
    store_ms: int
    topic: str | None
    """Where it came from."""
    origin: str | None
    """The queue there, with the offset: ``broker-a_3@812``."""
    key: str | None
    """The order key, else the message's own key."""
    message_id: str
    """As its producer got it."""
    attempts: int | None
    reason: str | None
    first_failure_ms: int | None
    last_failure_ms: int | None
    redrives: int
    """How often it was redriven before it came here."""


def dead_letter(stored: StoredMessage, queue: QueueName) -> DeadLetter:
    """What *stored*, a message of the dead letters in *queue*, says of itself."""
    properties = stored.properties
    origin, offset = properties.get(_ORIGIN_QUEUE), properties.get("ORDERLANE_OFFSET")
    attempts = _count(properties.get("ORDERLANE_ATTEMPTS"))
    if origin is None and attempts is None:
        attempts = stored.reconsume_times or None  # those of RocketMQ's consumers
    return DeadLetter(
        queue=queue,
        offset=stored.queue_offset,
        store_ms=stored.store_ms,
        topic=_origin_topic(stored),
        origin=None if origin is None else f"{origin}@{offset}",
        key=properties.get(ORDER_KEY) or stored.key,
        message_id=stored.message_id,
        attempts=attempts,
        reason=properties.get("ORDERLANE_REASON"),
        first_failure_ms=_count(properties.get("ORDERLANE_FIRST_FAILURE_MS")),
        last_failure_ms=_count(properties.get("ORDERLANE_LAST_FAILURE_MS")),
        redrives=_count(properties.get(REDRIVES)) or 0,
    )


def content_of(stored: StoredMessage) -> dict[str, Any]:
    """Tag, all properties and body; a body that is no UTF-8 text, or is compressed as no plain
    bytes were got from it, stands as base64.
    """
    content: dict[str, Any] = {
        "tag": stored.properties.get(TAGS),
        "properties": stored.properties,
        "compressed": stored.body_is_compressed,
    }
    try:
        if not stored.body_is_compressed:
            return {**content, "body": stored.body.decode()}
    except UnicodeDecodeError:
        pass
    return {**content, "body_base64": base64.b64encode(stored.body).decode()}


def sent_back(stored: StoredMessage, queue: QueueName) -> OutgoingMessage:
    """The message that goes back for *stored*, a message of the dead letters in *queue*.

    Raises NotSendable if it does not say where it came from.
    """
    topic = _origin_topic(stored)
    if topic is None:
        raise NotSendable("it does not say from which topic it came")
    try:
        check_name("topic", topic)
    except ValueError as error:
        raise NotSendable(f"it came from where nothing can be sent: {error}") from None
    was = stored.properties
    properties = {
        name: value.replace("\x01", " ")
        for name, value in was.items()
        if name not in _BOOKKEEPING and not name.startswith(_OURS)
    }
    properties[REDRIVES] = str((_count(was.get(REDRIVES)) or 0) + 1)
    properties[REDRIVEN_GROUP] = queue.topic.removeprefix(DEAD_LETTER_PREFIX)
    properties[FIRST_ID] = was.get(FIRST_ID) or stored.message_id
    properties[UNIQ_KEY] = _new_id(stored, queue)
    key, tag = properties.pop(KEYS, None), properties.pop(TAGS, None)
    return OutgoingMessage(
        topic=Topic(topic),
        body=body_as_sent(stored),
        key=key,
        tag=tag,
        properties=properties,
        flag=stored.flag,
        sys_flag=stored.sys_flag & (SYS_COMPRESSED | SYS_COMPRESSION_TYPE),
    )


def queue_for(
    message: OutgoingMessage, queues: Sequence[QueueName], *, stored: StoredMessage
) -> QueueName:
    """Which of *queues*, the writable ones of its topic (not none), *message* goes to.

    That of its key, as its producers choose it; without a key the one it came from, else any.
    """
    key = message.properties.get(_SHARDING_KEY) or message.key
    if key is not None:
        return queues[queue_index(key, len(queues))]
    came_from = stored.properties.get(_ORIGIN_QUEUE)
    for queue in queues:
        if queue.qid == came_from:
            return queue
    return queues[stored.queue_offset % len(queues)]


def body_as_sent(stored: StoredMessage) -> bytes:
    """Compressed if it came so: its plain bytes may be more than the broker takes."""
    if stored.sys_flag & SYS_COMPRESSED and not stored.body_is_compressed:
        return deflate(stored.body, stored.sys_flag)
    return stored.body


def _origin_topic(stored: StoredMessage) -> str | None:
    for name in _ORIGINS:
        topic = stored.properties.get(name)
        if topic and not topic.startswith(_NO_ORIGINS):
            return topic
    return None


def _new_id(stored: StoredMessage, queue: QueueName) -> str:
    """In the layout of producers' ids; its time is the first one's: tools search from there."""
    place = f"{queue}@{stored.queue_offset} {stored.store_ms} {stored.message_id}"
    digits = hashlib.sha1(place.encode(), usedforsecurity=False).hexdigest().upper()
    was = stored.properties.get(UNIQ_KEY, "")
    time = was[20:28].upper() if _CLIENT_ID.match(was) else digits[20:28]
    return digits[:20] + time + digits[28:32]


def _count(text: str | None) -> int | None:
    return int(text) if text is not None and re.fullmatch(r"[0-9]{1,18}", text) else None
