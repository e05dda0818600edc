"""Stored messages as a broker returns them, in one line each."""

from __future__ import annotations

import struct
from typing import Any

import orjson

from broker_core.names import Topic
from broker_core.remoting.message import (
    KEYS,
    PHYSICAL_OFFSET_AT,
    TAGS,
    StoredMessage,
    decode_message,
    encode_host,
    encode_properties,
)
from broker_core.remoting.record_encoding import BatchEntry, Envelope, encode_stored
from proxy.core.pipeline.intake import BESIDE_BYTES

TOPIC = Topic("orders")
_HOST = encode_host("127.0.0.1", 10911)


def message(
    offset: int,
    *,
    body: bytes = b"",
    key: str | None = None,
    tag: str | None = None,
    topic: Topic = TOPIC,
    queue_id: int = 0,
    sys_flag: int = 0,
    reconsume_times: int = 0,
    store_ms: int = 0,
    raw_properties: bytes | None = None,
    place: int | None = None,
    **others: str,
) -> StoredMessage:
    """Return the message at *offset* of its queue and at *place* of the log.

    *key* and *tag* are the properties KEYS and TAGS, with *others* beside them; *raw_properties*
    replaces all of them.
    """
    if raw_properties is None:
        given = {KEYS: key, TAGS: tag, **others}
        raw_properties = encode_properties({name: it for name, it in given.items() if it})
    envelope = Envelope(
        topic, queue_id, _HOST, _HOST, sys_flag=sys_flag, reconsume_times=reconsume_times
    )
    entry = BatchEntry(0, body, raw_properties)
    place = offset * 1000 if place is None else place
    return decode_message(_record(envelope, entry, offset, place, store_ms=store_ms))


def json_message(offset: int, document: Any, *, tag: str | None = None) -> StoredMessage:
    """Return a message whose body is *document* as JSON."""
    return message(offset, body=orjson.dumps(document), tag=tag)


def keyed(offset: int, key: str, *, tag: str | None = None) -> StoredMessage:
    """Return a message of order key *key* under the rule ``KEY``, with a body of three bytes."""
    return message(offset, body=b"xyz", key=key, tag=tag)


def held_bytes(message: StoredMessage, key: str | None) -> int:
    """Return the memory that *message*, of that order key, uses in a proxy."""
    beside = len(message.raw_properties) + len((key or "").encode())
    return BESIDE_BYTES + len(message.body) + beside


def record(message: StoredMessage) -> bytes:
    """Return *message* as its broker's log stores it."""
    envelope = Envelope(
        message.topic,
        message.queue_id,
        message.born_host,
        message.store_host,
        sys_flag=message.sys_flag,
        born_ms=message.born_ms,
        reconsume_times=message.reconsume_times,
    )
    entry = BatchEntry(message.flag, message.body, message.raw_properties)
    return _record(
        envelope, entry, message.queue_offset, message.physical_offset, store_ms=message.store_ms
    )


def _record(
    envelope: Envelope, entry: BatchEntry, offset: int, place: int, *, store_ms: int = 0
) -> bytes:
    stored = encode_stored(envelope, entry, queue_offset=offset, store_ms=store_ms)
    struct.pack_into(">q", stored, PHYSICAL_OFFSET_AT, place)
    return bytes(stored)
