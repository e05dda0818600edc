"""What a key is, and which queue it goes to: by Java's String.hashCode, as all producers. Pure."""

from __future__ import annotations

import struct

#: What is no part of a key at its ends, as for Java's ``String.trim``: the space, and all control
#: characters. Go's client of RocketMQ leaves a space behind the last of several keys, Java's none.
BLANKS = "".join(map(chr, range(0x21)))


def plain_key(text: str) -> str:
    """Return the key that *text* stands for: without the blanks around it. Empty: there is none."""
    return text.strip(BLANKS)


def java_hash(text: str) -> int:
    """Return Java's ``String.hashCode`` of *text*: signed 32 bits, over UTF-16 units."""
    value = 0
    for unit in text.encode() if text.isascii() else _utf16_units(text):
        value = (31 * value + unit) & 0xFFFFFFFF
    return value - 0x100000000 if value > 0x7FFFFFFF else value


def place_of(key: str | None) -> int | None:
    """Return the hash that chooses the queue of *key*; None without one, or of blanks alone."""
    plain = plain_key(key) if key is not None else ""
    return java_hash(plain) if plain else None


def queue_index(key: str, queues: int) -> int:
    """Return which of *queues* queues (> 0) *key* belongs to, as SelectMessageQueueByHash does.

    Java's remainder keeps the sign and is made positive afterwards, which is this.
    """
    return abs(java_hash(plain_key(key))) % queues


def _utf16_units(text: str) -> tuple[int, ...]:
    data = text.encode("utf-16-le", "surrogatepass")
    return struct.unpack(f"<{len(data) // 2}H", data)
