"""The body of a batch send: concatenated messages without positions. Pure.

Layout and source: ``message.py``.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Iterator

from broker_core.errors import RemoteProtocolError
from broker_core.remoting.message import Bytes, OutgoingMessage
from broker_core.remoting.record_encoding import BatchEntry

#: Before the body of an entry: its size, magic number, checksum, flag, and the size of the body.
HEAD = struct.Struct(">iIiii")
#: Between body and properties: the size of the properties.
BETWEEN = struct.Struct(">h")
#: Bytes of an entry besides its body and properties.
BESIDE_BYTES = HEAD.size + BETWEEN.size
_HEAD_BYTES = HEAD.size
#: Creates a named tuple in half the time of its constructor.
_new = tuple.__new__


def encode_batch(messages: Iterable[OutgoingMessage]) -> bytes:
    """Return the body of SEND_BATCH_MESSAGE (320); the messages must all go to one queue of a
    topic.

    Raises LocalProtocolError as ``encode_properties`` does.
    """
    parts: list[bytes] = []
    for message in messages:
        properties = message.encoded_properties()
        total = BESIDE_BYTES + len(message.body) + len(properties)
        parts += (
            HEAD.pack(total, 0, 0, message.flag, len(message.body)),
            message.body,
            BETWEEN.pack(len(properties)),
            properties,
        )
    return b"".join(parts)


def decode_batch(buffer: Bytes) -> list[BatchEntry]:
    """Inverse of ``encode_batch``. Raise RemoteProtocolError unless *buffer* consists of whole
    entries.
    """
    data = bytes(buffer)
    entries: list[BatchEntry] = []
    for flag, body_at, properties_at, end in entry_bounds(data):
        body, properties = data[body_at : properties_at - 2], data[properties_at:end]
        entries.append(_new(BatchEntry, (flag, body, properties)))
    return entries


def entry_bounds(data: bytes) -> Iterator[tuple[int, int, int, int]]:
    """Yield the flag of each entry, and where its body and its properties begin and where it ends.

    Raises RemoteProtocolError as ``decode_batch``.
    """
    head, between, size, position = HEAD.unpack_from, BETWEEN.unpack_from, len(data), 0
    try:
        while position < size:
            total, _, _, flag, body_bytes = head(data, position)
            properties_at = position + BESIDE_BYTES + body_bytes
            (properties_bytes,) = between(data, properties_at - 2)
            end = properties_at + properties_bytes
            if body_bytes < 0 or properties_bytes < 0 or end != position + total or end > size:
                raise RemoteProtocolError(
                    f"batch entry at byte {position}: size {total}, body {body_bytes} and"
                    f" properties {properties_bytes} do not fit together in {size} bytes"
                )
            yield flag, position + _HEAD_BYTES, properties_at, end
            position = end
    except struct.error as error:
        raise RemoteProtocolError(
            f"batch entry at byte {position} is cut short: {error}"
        ) from error
