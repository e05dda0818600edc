"""Message keys and the queue they belong to: Java's String.hashCode, as in all producers. Pure."""

from __future__ import annotations

import struct

#: Characters removed at both ends of a key, as by Java's ``String.trim``: space and all control
#: characters. RocketMQ's Go client adds a space after the last of several keys, Java's does not.
BLANKS = "".join(map(chr, range(0x21)))


def plain_key(text: str) -> str:
    """Return the key in *text*, without surrounding blanks. Empty: no key."""
    return text.strip(BLANKS)


def java_hash(text: str) -> int:
    """Return Java's ``String.hashCode`` of *text*: signed 32 bits, over UTF-16 units."""
    value = 0
    for unit in text.encode() if text.isascii() else _utf16_units(text):
        value = (31 * value + unit) & 0xFFFFFFFF
    return value - 0x100000000 if value > 0x7FFFFFFF else value


def place_of(key: str | None) -> int | None:
    """Return the hash that chooses the queue of *key*; None without one, or of blanks only."""
    plain = plain_key(key) if key is not None else ""
    return java_hash(plain) if plain else None


def queue_index(key: str, queues: int) -> int:
    """Return the queue index of *key* among *queues* (> 0), like SelectMessageQueueByHash.

    Java's remainder keeps the sign and is made positive afterwards, which is equal to this.
    """
    return abs(java_hash(plain_key(key))) % queues


def _utf16_units(text: str) -> tuple[int, ...]:
    data = text.encode("utf-16-le", "surrogatepass")
    return struct.unpack(f"<{len(data) // 2}H", data)
