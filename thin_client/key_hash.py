"""Texts of keys, and their hash (Java's ``String.hashCode``), which selects the queue. Pure.

This duplicates the broker client's code, which a thin client may not import; the vectors in
tests/conformance check both.
"""

from __future__ import annotations

import struct

#: Characters trimmed from both ends of a key, as by Java's ``String.trim``.
BLANKS = "".join(map(chr, range(0x21)))


def plain_key(text: str) -> str:
    """Return *text* without surrounding blanks; an empty result means no key."""
    return text.strip(BLANKS)


def key_text(key: bytes) -> str:
    """Return an order key as readable text, as operators' tools show it: UTF-8, or ``0x`` and hex
    if it is not valid UTF-8.
    """
    try:
        return key.decode()
    except UnicodeDecodeError:
        return "0x" + key.hex()


def key_hash(key: str) -> int:
    """Return Java's ``String.hashCode`` of *key*: signed 32 bits, over its UTF-16 units.

    The queue is the absolute value of its remainder by the number of queues.
    """
    value = 0
    for unit in key.encode() if key.isascii() else _utf16_units(key):
        value = (31 * value + unit) & 0xFFFFFFFF
    return value - (1 << 32) if value >= 1 << 31 else value


def _utf16_units(text: str) -> tuple[int, ...]:
    data = text.encode("utf-16-be", "surrogatepass")
    return struct.unpack(f">{len(data) // 2}H", data)
