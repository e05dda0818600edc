"""Messages that a group failed to handle: retried later, or dead letters. Pure.

A message sent back is stored in ``%RETRY%group`` after its delay, of level 3 (10 s) the first time
and one level more each time; after too many attempts it is stored in ``%DLQ%group`` at once.
Source: ``AbstractSendMessageProcessor`` and ``SendMessageProcessor`` (4.9.8, 5.3.3).
"""

from __future__ import annotations

from broker_core.names import DEAD_LETTER_PREFIX, RETRY_PREFIX, Group, Topic
from broker_core.remoting.delay_properties import (
    DELAY_LEVEL,
    DELAY_PROPERTIES,
    REAL_QUEUE,
    REAL_TOPIC,
    RETRY_TOPIC,
)
from broker_core.remoting.message import SYS_TRANSACTION, StoredMessage
from broker_core.remoting.raw_properties import changed_properties, storable_properties
from broker_core.remoting.record_encoding import BatchEntry, Envelope

ORIGIN_MESSAGE_ID = "ORIGIN_MESSAGE_ID"

_FIRST_LEVEL = 3
#: Clients of 3.4.9 and later send the number of attempts; those of 5.0 and later count the next
#: one.
_VERSION_WITH_MAX, _VERSION_5 = 121, 413
_OF_THE_DELAY = DELAY_PROPERTIES | {REAL_TOPIC.encode(), REAL_QUEUE.encode()}


def retry_topic(group: Group) -> Topic:
    """Return the topic of the retries of *group*."""
    return Topic(RETRY_PREFIX + group)


def dead_letter_topic(group: Group) -> Topic:
    """Return the topic of the dead letters of *group*."""
    return Topic(DEAD_LETTER_PREFIX + group)


def most_times(configured: int, asked: int | None, *, version: int) -> int:
    """Return the maximum number of retries: the client's, or the one configured for its group."""
    return configured if asked is None or version < _VERSION_WITH_MAX else asked


def is_given_up(message: StoredMessage, *, delay_level: int, most: int) -> bool:
    """Return whether a message sent back becomes a dead letter."""
    return delay_level < 0 or message.reconsume_times >= most


def is_sent_to_give_up(reconsume_times: int, *, most: int, version: int, locked: bool) -> bool:
    """Return whether a message sent to a retry topic becomes a dead letter.

    *locked*: the group holds orderly locks. Its messages are not retried later, out of order; so
    its consumers send them only to give them up.
    """
    if locked:
        return True
    return reconsume_times > most if version >= _VERSION_5 else reconsume_times >= most


def sent_back(
    message: StoredMessage, topic: Topic, queue_id: int, *, delay_level: int, store_host: bytes
) -> tuple[Envelope, BatchEntry]:
    """Return *message*, its body as stored, for *topic*: a retry or dead-letter topic.

    *delay_level* 0 means by the number of its attempts; below 0 no delay. Raises LocalProtocolError
    if its properties have no room for the additions.
    """
    properties = message.properties
    more = {
        RETRY_TOPIC: properties.get(RETRY_TOPIC) or message.topic,
        ORIGIN_MESSAGE_ID: properties.get(ORIGIN_MESSAGE_ID) or message.offset_message_id,
    }
    if delay_level >= 0:
        more[DELAY_LEVEL] = str(delay_level or _FIRST_LEVEL + message.reconsume_times)
    envelope = Envelope(
        topic,
        queue_id,
        message.born_host,
        store_host,
        sys_flag=message.sys_flag & ~SYS_TRANSACTION,
        born_ms=message.born_ms,
        reconsume_times=message.reconsume_times + 1,
    )
    kept = storable_properties(message.raw_properties)
    raw = changed_properties(kept, without=_OF_THE_DELAY, more=more)
    return envelope, BatchEntry(message.flag, message.body, raw)


def without_delay(entry: BatchEntry) -> BatchEntry:
    """Return *entry* for a topic where it is visible at once."""
    raw = changed_properties(entry.properties, without=DELAY_PROPERTIES)
    return entry._replace(properties=raw)
