"""The offsets of many queues of a topic by one request; an extension, unknown to RocketMQ. Pure.

The answer's body has an entry per queue, big-endian: the offset of its oldest message, its end,
and the committed offset (-1: none, or no group was named).
"""

from __future__ import annotations

import struct
from collections.abc import Iterable
from dataclasses import dataclass
from typing import NamedTuple

from broker_core.errors import RemoteProtocolError
from broker_core.remoting.header_fields import Header, Int32

#: Most queues of a request: a broker answers it within a few milliseconds.
MAX_QUEUES = 1_024
_ENTRY = struct.Struct(">qqq")


@dataclass(frozen=True, slots=True, kw_only=True)
class ReadRangesHeader(Header):
    """Code 7114: *count* queues of *topic* from *queue_id* on; *consumer_group*: whose committed
    offsets to return, None for none.
    """

    topic: str
    queue_id: Int32
    count: Int32
    consumer_group: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ReadRangesResponse(Header):
    """Answer to 7114: the life of the topic; None if it does not exist."""

    life: int | None = None


class RangeEntry(NamedTuple):
    """The offsets of one queue."""

    begin: int
    end: int
    committed: int | None = None


def ranges_to_bytes(entries: Iterable[RangeEntry]) -> bytes:
    """Return the body of an answer."""
    return b"".join(
        _ENTRY.pack(begin, end, -1 if committed is None else committed)
        for begin, end, committed in entries
    )


def ranges_from_bytes(body: bytes | memoryview, count: int) -> list[RangeEntry]:
    """Return the entries of an answer for *count* queues. Raise RemoteProtocolError."""
    if len(body) != count * _ENTRY.size:
        raise RemoteProtocolError(
            f"an answer of {len(body)} bytes for {count} queues: expected {count * _ENTRY.size}"
        )
    return [
        RangeEntry(begin, end, None if committed < 0 else committed)
        for begin, end, committed in _ENTRY.iter_unpack(body)
    ]
