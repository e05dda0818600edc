"""Messages as a broker stores them, made from what a send brings. Pure. Layout: ``message.py``."""

from __future__ import annotations

import struct
import zlib
from typing import NamedTuple

from broker_core.errors import LocalProtocolError
from broker_core.names import MAX_NAME_CHARS, Topic
from broker_core.remoting.message import (
    CRC_MASK,
    MAGIC_V1,
    MAX_PROPERTIES_BYTES,
    RECORD_HEADS,
    SYS_BORN_V6,
    SYS_STORE_V6,
    SYS_V6,
)

_SHORT = struct.Struct(">h")


class BatchEntry(NamedTuple):
    """One message of a send request, as its producer encoded it."""

    flag: int
    body: bytes
    properties: bytes


class Envelope(NamedTuple):
    """What all messages of one send request share. Hosts are as ``encode_host`` gives them."""

    topic: Topic
    queue_id: int
    born_host: bytes
    store_host: bytes
    sys_flag: int = 0
    born_ms: int = 0
    reconsume_times: int = 0
    #: Which message this one takes the place of: the physical offset of a half message, or below 0
    #: the ``DelayedPlace.number`` of a delayed one. 0: of none.
    prepared_offset: int = 0


def encode_stored(
    envelope: Envelope, entry: BatchEntry, *, queue_offset: int, store_ms: int
) -> bytearray:
    """One stored message (V1). PHYSICALOFFSET is 0 until the commit log gives it its place.

    Properties always end with their separator here: recovery knows a torn message by that.
    Raises LocalProtocolError if topic or properties are longer than the layout has room for.
    """
    topic, body, properties = envelope.topic.encode(), entry.body, entry.properties
    if properties and not properties.endswith(b"\x02"):
        properties += b"\x02"
    if len(topic) > MAX_NAME_CHARS or len(properties) > MAX_PROPERTIES_BYTES:
        raise LocalProtocolError(
            f"topic of {len(topic)} bytes (at most {MAX_NAME_CHARS}) or properties of"
            f" {len(properties)} bytes (at most {MAX_PROPERTIES_BYTES}) too long to store"
        )
    born, store = envelope.born_host, envelope.store_host
    wide = (SYS_BORN_V6 if len(born) > 8 else 0) | (SYS_STORE_V6 if len(store) > 8 else 0)
    head = RECORD_HEADS[wide]
    tail = bytes((len(topic),)) + topic + _SHORT.pack(len(properties)) + properties
    message = bytearray(
        head.pack(
            head.size + len(body) + len(tail),
            MAGIC_V1,
            zlib.crc32(body) & CRC_MASK,
            envelope.queue_id,
            entry.flag,
            queue_offset,
            0,
            (envelope.sys_flag & ~SYS_V6) | wide,
            envelope.born_ms,
            born,
            store_ms,
            store,
            envelope.reconsume_times,
            envelope.prepared_offset,
            len(body),
        )
    )
    message += body
    message += tail
    return message
