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

_SHORT = struct.Struct(">h")
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
    """Return one stored message (V1) with a PHYSICALOFFSET of 0. Raise as ``encode_run``."""
    pieces: list[bytes] = []
    encode_run(envelope, [entry], pieces, queue_offset=queue_offset, place=0, store_ms=store_ms)
    return bytearray().join(pieces)


def encode_run(
    envelope: Envelope,
    entries: Iterable[BatchEntry],
    pieces: list[bytes],
    *,
    queue_offset: int,
    place: int,
    store_ms: int,
) -> list[int]:
    """Append consecutive messages (V1) to *pieces*; return their sizes.

    The first one is at *place* in the log and at *queue_offset*. Properties always end with their
    separator and contain no sector of zeros, by which recovery detects a torn message. Raises
    LocalProtocolError if they have too many zeros in a row, or if they or the topic are longer than
    the layout allows.
    """
    topic = envelope.topic.encode()
    born, store = envelope.born_host, envelope.store_host
    wide = (SYS_BORN_V6 if len(born) > 8 else 0) | (SYS_STORE_V6 if len(store) > 8 else 0)
    sys_flag = envelope.sys_flag & ~SYS_V6 | wide
    pack, fixed = RECORD_HEADS[wide].pack, RECORD_HEADS[wide].size + 3 + len(topic)
    queue_id, born_ms, times = envelope.queue_id, envelope.born_ms, envelope.reconsume_times
    prepared, after_body = envelope.prepared_offset, bytes((len(topic) & 0xFF,)) + topic
    sizes: list[int] = []
    for flag, body, properties in entries:
        if properties and properties[-1] != 2:
            properties += b"\x02"
        if len(properties) > MAX_PROPERTIES_BYTES or len(topic) > MAX_NAME_CHARS:
            raise LocalProtocolError(
                f"topic of {len(topic)} bytes (at most {MAX_NAME_CHARS}) or properties of"
                f" {len(properties)} bytes (at most {MAX_PROPERTIES_BYTES}) too long to store"
            )
        if TOO_MANY_ZEROS in properties:
            raise LocalProtocolError(
                f"properties hold more than {MAX_ZEROS_IN_PROPERTIES} zero bytes in a row"
            )
        size = fixed + len(body) + len(properties)
        crc = zlib.crc32(body) & CRC_MASK
        pieces += (
            pack(
                *(size, MAGIC_V1, crc, queue_id, flag, queue_offset, place, sys_flag, born_ms),
                *(born, store_ms, store, times, prepared, len(body)),
            ),
            body,
            after_body,
            _SHORT.pack(len(properties)),
            properties,
        )
        sizes.append(size)
        queue_offset += 1
        place += size
    return sizes
