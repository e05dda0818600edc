"""The hash of a message's tag, by which consume queues filter: Java's, 0 without a tag."""

from __future__ import annotations

from functools import lru_cache

from broker_core.remoting.key_hash import java_hash

_NAME = b"TAGS\x01"


def tag_hash_of(properties: bytes) -> int:
    """Return the hash of the tag in encoded *properties*, without decoding the others."""
    if properties.startswith(_NAME):
        start = len(_NAME)
    elif (at := properties.find(b"\x02" + _NAME)) >= 0:
        start = at + 1 + len(_NAME)
    else:
        return 0
    end = properties.find(b"\x02", start)
    return _hash(properties[start:] if end < 0 else properties[start:end])


@lru_cache(maxsize=4096)
def _hash(tag: bytes) -> int:
    return java_hash(tag.decode("utf-8", "backslashreplace"))
