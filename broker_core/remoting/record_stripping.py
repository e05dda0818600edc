"""Stored records without bodies, for readers of keys, properties and times. Pure."""

from __future__ import annotations

import struct

from broker_core.errors import RemoteProtocolError
from broker_core.remoting.compression import SYS_COMPRESSED
from broker_core.remoting.message import FIXED_BYTES

_INT = struct.Struct(">i")
_CRC_AT, _FLAGS_AT, _BODY_BYTES_AT = 8, 36, 84
_BORN_V6, _STORE_V6, _WIDER = 0x10, 0x20, 12
_NONE = bytes(4)


def without_bodies(records: bytes) -> bytes:
    """Return *records* with empty bodies that state no checksum.

    The checksum of a record as a whole is left as it is, and is wrong then. Raises
    RemoteProtocolError for incomplete records.
    """
    parts: list[bytes] = []
    at, end = 0, len(records)
    while at < end:
        size = _INT.unpack_from(records, at)[0] if at + FIXED_BYTES <= end else 0
        if size < FIXED_BYTES or at + size > end:
            raise RemoteProtocolError(f"an incomplete record at byte {at} of {end}")
        flags = _INT.unpack_from(records, at + _FLAGS_AT)[0]
        wide = (flags & _BORN_V6 != 0) + (flags & _STORE_V6 != 0)
        body_bytes_at = at + _BODY_BYTES_AT + wide * _WIDER
        body_bytes = _INT.unpack_from(records, body_bytes_at)[0]
        body_end = body_bytes_at + 4 + body_bytes
        if body_bytes < 0 or body_end > at + size:
            raise RemoteProtocolError(f"a body of {body_bytes} bytes at byte {at} of {end}")
        parts += (
            _INT.pack(size - body_bytes),
            records[at + 4 : at + _CRC_AT],
            _NONE,
            records[at + _CRC_AT + 4 : at + _FLAGS_AT],
            _INT.pack(flags & ~SYS_COMPRESSED),
            records[at + _FLAGS_AT + 4 : body_bytes_at],
            _NONE,
            records[body_end : at + size],
        )
        at += size
    return b"".join(parts)
