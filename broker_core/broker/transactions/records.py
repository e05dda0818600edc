"""The stored records of a transaction: half messages, decisions, and their outcomes. Pure.

A half message is stored in queue 0 of ``HALF_TOPIC``; its properties name its destination
(``REAL_TOPIC``, ``REAL_QID``) and its group (``PGROUP``). A decision is a message of
``HALF_OP_TOPIC`` with tag ``d``; its body is the number of the transaction, as RocketMQ's is the
offset of a half message. In addition it contains the decision and the position of the half message.

A decision to commit or to give up is stored before the message that it announces, with one write. A
crash may leave the first without the second: ``announces`` checks whether they belong together, and
a decision without its message has no effect.
"""

from __future__ import annotations

import struct
from typing import NamedTuple

from broker_core.broker.topics.topics import HALF_OP_TOPIC, HALF_TOPIC, UNDECIDED_TOPIC
from broker_core.broker.transactions.table import Decision, Half
from broker_core.errors import BrokerError
from broker_core.names import Topic
from broker_core.remoting.codes import ResponseCode
from broker_core.remoting.message import (
    MAX_PROPERTIES_BYTES,
    PHYSICAL_OFFSET_AT,
    SYS_TRANSACTION,
    SYS_TRANSACTION_COMMIT,
    TAGS,
    StoredMessage,
    decode_properties,
    encode_properties,
)
from broker_core.remoting.raw_properties import changed_properties, storable_properties
from broker_core.remoting.record_encoding import BatchEntry, Envelope, encode_stored

REAL_TOPIC = "REAL_TOPIC"
REAL_QUEUE = "REAL_QID"
PREPARED = "TRAN_MSG"
PRODUCER_GROUP = "PGROUP"
CHECKS = "TRANSACTION_CHECK_TIMES"
NUMBER = "TRAN_PREPARED_QUEUE_OFFSET"
IMMUNITY = "CHECK_IMMUNITY_TIME_IN_SECONDS"

_DECISION = "TRAN_DECISION"  # of a decision's record: see Decision
_HALF_PLACE = "TRAN_HALF_OFFSET"  # of a decision's record: physical offset of the half message
_RECORD_TAG = "d"

_PLACE = struct.Struct(">q")
#: Bytes that the first check adds to the properties of a half message.
_SPARE_BYTES = 96
_OURS = frozenset(name.encode() for name in (REAL_TOPIC, REAL_QUEUE, CHECKS, NUMBER))
_NOT_FOR_CONSUMERS = frozenset(name.encode() for name in (REAL_TOPIC, REAL_QUEUE, PREPARED))


class PlacedMessage(NamedTuple):
    """One message to be stored."""

    envelope: Envelope
    entries: list[BatchEntry]


def place_half(envelope: Envelope, entry: BatchEntry, *, group: str) -> PlacedMessage:
    """Return the half message for a transactional send of producer *group*, addressed by
    *envelope*.

    Raises BrokerError (13) if its properties have no room for the broker's additions.
    """
    properties = changed_properties(
        entry.properties,
        without=_OURS,
        more={REAL_TOPIC: envelope.topic, REAL_QUEUE: str(envelope.queue_id)},
    )
    if PRODUCER_GROUP not in decode_properties(properties):
        properties = changed_properties(properties, more={PRODUCER_GROUP: group})
    if len(properties) + _SPARE_BYTES > MAX_PROPERTIES_BYTES:
        raise BrokerError(
            ResponseCode.MESSAGE_ILLEGAL,
            f"properties of {len(entry.properties)} bytes are too long for a transaction: with the"
            f" broker's additions they are {len(properties) + _SPARE_BYTES}, at most"
            f" {MAX_PROPERTIES_BYTES}",
        )
    half = envelope._replace(
        topic=HALF_TOPIC, queue_id=0, sys_flag=envelope.sys_flag & ~SYS_TRANSACTION
    )
    return PlacedMessage(half, [entry._replace(properties=properties)])


def read_half(message: StoredMessage) -> Half:
    """Return the table's data about a half message."""
    properties = message.properties
    seconds = properties.get(IMMUNITY, "")
    return Half(
        offset=message.queue_offset,
        place=message.physical_offset,
        number=_count(properties.get(NUMBER, ""), otherwise=message.queue_offset),
        checks=_count(properties.get(CHECKS, ""), otherwise=0),
        born_ms=message.born_ms,
        store_ms=message.store_ms,
        immunity_ms=int(seconds) * 1000 if _is_count(seconds) else None,
    )


