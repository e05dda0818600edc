"""Stored messages as a broker would give them, in one line each."""

from __future__ import annotations

import struct
from typing import Any

import orjson

from broker_core.names import Topic
from broker_core.remoting.message import (
    KEYS,
    PHYSICAL_OFFSET_AT,
    TAGS,
    BatchEntry,
    Envelope,
    StoredMessage,
    encode_host,
    encode_properties,
    encode_stored,
)

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
    **others: str,
) -> StoredMessage:
    """The message at *offset* of its queue; *key* and *tag* are the properties KEYS and TAGS, and
    there may be *others*.
    """
    given = {KEYS: key, TAGS: tag, **others}
    properties = {name: value for name, value in given.items() if value is not None}
    return StoredMessage(
        topic=topic,
        queue_id=queue_id,
        queue_offset=offset,
        physical_offset=offset * 1000,
        born_ms=0,
        store_ms=0,
        body=body,
        body_is_compressed=False,
        reconsume_times=0,
        flag=0,
        sys_flag=0,
        size=100 + len(body),
        born_host=_HOST,
        store_host=_HOST,
        raw_properties=encode_properties(properties),
    )


def json_message(offset: int, document: Any, *, tag: str | None = None) -> StoredMessage:
    """A message whose body is *document* as JSON."""
    return message(offset, body=orjson.dumps(document), tag=tag)


def keyed(offset: int, key: str, *, tag: str | None = None) -> StoredMessage:
    """A message of order key *key* under the rule ``KEY``, with a body of three bytes."""
    return message(offset, body=b"xyz", key=key, tag=tag)


def record(message: StoredMessage) -> bytes:
    """*message* as its broker's log has it."""
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
    stored = encode_stored(
        envelope, entry, queue_offset=message.queue_offset, store_ms=message.store_ms
    )
    struct.pack_into(">q", stored, PHYSICAL_OFFSET_AT, message.physical_offset)
    return bytes(stored)
