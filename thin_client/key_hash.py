"""What a key is, and which queue it goes to: by Java's ``String.hashCode``, as all producers. Pure.

The same as the broker client's, which a thin client may not import; tests/conformance holds the
vectors for both.
"""

from __future__ import annotations

import struct

#: What is no part of a key at its ends, as for Java's ``String.trim``.
BLANKS = "".join(map(chr, range(0x21)))


def plain_key(text: str) -> str:
    """Return the key that *text* stands for: without the blanks around it. Empty: there is none."""
    return text.strip(BLANKS)


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
