"""The code of a consume queue entry: the hash of the tag, or the due time.

Pulls filter by the hash without reading the log; in the topics of delayed messages the code is the
due time, as in RocketMQ's schedule queues. It depends on the stored message alone, so that recovery
can compute it.
"""

from __future__ import annotations

from broker_core.names import DELAY_TOPICS, Topic
from broker_core.remoting.delay_properties import DUE
from broker_core.store.tag_hash import tag_hash_of

_DUE = DUE.encode() + b"\x01"


def entry_code_of(topic: Topic, properties: bytes) -> int:
    """Return the code of a message with these encoded *properties*."""
    return due_ms_of(properties) if topic in DELAY_TOPICS else tag_hash_of(properties)


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
