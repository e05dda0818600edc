"""The checksum of a whole record, as its last property. Pure.

RocketMQ's record has a checksum of its body only. As RocketMQ 5 does on request, the embedded
broker appends a property ``__CRC32#`` with the CRC-32 of all bytes before it: ten decimal digits,
the lowest first. A flag tells such records from those of earlier versions, so that damage cannot
turn one into the other. Decoders remove property and flag: applications see neither.
"""

from __future__ import annotations

import zlib
from typing import Final

#: Flag of records with a checksum, a bit of SYSFLAG that RocketMQ does not use.
SYS_CHECKED: Final = 0x1000
#: Size of the property.
CHECKSUM_BYTES: Final = 20
NAMED: Final = b"__CRC32#\x01"
_MASK: Final = 0x7FFFFFFF


def checksum_property(crc: int) -> bytes:
    """Return the property for *crc*, the CRC-32 of all bytes before it."""
    return NAMED + (b"%010d" % (crc & _MASK))[::-1] + b"\x02"


def has_checksum(data: bytes, end: int) -> bool:
    """Return whether the record that ends at *end* ends with such a property, right or wrong."""
    return data[end - CHECKSUM_BYTES : end - CHECKSUM_BYTES + len(NAMED)] == NAMED


def is_checksum_right(data: bytes, position: int, end: int) -> bool:
    """Return whether the record from *position* to *end* ends with its right checksum."""
    at = end - CHECKSUM_BYTES
    return data[at:end] == checksum_property(zlib.crc32(data[position:at]))
