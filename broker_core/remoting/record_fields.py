"""Single fields of a stored record, found without decoding the rest. Pure.

For readers of many records that need little of each: filters and the key index. Layout and source:
``message.py``.
"""

from __future__ import annotations

from struct import Struct

from broker_core.remoting.message import MAGIC_V2, RECORD_HEADS, SYS_V6

#: Magic, flags, store time, length of the body; the last two are right only if both hosts are IPv4.
_HEAD = Struct(">4xI28xi16xq20xi")
_SHORT = Struct(">h")


def fields_of(data: bytes, position: int = 0) -> tuple[bytes, bytes, int]:
    """Return topic, properties and store time, in ms since 1970, of the whole record at *position*.

    Raise struct.error or IndexError otherwise.
    """
    magic, flags, store_ms, body_bytes = _HEAD.unpack_from(data, position)
    head_bytes = _HEAD.size
    if hosts := flags & SYS_V6:
        head_bytes = RECORD_HEADS[hosts].size
        *_, store_ms, _, _, _, body_bytes = RECORD_HEADS[hosts].unpack_from(data, position)
    topic_at = position + head_bytes + body_bytes
    if magic == MAGIC_V2:
        (topic_bytes,) = _SHORT.unpack_from(data, topic_at)
        topic_at += 2
    else:
        topic_bytes = data[topic_at]
        topic_at += 1
    topic_end = topic_at + topic_bytes
    properties_at = topic_end + 2
    end = properties_at + _SHORT.unpack_from(data, topic_end)[0]
    return data[topic_at:topic_end], data[properties_at:end], store_ms
