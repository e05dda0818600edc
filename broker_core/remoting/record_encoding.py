"""Encodes the messages of a send in the stored form. Pure. Layout: ``message.py``."""

from __future__ import annotations

import struct
import zlib
from collections.abc import Iterable
from typing import NamedTuple

from broker_core.errors import LocalProtocolError
from broker_core.names import MAX_NAME_CHARS, Topic
from broker_core.remoting.message import (
    CRC_MASK,
    MAGIC_V1,
    MAX_PROPERTIES_BYTES,
    MAX_ZEROS_IN_PROPERTIES,
    RECORD_HEADS,
    SYS_BORN_V6,
    SYS_STORE_V6,
    SYS_V6,
)
from broker_core.remoting.record_checksum import (
    CHECKSUM_BYTES,
    SYS_CHECKED,
    checksum_property,
    has_checksum,
)

_SHORT = struct.Struct(">h")
MAX_CHECKED_BYTES = MAX_PROPERTIES_BYTES - CHECKSUM_BYTES
TOO_MANY_ZEROS = bytes(MAX_ZEROS_IN_PROPERTIES + 1)


class BatchEntry(NamedTuple):
    """One message of a send request, as its producer encoded it."""

    flag: int
    body: bytes
    properties: bytes


class Envelope(NamedTuple):
    """Common fields of all messages of one send request. Hosts are as ``encode_host`` returns
    them.
    """

    topic: Topic
    queue_id: int
    born_host: bytes
    store_host: bytes
    sys_flag: int = 0
    born_ms: int = 0
    reconsume_times: int = 0
    #: The message that this one replaces: the physical offset of a half message, or below 0 the
    #: ``DelayedPlace.number`` of a delayed one. 0: none.
    prepared_offset: int = 0


def encode_stored(
    envelope: Envelope, entry: BatchEntry, *, queue_offset: int, store_ms: int
) -> bytearray:
    """Return one stored message (V1) with a PHYSICALOFFSET of 0 and no checksum of the record.

    Raises as ``encode_run``.
    """
    pieces: list[bytes] = []
    encode_run(
        envelope,
        [entry],
        pieces,
        queue_offset=queue_offset,
        place=0,
        store_ms=store_ms,
        checked=False,
    )
    return bytearray().join(pieces)


def encode_run(
    envelope: Envelope,
    entries: Iterable[BatchEntry],
    pieces: list[bytes],
    *,
    queue_offset: int,
    place: int,
    store_ms: int,
    checked: bool = True,
) -> list[int]:
    """Append consecutive messages (V1) to *pieces*; return their sizes.

    The first one is at *place* in the log and at *queue_offset*. Properties always end with their
    separator and contain no sector of zeros, by which recovery detects a torn message. *checked*:
    each ends with a checksum of the record, unless its properties leave no room for it. Raises
    LocalProtocolError if they have too many zeros in a row, if they or the topic are longer than
    the layout allows, or if they end with a checksum of their own in place of the broker's.
    """
    topic = envelope.topic.encode()
    born, store = envelope.born_host, envelope.store_host
    wide = (SYS_BORN_V6 if len(born) > 8 else 0) | (SYS_STORE_V6 if len(store) > 8 else 0)
    plain_flag = envelope.sys_flag & ~(SYS_V6 | SYS_CHECKED) | wide
    pack, fixed = RECORD_HEADS[wide].pack, RECORD_HEADS[wide].size + 3 + len(topic)
    crc32, short = zlib.crc32, _SHORT.pack
    # Below this length neither a limit nor a run of zeros needs a look.
    unsuspicious = MAX_ZEROS_IN_PROPERTIES if len(topic) <= MAX_NAME_CHARS else -1
    queue_id, born_ms, times = envelope.queue_id, envelope.born_ms, envelope.reconsume_times
    prepared, after_body = envelope.prepared_offset, bytes((len(topic) & 0xFF,)) + topic
    sizes: list[int] = []
    for flag, body, properties in entries:
        if properties and properties[-1] != 2:
            properties += b"\x02"
        after_topic = len(properties)
        if after_topic > unsuspicious:
            _check_storable(topic, properties)
        body_bytes = len(body)
        size, sys_flag = fixed + body_bytes + after_topic, plain_flag
        is_checked = checked and after_topic <= MAX_CHECKED_BYTES
        if is_checked:
            size, sys_flag = size + CHECKSUM_BYTES, sys_flag | SYS_CHECKED
            after_topic += CHECKSUM_BYTES
        elif has_checksum(properties, len(properties)):
            raise LocalProtocolError("properties end with __CRC32#, which is the broker's own")
        # Arguments one by one: a tuple of them would be built for each message.
        # fmt: off
        head = pack(
            size, MAGIC_V1, crc32(body) & CRC_MASK, queue_id, flag, queue_offset, place, sys_flag,
            born_ms, born, store_ms, store, times, prepared, body_bytes,
        )
        # fmt: on
        end = after_body + short(after_topic) + properties
        if is_checked:
            end += checksum_property(crc32(end, crc32(body, crc32(head))))
        pieces += (head, body, end)
        sizes.append(size)
        queue_offset += 1
        place += size
    return sizes


def _check_storable(topic: bytes, properties: bytes) -> None:
    """Raise LocalProtocolError if the layout has no room for them, or for too many zeros."""
    if len(properties) > MAX_PROPERTIES_BYTES or len(topic) > MAX_NAME_CHARS:
        raise LocalProtocolError(
            f"topic of {len(topic)} bytes (at most {MAX_NAME_CHARS}) or properties of"
            f" {len(properties)} bytes (at most {MAX_PROPERTIES_BYTES}) too long to store"
        )
    if TOO_MANY_ZEROS in properties:
        raise LocalProtocolError(
            f"properties hold more than {MAX_ZEROS_IN_PROPERTIES} zero bytes in a row"
        )