def place_renewed(
    message: StoredMessage, half: Half, *, checks: int, store_host: bytes
) -> PlacedMessage:
    """Return the half message *message* again, after *checks* questions to producers."""
    more = {NUMBER: str(half.number)} | ({CHECKS: str(checks)} if checks else {})
    properties = changed_properties(message.raw_properties, more=more)
    return _copy(message, properties, topic=HALF_TOPIC, queue_id=0, store_host=store_host)


def place_decision(
    message: StoredMessage, half: Half, decision: Decision, *, store_host: bytes
) -> list[PlacedMessage]:
    """Return the messages to store, with one write, when the transaction of *half* ends."""
    properties = {
        TAGS: _RECORD_TAG,
        _DECISION: decision.value,
        _HALF_PLACE: str(message.physical_offset),
    }
    record = BatchEntry(0, str(half.number).encode(), encode_properties(properties))
    envelope = Envelope(HALF_OP_TOPIC, 0, store_host, store_host, born_ms=message.store_ms)
    parts = [PlacedMessage(envelope, [record])]
    if decision is Decision.COMMIT:
        topic, queue_id = real_queue(message)
        parts.append(
            _copy(
                message,
                changed_properties(message.raw_properties, without=_NOT_FOR_CONSUMERS),
                topic=topic,
                queue_id=queue_id,
                store_host=store_host,
                sys_flag=message.sys_flag & ~SYS_TRANSACTION | SYS_TRANSACTION_COMMIT,
                prepared_offset=message.physical_offset,
            )
        )
    elif decision is Decision.GIVE_UP:
        parts.append(
            _copy(
                message,
                message.raw_properties,
                topic=UNDECIDED_TOPIC,
                queue_id=0,
                store_host=store_host,
                prepared_offset=message.physical_offset,
            )
        )
    return parts


def read_decision(record: StoredMessage) -> tuple[int, Decision] | None:
    """Return number and decision of the transaction; None if *record* is invalid."""
    number = record.body.decode("ascii", "replace")
    try:
        return int(number), Decision(record.properties.get(_DECISION))
    except ValueError:
        return None


def announces(record: StoredMessage, following: StoredMessage | None) -> bool:
    """Return whether *record*, a decision, is whole: *following* is the next message in the log.

    A roll-back announces nothing, so it is always whole.
    """
    known = read_decision(record)
    if known is None or known[1] is Decision.ROLLBACK:
        return known is not None
    if following is None or record.properties.get(_HALF_PLACE) != str(following.prepared_offset):
        return False
    if known[1] is Decision.GIVE_UP:
        return following.topic == UNDECIDED_TOPIC
    return following.sys_flag & SYS_TRANSACTION == SYS_TRANSACTION_COMMIT


def real_queue(message: StoredMessage) -> tuple[Topic, int]:
    """Return destination topic and queue of a half message."""
    properties = message.properties
    return Topic(properties.get(REAL_TOPIC, "")), _count(
        properties.get(REAL_QUEUE, ""), otherwise=0
    )


def check_body(message: StoredMessage) -> bytes:
    """Return *message* for a question to its producer: with its real topic and queue, and the
    positions by which the producer may end it.
    """
    topic, queue_id = real_queue(message)
    part = _copy(
        message,
        message.raw_properties,
        topic=topic,
        queue_id=queue_id,
        store_host=message.store_host,
    )
    raw = encode_stored(
        part.envelope,
        part.entries[0],
        queue_offset=message.queue_offset,
        store_ms=message.store_ms,
    )
    _PLACE.pack_into(raw, PHYSICAL_OFFSET_AT, message.physical_offset)
    return bytes(raw)


def _copy(
    message: StoredMessage,
    properties: bytes,
    *,
    topic: Topic,
    queue_id: int,
    store_host: bytes,
    sys_flag: int | None = None,
    prepared_offset: int = 0,
) -> PlacedMessage:
    """Return a copy of *message*, whose body was not inflated, for another queue."""
    envelope = Envelope(
        topic,
        queue_id,
        message.born_host,
        store_host,
        sys_flag=message.sys_flag if sys_flag is None else sys_flag,
        born_ms=message.born_ms,
        reconsume_times=message.reconsume_times,
        prepared_offset=prepared_offset,
    )
    entry = BatchEntry(message.flag, message.body, storable_properties(properties))
    return PlacedMessage(envelope, [entry])


def _is_count(text: str) -> bool:
    return text.isascii() and text.isdigit() and len(text) < 13


def _count(text: str, *, otherwise: int) -> int:
    return int(text) if _is_count(text) else otherwise
