"""Single fields of a stored record, found without decoding the rest. Pure.

For readers of many records that need little of each: filters and the key index. Layout and source:
``message.py``.
"""

from __future__ import annotations

import struct
from typing import NamedTuple

from broker_core.remoting.message import MAGIC_V2

_BODY_BYTES = struct.Struct(">i")
_LONG = struct.Struct(">q")
_SHORT = struct.Struct(">h")
_MAGIC = MAGIC_V2.to_bytes(4, "big")
_MAGIC_AT, _FLAGS_AT, _STORE_MS_AT, _BODY_BYTES_AT = 4, 39, 56, 84  # with hosts of IPv4
#: Additional bytes of IPv6 hosts, by the bits 0x10 (born) and 0x20 (store) of the flags.
_WIDER = {0x00: 0, 0x10: 12, 0x20: 12, 0x30: 24}


class RecordFields(NamedTuple):
    """Fields of a record; ``store_ms`` is since 1970."""

    topic: bytes
    properties: bytes
    store_ms: int


def fields_of(data: bytes, position: int = 0) -> RecordFields:
    """Return the fields of the whole record at *position*. Raise struct.error or IndexError
    otherwise.
    """
    flags = data[position + _FLAGS_AT]
    body_bytes_at = position + _BODY_BYTES_AT + _WIDER[flags & 0x30]
    topic_at = body_bytes_at + 4 + _BODY_BYTES.unpack_from(data, body_bytes_at)[0]
    if data[position + _MAGIC_AT : position + _MAGIC_AT + 4] == _MAGIC:
        (topic_bytes,) = _SHORT.unpack_from(data, topic_at)
        topic_at += 2
    else:
        topic_bytes = data[topic_at]
        topic_at += 1
    properties_at = topic_at + topic_bytes
    end = properties_at + 2 + _SHORT.unpack_from(data, properties_at)[0]
    (store_ms,) = _LONG.unpack_from(data, position + _STORE_MS_AT + (12 if flags & 0x10 else 0))
    return RecordFields(data[topic_at:properties_at], data[properties_at + 2 : end], store_ms)
