"""Which queue a key goes to: Java's String.hashCode, so that all producers agree. Pure."""

from __future__ import annotations

import struct


def java_hash(text: str) -> int:
    """Return Java's ``String.hashCode`` of *text*: signed 32 bits, over UTF-16 units."""
    value = 0
    for unit in text.encode() if text.isascii() else _utf16_units(text):
        value = (31 * value + unit) & 0xFFFFFFFF
    return value - 0x100000000 if value > 0x7FFFFFFF else value


def queue_index(key: str, queues: int) -> int:
    """Return which of *queues* queues (> 0) *key* belongs to, as SelectMessageQueueByHash does.

    Java's remainder keeps the sign and is made positive afterwards, which is this.
    """
    return abs(java_hash(key)) % queues


def _utf16_units(text: str) -> tuple[int, ...]:
    data = text.encode("utf-16-le", "surrogatepass")
    return struct.unpack(f"<{len(data) // 2}H", data)
