"""Stored records of every kind that brokers write, and the rows expected from bulk readers."""

from __future__ import annotations

import struct
import zlib
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

from broker_core.remoting.compression import LZ4, SYS_COMPRESSED
from broker_core.remoting.message import (
    MAGIC_V1,
    MAGIC_V2,
    UNIQ_KEY,
    StoredMessage,
    decode_message,
)
from proxy.downstream.port.requests import user_properties
from thin_client.key_hash import plain_key
from thin_client.spark.offsets import Slice

HOST_V4, HOST_V6 = bytes((127, 0, 0, 1, 0, 0, 0, 9)), bytes(range(20))
#: Compression flags for a type other than zlib.
OTHER_COMPRESSION = SYS_COMPRESSED | LZ4
_FIRST_MS, _PAST_LAST_MS = -62_135_596_800_000, 253_402_300_800_000


@dataclass(frozen=True, slots=True)
class Record:
    """One record; *body* and *properties* are stored unchanged."""

    offset: int
    body: bytes = b"body"
    properties: bytes = b"KEYS\x01key\x02UNIQ_KEY\x01id\x02"
    topic: str = field(default="orders", kw_only=True)
    magic: int = field(default=MAGIC_V1, kw_only=True)
    flags: int = field(default=0, kw_only=True)
    born_host: bytes = field(default=HOST_V4, kw_only=True)
    store_host: bytes = field(default=HOST_V4, kw_only=True)
    born_ms: int = field(default=1_600_000_000_000, kw_only=True)
    store_ms: int = field(default=1_600_000_000_001, kw_only=True)
    physical: int = field(default=77, kw_only=True)

    def encode(self) -> bytes:
        topic = self.topic.encode()
        wide = (len(self.born_host) > 8) * 0x10 | (len(self.store_host) > 8) * 0x20
        tail = (
            struct.pack(">iQ", 2, 0)
            + struct.pack(">i", len(self.body))
            + self.body
            + struct.pack(">h" if self.magic == MAGIC_V2 else ">b", len(topic))
            + topic
            + struct.pack(">h", len(self.properties))
            + self.properties
        )
        head = (
            struct.pack(
                ">IIiiqqi", self.magic, 0, 3, 0, self.offset, self.physical, self.flags | wide
            )
            + struct.pack(">q", self.born_ms)
            + self.born_host
            + struct.pack(">q", self.store_ms)
            + self.store_host
        )
        return struct.pack(">i", 4 + len(head) + len(tail)) + head + tail


def compressed(body: bytes) -> bytes:
    return zlib.compress(body)


def rows_owed(records: Iterable[bytes], part: Slice, *, headers: bool) -> list[dict[str, Any]]:
    """Return the rows that the proxy's decoder makes of *records*, as thin clients see them. Times
    in µs.
    """
    messages = (decode_message(record) for record in records)
    return [
        _row(message, part, headers=headers)
        for message in messages
        if part.start <= message.queue_offset < part.end
    ]


def _row(message: StoredMessage, part: Slice, *, headers: bool) -> dict[str, Any]:
    properties = message.properties
    row = {
        "key": plain_key(properties.get("KEYS", "")) or None,
        "value": message.body,
        "topic": part.topic,
        "qid": part.qid,
        "offset": message.queue_offset,
        "timestamp": _micros(message.store_ms),
        "bornTimestamp": _micros(message.born_ms),
        "tag": properties.get("TAGS"),
        "properties": list((user_properties(properties) or {}).items()),
        "messageId": properties.get(UNIQ_KEY) or message.offset_message_id,
    }
    if headers:
        own = user_properties(properties) or {}
        row["headers"] = [{"key": name, "value": text.encode()} for name, text in own.items()]
        row["headers"] = row["headers"] or None
    return row


def _micros(ms: int) -> int | None:
    return ms * 1000 if _FIRST_MS <= ms < _PAST_LAST_MS else None
