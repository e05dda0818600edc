"""The keys by which a message is found, and their hashes. Pure.

As in RocketMQ's brokers: UNIQ_KEY, and each word of KEYS, together with the topic, without
surrounding blanks. The hash is CRC-32, not RocketMQ's: Java's would take ten times as long here,
and no other program reads the index.
"""

from __future__ import annotations

from itertools import repeat
from zlib import crc32

from broker_core.remoting.key_hash import BLANKS

_END = b"\x02"  # of a property
_UNIQ_KEY, _KEYS = _END + b"UNIQ_KEY\x01", _END + b"KEYS\x01"
_BLANKS = BLANKS.encode()


def key_hash(topic: bytes, key: bytes) -> int:
    """Return a 32-bit hash of *key* of a message of *topic*; other keys may share it."""
    return crc32(key, crc32(topic + b"#"))


def hashes_of(topic: bytes, properties: bytes) -> set[int]:
    """Return the hashes of all keys in encoded *properties*."""
    return set(map(crc32, keys_of(properties), repeat(crc32(topic + b"#"))))


def keys_of(properties: bytes) -> list[bytes]:
    """Return all keys in encoded *properties*."""
    properties = _END + properties
    unique = properties.partition(_UNIQ_KEY)[2].partition(_END)[0].strip(_BLANKS)
    others = properties.partition(_KEYS)[2].partition(_END)[0].strip(_BLANKS)
    found = [unique, *others.split(b" ")]
    return found if all(found) else list(filter(None, found))


def has_key(properties: bytes, key: bytes) -> bool:
    """Return whether *key* is one of the keys, which the hash alone does not prove."""
    return key in keys_of(properties)
