"""The compressed body of 103, sent by RocketMQ's brokers with ``compressedRegister`` set. Pure.

zlib over: int32 length and JSON of the data version; int32 number of topics; for each one int32
length and ``name readQueues writeQueues perm filterType`` with blanks in between, in 5.x followed
by attributes; the rest (filter servers, queue mappings of static topics) is not read. All integers
are big-endian. Source: ``RegisterBrokerBody.encode`` and ``TopicConfig.encode`` (4.9.8 and 5.3.3).
"""

from __future__ import annotations

import struct
import zlib

from broker_core.errors import InvalidCommand
from broker_core.names import Topic
from broker_core.remoting.json_fields import JsonObject
from broker_core.remoting.route_bodies import BrokerRegistration, DataVersion, TopicConfig

#: Limit of an inflated body: about a million topics.
MAX_INFLATED_BYTES = 64 * 1024 * 1024

_INT32 = struct.Struct(">i")


def registration_from_compressed(data: bytes | memoryview) -> BrokerRegistration:
    """Read the body. Raise InvalidCommand that names the invalid part."""
    plain = _inflate(data)
    version, position = _take(plain, 0, "data version")
    if len(plain) - position < _INT32.size:
        raise InvalidCommand("compressed registration ends before its number of topics")
    (count,) = _INT32.unpack_from(plain, position)
    position += _INT32.size
    topics = {}
    for number in range(count):  # a wrong count reaches the end of the bytes
        text, position = _take(plain, position, f"topic {number} of {count}")
        config = _topic_of(text)
        topics[config.topic] = config
    return BrokerRegistration(
        topics=topics,
        version=DataVersion.from_fields(JsonObject.parse(version, "registration's dataVersion")),
    )


def _inflate(data: bytes | memoryview) -> bytes:
    inflater = zlib.decompressobj()
    try:
        plain = inflater.decompress(data, MAX_INFLATED_BYTES)
    except zlib.error as error:
        raise InvalidCommand(f"compressed registration is not zlib: {error}") from error
    if not inflater.eof:
        raise InvalidCommand(
            f"compressed registration ends within its zlib stream or takes more than"
            f" {MAX_INFLATED_BYTES} bytes"
        )
    return plain


def _take(plain: bytes, position: int, what: str) -> tuple[bytes, int]:
    """Return the bytes after the length at *position*, and their end."""
    start = position + _INT32.size
    if start <= len(plain):
        (length,) = _INT32.unpack_from(plain, position)
        if 0 <= length <= len(plain) - start:
            return plain[start : start + length], start + length
    raise InvalidCommand(f"compressed registration is cut short or garbled at its {what}")


def _topic_of(text: bytes) -> TopicConfig:
    try:
        name, read_queues, write_queues, perm, *_ = text.decode().split(" ", 4)
        numbers = {
            "readQueueNums": int(read_queues),
            "writeQueueNums": int(write_queues),
            "perm": int(perm),
        }
    except ValueError:
        raise InvalidCommand(
            f"compressed registration holds a topic {text[:80]!r}: expected name, read queues,"
            " write queues, perm and filter type"
        ) from None
    return TopicConfig.from_fields(JsonObject(numbers, f"topic {name[:80]!r}"), topic=Topic(name))
