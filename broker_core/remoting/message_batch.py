"""The body of a batch send: concatenated messages without positions. Pure.

Layout and source: ``message.py``.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Iterator

from broker_core.errors import RemoteProtocolError
from broker_core.remoting.message import Bytes, OutgoingMessage
from broker_core.remoting.record_encoding import BatchEntry

_HEAD = struct.Struct(">iIiii")  # total, magic, crc, flag, body length
_SHORT = struct.Struct(">h")
_HEAD_BYTES = _HEAD.size
#: Bytes of an entry besides its body and properties.
_BESIDE_BYTES = _HEAD_BYTES + _SHORT.size
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
        total = _HEAD.size + len(message.body) + 2 + len(properties)
        parts += (
            _HEAD.pack(total, 0, 0, message.flag, len(message.body)),
            message.body,
            _SHORT.pack(len(properties)),
            properties,
        )
    return b"".join(parts)


def decode_batch(buffer: Bytes) -> list[BatchEntry]:
    """Inverse of ``encode_batch``. Raise RemoteProtocolError unless *buffer* consists of whole
    entries.
    """
    data = bytes(buffer)
    entries: list[BatchEntry] = []
    for flag, body_at, properties_at, end in frames_of(data):
        body, properties = data[body_at : properties_at - 2], data[properties_at:end]
        entries.append(_new(BatchEntry, (flag, body, properties)))
    return entries


def frames_of(data: bytes) -> Iterator[tuple[int, int, int, int]]:
    """Yield the flag of each entry, and where its body and its properties begin and where it ends.

    A length of two bytes is between body and properties. Raises RemoteProtocolError as
    ``decode_batch``.
    """
    head, short, size, position = _HEAD.unpack_from, _SHORT.unpack_from, len(data), 0
    try:
        while position < size:
            total, _, _, flag, body_bytes = head(data, position)
            properties_at = position + _BESIDE_BYTES + body_bytes
            (properties_bytes,) = short(data, properties_at - 2)
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
