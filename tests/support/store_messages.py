"""Messages for tests of the store and the broker."""

from __future__ import annotations

import struct
from collections.abc import Sequence

from broker_core.names import Topic
from broker_core.remoting.message import PHYSICAL_OFFSET_AT, encode_host, encode_properties
from broker_core.remoting.record_encoding import BatchEntry, Envelope, encode_stored
from broker_core.store.commit_log import CommitLog

HOST = encode_host("127.0.0.1", 10911)
TOPIC = Topic("orders")


def envelope(queue_id: int = 0, topic: str = TOPIC) -> Envelope:
    return Envelope(Topic(topic), queue_id, HOST, HOST, born_ms=1)


def entry(body: bytes = b"body", *, key: str = "", tag: str = "") -> BatchEntry:
    return BatchEntry(0, body, encode_properties({"KEYS": key, "TAGS": tag}))


def stored(body: bytes = b"body", *, queue_id: int = 0, offset: int = 0) -> bytearray:
    return encode_stored(envelope(queue_id), entry(body, key="k"), queue_offset=offset, store_ms=5)


def append_to(log: CommitLog, messages: Sequence[bytearray]) -> list[int]:
    """Write stored messages in one write and return them with their places."""
    place, places = log.make_room(sum(map(len, messages))), []
    for message in messages:
        struct.pack_into(">q", message, PHYSICAL_OFFSET_AT, place)
        places.append(place)
        place += len(message)
    log.write(b"".join(messages))
    return places
