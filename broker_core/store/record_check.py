"""Verification of records of the log, and the search for the next intact one behind damage. Pure.

A record is *intact* if it names the place where it is, its parts add up, and its checksum is right.
Records of earlier versions have a checksum of their body only: of these, head, topic and properties
are checked as far as possible.
"""

from __future__ import annotations

import re
import zlib
from collections.abc import Sequence
from dataclasses import dataclass
from struct import Struct

from broker_core.errors import RemoteProtocolError
from broker_core.names import Topic
from broker_core.remoting.message import (
    CRC_MASK,
    FIXED_BYTES,
    MAGIC_BLANK,
    MAGIC_V1,
    MAGIC_V2,
    MAX_ZEROS_IN_PROPERTIES,
    SYS_V6,
    StoredMessage,
    decode_message,
)
from broker_core.remoting.record_checksum import (
    NAMED,
    SYS_CHECKED,
    has_checksum,
    is_checksum_right,
)

_MAGICS = (MAGIC_V1, MAGIC_V2)
#: Size, magic, queue id, queue offset, place, flags, length of the body with hosts of IPv4.
_HEAD = Struct(">iI4xi4xqqi44xi")
_INT = Struct(">i")
_WIDER = {0x00: 0, 0x10: 12, 0x20: 12, 0x30: 24}
_USUAL = SYS_CHECKED | SYS_V6
_SECTOR_BYTES = 512  # unit that a disk writes completely
_LONG_ZEROS = re.compile(rb"\0{%d,}" % (MAX_ZEROS_IN_PROPERTIES + 1))
_MAGIC_AT = re.compile(
    b"|".join(re.escape(magic.to_bytes(4, "big")) for magic in (*_MAGICS, MAGIC_BLANK))
)


class NotIntact(Exception):
    """A record is damaged; the text is the reason, a clause without its place."""


@dataclass(frozen=True, slots=True)
class Expected:
    """The record that an index entry names."""

    topic: bytes
    queue_id: int


def intact_message(data: bytes, position: int, *, place: int, segment_start: int) -> StoredMessage:
    """Return the record at *position* of *data*, its body as stored. Raise NotIntact.

    *place* is its offset in the log, *segment_start* that of its segment.
    """
    try:
        message = decode_message(data, position, check_crc=True, plain=False)
    except RemoteProtocolError:
        raise NotIntact(
            "the message is cut short, or its content does not match its checksum"
        ) from None
    end = position + message.size
    # A flipped flag must not turn a record with a checksum into one without.
    if has_checksum(data, end):
        if not is_checksum_right(data, position, end):
            raise NotIntact("the message does not match its checksum")
        lacks_checksum = False
    else:
        lacks_checksum = True
    if is_garbled(message, place, segment_start=segment_start, by_sectors=lacks_checksum):
        raise NotIntact("the head, topic or properties of the message are garbled")
    return message


def first_damage(
    data: bytes,
    expected: Expected,
    offsets: Sequence[int],
    places: Sequence[int],
    sizes: Sequence[int],
) -> tuple[int, str] | None:
    """Return index and reason of the first of the records in *data* that is not what its index
    entry names; None if all are.

    One loop for the usual records, with literal positions: each message of a pull passes here.
    """
    queue_id, head_at, crc32, named = expected.queue_id, _HEAD.unpack_from, zlib.crc32, NAMED
    topic = bytes((len(expected.topic),)) + expected.topic
    width, total = len(topic), len(data)
    position = 0
    for at, (offset, place, size) in enumerate(zip(offsets, places, sizes, strict=True)):
        end = position + size
        if size >= FIXED_BYTES and end <= total:
            found, magic, queue, number, found_place, flags, body_bytes = head_at(data, position)
            topic_at, tail_at = position + 88 + body_bytes, end - 20
            crc = crc32(data[position:tail_at]) & CRC_MASK
            if (
                found == size
                and number == offset
                and found_place == place
                and queue == queue_id
                and magic == MAGIC_V1
                and flags & _USUAL == SYS_CHECKED
                and data[topic_at : topic_at + width] == topic
                # as checksum_property, which would be another call
                and data[tail_at:end] == named + (b"%010d" % crc)[::-1] + b"\x02"
            ):
                position = end
                continue
        reason = find_damage(data, position, expected, offset=offset, place=place, size=size)
        if reason is not None:
            return at, reason
        position = end
    return None


