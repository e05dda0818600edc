"""The keys by which a message is found, and their hashes. Pure.

As in RocketMQ's brokers: UNIQ_KEY, and each word of KEYS, together with the topic, without
surrounding blanks. The hash is CRC-32, not RocketMQ's: Java's would take ten times as long here,
and no other program reads the index.
"""

from __future__ import annotations

import zlib

from broker_core.remoting.key_hash import BLANKS

_UNIQ_KEY, _KEYS = b"UNIQ_KEY", b"KEYS"
_BLANKS = BLANKS.encode()


def key_hash(topic: bytes, key: bytes) -> int:
    """Return a 32-bit hash of *key* of a message of *topic*; other keys may share it."""
    return zlib.crc32(key, zlib.crc32(b"#", zlib.crc32(topic)))


def hashes_of(topic: bytes, properties: bytes) -> list[int]:
    """Return the hashes of all keys in encoded *properties*, each once."""
    found = keys_of(properties)
    if not found:
        return []
    start = zlib.crc32(b"#", zlib.crc32(topic))
    if len(found) == 1:
        return [zlib.crc32(found[0], start)]
    return list({zlib.crc32(key, start) for key in found})


def keys_of(properties: bytes) -> list[bytes]:
    """Return all keys in encoded *properties*."""
    unique, others = _value(properties, _UNIQ_KEY), _value(properties, _KEYS)
    if not others:
        return [unique] if unique else []
    found = [others] if b" " not in others else [key for key in others.split(b" ") if key]
    return [unique, *found] if unique else found


def has_key(properties: bytes, key: bytes) -> bool:
    """Return whether *key* is one of the keys, which the hash alone does not prove."""
    return key in keys_of(properties)


def _value(properties: bytes, name: bytes) -> bytes:
    if properties.startswith(name + b"\x01"):
        start = len(name) + 1
    else:
        at = properties.find(b"\x02" + name + b"\x01")
        if at < 0:
            return b""
        start = at + len(name) + 2
    end = properties.find(b"\x02", start)
    return (properties[start:] if end < 0 else properties[start:end]).strip(_BLANKS)
