"""The body of a batch send: concatenated messages without positions. Pure.

Layout and source: ``message.py``.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable

from broker_core.errors import RemoteProtocolError
from broker_core.remoting.message import Bytes, OutgoingMessage
from broker_core.remoting.record_encoding import BatchEntry

_HEAD = struct.Struct(">iIiii")  # total, magic, crc, flag, body length
_SHORT = struct.Struct(">h")


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
    entries = []
    position = 0
    while position < len(data):
        try:
            total, _, _, flag, body_bytes = _HEAD.unpack_from(data, position)
            body_at = position + _HEAD.size
            properties_at = body_at + body_bytes + 2
            (properties_bytes,) = _SHORT.unpack_from(data, properties_at - 2)
        except struct.error as error:
            raise RemoteProtocolError(
                f"batch entry at byte {position} is cut short: {error}"
            ) from error
        end = properties_at + properties_bytes
        if body_bytes < 0 or properties_bytes < 0 or end != position + total or end > len(data):
            raise RemoteProtocolError(
                f"batch entry at byte {position}: size {total}, body {body_bytes} and properties"
                f" {properties_bytes} do not fit together in {len(data)} bytes"
            )
        entries.append(BatchEntry(flag, data[body_at : properties_at - 2], data[properties_at:end]))
        position = end
    return entries