def find_damage(
    data: bytes, position: int, expected: Expected, *, offset: int, place: int, size: int
) -> str | None:
    """Return why the record at *position* is not the one that an index entry names, or None.

    *offset*, *place* and *size* are the entry's.
    """
    end = position + size
    if size < FIXED_BYTES or end > len(data):
        return "the index entry names no whole message"
    found_size, magic, queue_id, queue_offset, found_place, flags, body_bytes = _HEAD.unpack_from(
        data, position
    )
    if (found_size, queue_offset, found_place, queue_id) != (
        size,
        offset,
        place,
        expected.queue_id,
    ) or magic not in _MAGICS:
        return "the bytes there are not the message that the index entry names"
    checked = flags & SYS_CHECKED or has_checksum(data, end)
    if checked and not is_checksum_right(data, position, end):
        return "the message does not match its checksum"
    body_at = position + _HEAD.size
    if flags & SYS_V6:
        body_at += _WIDER[flags & SYS_V6]
        (body_bytes,) = _INT.unpack_from(data, body_at - 4)
    topic_at = body_at + body_bytes + (1 if magic == MAGIC_V1 else 2)
    topic_end = topic_at + len(expected.topic)
    if (
        body_bytes < 0
        or data[topic_at:topic_end] != expected.topic
        or data[topic_at - 1] != len(expected.topic)
    ):
        return "the bytes there are a message of another topic"
    if checked:
        return None
    try:
        message = decode_message(data, position, check_crc=True, plain=False)
    except RemoteProtocolError:
        return "the message's body does not match its checksum"
    garbled = is_garbled(message, place, segment_start=place, by_sectors=False)
    return "the head or properties of the message are garbled" if garbled else None


def is_garbled(
    message: StoredMessage, position: int, *, segment_start: int, by_sectors: bool = True
) -> bool:
    """Return whether head, topic or properties are invalid, where no checksum covers them.

    A power failure leaves zeros in sectors; no topic contains zeros.
    """
    properties = message.raw_properties
    return (
        message.physical_offset != position
        or message.queue_id < 0
        or message.queue_offset < 0
        or not message.topic
        or "\0" in message.topic
        or "/" in message.topic
        or (bool(properties) and not properties.endswith(b"\x02"))
        or (
            by_sectors
            and len(properties) > MAX_ZEROS_IN_PROPERTIES
            and _lacks_sectors(properties, end=position + message.size - segment_start)
        )
    )


def _lacks_sectors(properties: bytes, *, end: int) -> bool:
    """Return whether zeros replace whole sectors of the file, where *properties* end at *end*.

    Zeros that begin or end inside a sector were sent: long runs of them were accepted once.
    """
    # The byte before them may be zero as well: the low one of their length.
    tail = bytes((len(properties) & 0xFF,)) + properties
    start = end - len(tail)
    return any(
        (start + zeros.start()) % _SECTOR_BYTES == 0 == (start + zeros.end()) % _SECTOR_BYTES
        for zeros in _LONG_ZEROS.finditer(tail)
    )


def next_candidate(data: bytes, position: int) -> int | None:
    """Return the first position from *position* on where a record or filler may start, or None."""
    found = _MAGIC_AT.search(data, position + 4)
    return None if found is None else found.start() - 4


def damaged_record(
    data: bytes, position: int, size: int, *, topics: dict[bytes, Topic]
) -> tuple[Topic, int, int] | None:
    """Return topic, queue id and queue offset of a damaged record of *size* bytes, as far as
    legible.

    A guess, to be compared with the queue: any of these bytes may be the damaged one. *topics* are
    the known topics by their encoded name.
    """
    data = data[position : position + size]
    if len(data) < FIXED_BYTES:
        return None
    _, _, queue_id, queue_offset, _, flags, body_bytes = _HEAD.unpack_from(data)
    at = _HEAD.size + _WIDER[flags & SYS_V6]
    if flags & SYS_V6:
        (body_bytes,) = _INT.unpack_from(data, at - 4)
    at += body_bytes
    if body_bytes < 0 or at + 1 >= len(data):
        return None
    topic = topics.get(data[at + 1 : at + 1 + data[at]])
    return None if topic is None else (topic, queue_id, queue_offset)
