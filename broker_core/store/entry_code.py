"""What a consume queue notes of a message beside its place: by this it is found without the log.

The hash of its tag, by which pulls filter; in the topics of delayed messages the time it is due, as
RocketMQ's schedule queues have it. Computed from the stored message alone, so that recovery can.
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
    """When a message in a delay topic is due; 0 if it does not say so."""
    if properties.startswith(_DUE):
        start = len(_DUE)
    elif (at := properties.find(b"\x02" + _DUE)) >= 0:
        start = at + 1 + len(_DUE)
    else:
        return 0
    text = properties[start : properties.find(b"\x02", start)]
    return int(text) if text.isdigit() and len(text) < 19 else 0
