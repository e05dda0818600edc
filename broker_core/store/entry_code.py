"""The code of a consume queue entry: the hash of the tag, or the due time.

Pulls filter by the hash without reading the log; in the topics of delayed messages the code is the
due time, as in RocketMQ's schedule queues. It depends on the stored message alone, so that recovery
can compute it.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache

from broker_core.names import DELAY_TOPICS, Topic
from broker_core.remoting.delay_properties import DUE
from broker_core.remoting.key_hash import java_hash

_TAGS = b"TAGS\x01"
_DUE = DUE.encode() + b"\x01"


def entry_code_of(topic: Topic, properties: bytes) -> int:
    """Return the code of a message with these encoded *properties*."""
    return due_ms_of(properties) if topic in DELAY_TOPICS else tag_hash_of(properties)


def entry_codes_of(topic: Topic, those: Sequence[bytes]) -> list[int]:
    """Return the code of each of *those* encoded properties."""
    if topic in DELAY_TOPICS:
        return list(map(due_ms_of, those))
    if _TAGS not in b"".join(those):  # one search for all: most topics have no tags
        return [0] * len(those)
    return list(map(tag_hash_of, those))


def due_ms_of(properties: bytes) -> int:
    """Return the due time of a message in a delay topic; 0 if it has none."""
    if properties.startswith(_DUE):
        start = len(_DUE)
    elif (at := properties.find(b"\x02" + _DUE)) >= 0:
        start = at + 1 + len(_DUE)
    else:
        return 0
    text = properties[start : properties.find(b"\x02", start)]
    return int(text) if text.isdigit() and len(text) < 19 else 0


def tag_hash_of(properties: bytes) -> int:
    """Return Java's hash of the tag in encoded *properties*, without decoding others; 0: no tag."""
    if properties.startswith(_TAGS):
        start = len(_TAGS)
    elif (at := properties.find(b"\x02" + _TAGS)) >= 0:
        start = at + 1 + len(_TAGS)
    else:
        return 0
    end = properties.find(b"\x02", start)
    return _java_hash(properties[start:] if end < 0 else properties[start:end])


@lru_cache(maxsize=4096)
def _java_hash(tag: bytes) -> int:
    return java_hash(tag.decode("utf-8", "backslashreplace"))
