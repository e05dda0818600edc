"""Conversion of stored records to Arrow columns, all rows at a time. Pure.

The positions of a record's fields follow from its sizes (``broker_core.remoting.message``): numpy
computes the positions and gathers the fields, and Arrow copies those of variable length. No Python
code runs per row. Unusual records (compressed, invalid UTF-8, properties that are not plain pairs)
are marked *odd*; ``records.py`` decodes them one by one.

Every length is checked before use. A row whose sizes do not add up is also odd, and the decoder
then reports the defect.
"""

from __future__ import annotations

import zlib
from dataclasses import dataclass
from struct import Struct

import numpy as np
import pyarrow as pa

from broker_core.errors import RemoteProtocolError
from broker_core.remoting.compression import SYS_COMPRESSED
from broker_core.remoting.message import (
    CRC_MASK,
    FIXED_BYTES,
    MAGIC_V1,
    MAGIC_V2,
    PHYSICAL_OFFSET_AT,
    Bytes,
    decode_message,
    offset_message_id,
)
from broker_core.remoting.record_checksum import CHECKSUM_BYTES, NAMED, SYS_CHECKED
from thin_client.spark.gathering import cut, gather

#: A record up to its topic if both hosts are IPv4; the fields before the hosts are always valid.
_HEAD = np.dtype(
    {
        "names": ["magic", "crc", "offset", "flags", "born", "stored", "body_bytes"],
        "formats": [">u4", ">u4", ">i8", ">i4", ">i8", ">i8", ">i4"],
        "offsets": [4, 8, 20, 36, 40, 56, 84],
        "itemsize": 88,
    }
)
_STORED_AT, _STORE_HOST_AT, _BODY_BYTES_AT = 56, 64, 84  # later if the born host is IPv6
_V4_BYTES, _WIDER = 8, 12  # size of an IPv4 host; additional bytes of an IPv6 host
_BORN_V6_SHIFT, _STORE_V6_SHIFT = 4, 5  # flag bits for IPv6 hosts

_SIZE = Struct(">i")
_NAMED = int.from_bytes(NAMED[:8], "big")
_MAGIC_AT, _CRC_AT = 4, 8
#: Minimum records in a lane: below it, finding the lanes takes longer than it saves.
LANE_RECORDS = 24


def find_starts(data: bytes) -> np.ndarray:
    """Return the start of each record of *data*. Raises RemoteProtocolError for partial records.

    Each record's size leads to the next record. Several lanes are followed in parallel, each from a
    probable start of a record, which is confirmed if the lane before it ends there.
    """
    starts = None
    if len(data) >= FIXED_BYTES:
        records = len(data) // max(_SIZE.unpack_from(data)[0], FIXED_BYTES)
        lanes = int(min((16 * records) ** 0.5, records / LANE_RECORDS))
        if lanes > 1:
            starts = _in_lanes(data, _lane_begins(data, lanes))
    return one_by_one(data) if starts is None else starts


def _lane_begins(data: bytes, lanes: int) -> np.ndarray:
    """Return probable record starts (by the first record's magic), spread about evenly."""
    magic, width = data[_MAGIC_AT : _MAGIC_AT + 4], len(data) // lanes
    begins = [0]
    for near in range(width, len(data), width):
        found = data.find(magic, max(near, begins[-1] + FIXED_BYTES), near + 2 * width)
        if found >= 0:
            begins.append(found - _MAGIC_AT)
    return np.array(begins)


def _in_lanes(data: bytes, begins: np.ndarray) -> np.ndarray | None:
    """Return the starts if each lane ends where the next one begins, else None."""
    ends = np.append(begins[1:], len(data))
    last = len(data) - FIXED_BYTES
    at, steps = begins, []
    while True:
        steps.append(at)
        sizes = gather(data, ">i4", np.minimum(at, last))
        under_way = at < ends
        at = np.where(under_way, at + sizes, at)
        if (at > ends).any() or (sizes[under_way] < FIXED_BYTES).any():
            return None
        if (at == ends).all():
            break
    places = np.stack(steps, axis=1)
    return places[places < ends[:, None]]


def one_by_one(data: bytes) -> np.ndarray:
    """Return where each record of *data* starts, found in one pass from record to record."""
    starts: list[int] = []
    at, end, size_at = 0, len(data), _SIZE.unpack_from
    while at < end:
        starts.append(at)
        size = size_at(data, at)[0] if at + 4 <= end else 0
        if size < FIXED_BYTES or at + size > end:
            decode_message(data, at)  # raises the precise error
        at += size
    return np.array(starts, np.int64)


@dataclass(frozen=True, slots=True)
class Rows:
    """Records of a buffer: the positions of their parts, and their fixed fields."""

    data: memoryview
    starts: np.ndarray
    offsets: np.ndarray
    #: Times by the producer's and by the broker's clock.
    born_ms: np.ndarray
    stored_ms: np.ndarray
    #: Mask of the rows that have to be decoded one by one.
    odd: np.ndarray
    _flags: np.ndarray
    _body_at: np.ndarray
    _body_end: np.ndarray
    _properties_at: np.ndarray
    _properties_end: np.ndarray
    _end: np.ndarray

    @classmethod
    def of(cls, data: memoryview, starts: np.ndarray, topic: str) -> Rows:
        """Return the records of *data* at *starts*, contiguous from 0 to its end."""
        end = np.append(starts[1:], len(data))
        heads = gather(data, f"V{_HEAD.itemsize}", starts).view(_HEAD)
        flags = heads["flags"].astype(np.int32)
        stored_ms, body_bytes = heads["stored"].astype(np.int64), heads["body_bytes"]
        body_at = starts + _HEAD.itemsize
        born_wide = (flags >> _BORN_V6_SHIFT & 1) * _WIDER
        wide = born_wide + (flags >> _STORE_V6_SHIFT & 1) * _WIDER
        if wide.any():
            stored_ms = gather(data, ">i8", starts + born_wide + _STORED_AT).astype(np.int64)
            body_bytes = gather(data, ">i4", starts + wide + _BODY_BYTES_AT)
            body_at += wide
        body_end = body_at + body_bytes
        is_v2 = heads["magic"] == MAGIC_V2
        named_at = body_end + 1 + is_v2
        properties_at = named_at + len(topic.encode()) + 2
        odd = (body_at > body_end) | (properties_at > end)
        odd |= ~is_v2 & (heads["magic"] != MAGIC_V1)
        odd |= flags & SYS_COMPRESSED != 0
        odd |= ~_names_topic(data, named_at, is_v2, topic)
        odd |= properties_at + gather(data, ">i2", properties_at - 2) != end
        checked = flags & SYS_CHECKED != 0
        # As a number: the property of a checksum, which is not one of the message.
        has_checksum = gather(data, ">i8", end - CHECKSUM_BYTES) == _NAMED
        odd |= has_checksum != checked
        # A checksum of 0 states none, except of an empty body.
        unverified = np.flatnonzero(~odd & ~checked & (heads["crc"] != 0))
        _verify(data, heads, body_at, body_end, unverified)
        properties_end = end - np.where(checked, CHECKSUM_BYTES, 0)
        return cls(
            *(data, starts, heads["offset"].astype(np.int64), heads["born"].astype(np.int64)),
            *(stored_ms, odd, flags, body_at, body_end, properties_at, properties_end, end),
        )

    def only(self, chosen: np.ndarray) -> Rows:
        """Return the rows selected by *chosen*, a mask or indices."""
        return Rows(
            self.data,
            self.starts[chosen],
            self.offsets[chosen],
            self.born_ms[chosen],
            self.stored_ms[chosen],
            self.odd[chosen],
            self._flags[chosen],
            self._body_at[chosen],
            self._body_end[chosen],
            self._properties_at[chosen],
            self._properties_end[chosen],
            self._end[chosen],
        )

    def __len__(self) -> int:
        return len(self.starts)

    def record(self, at: int) -> bytes:
        """Return the whole record of row *at*."""
        return bytes(self.data[int(self.starts[at]) : int(self._end[at])])

    def bodies(self) -> pa.Array:
        """Return the bodies as binary."""
        return cut(self.data, self._body_at, self._body_end)

    def properties(self) -> pa.Array:
        """Return each row's properties as stored, as binary."""
        return cut(self.data, self._properties_at, self._properties_end)

    def place_ids(self, chosen: np.ndarray) -> list[str]:
        """Return the IDs of the *chosen* rows' positions in the broker's log."""
        ids = []
        for start, flags in zip(self.starts[chosen], self._flags[chosen], strict=True):
            host_at = start + _STORE_HOST_AT + (flags >> _BORN_V6_SHIFT & 1) * _WIDER
            host_end = host_at + _V4_BYTES + (flags >> _STORE_V6_SHIFT & 1) * _WIDER
            physical_at = start + PHYSICAL_OFFSET_AT
            place = self.data[physical_at : physical_at + 8]
            host = bytes(self.data[host_at:host_end])
            ids.append(offset_message_id(host, int.from_bytes(place, "big", signed=True)))
        return ids


def states_checksum(record: bytes) -> bool:
    """Return whether *record* states a checksum of its body; 0 is none."""
    return record[_CRC_AT : _CRC_AT + 4] != bytes(4)


def _verify(
    data: memoryview,
    heads: np.ndarray,
    body_at: np.ndarray,
    body_end: np.ndarray,
    chosen: np.ndarray,
) -> None:
    """Verify the bodies of the *chosen* rows, which their broker may not have verified.

    The broker that writes checksums of records verifies these. Raises RemoteProtocolError.
    """
    places = zip(
        body_at[chosen].tolist(), body_end[chosen].tolist(), heads["crc"][chosen].tolist(),
        strict=True,
    )  # fmt: skip
    for at, (begin, end, crc) in enumerate(places):
        if zlib.crc32(data[begin:end]) & CRC_MASK != crc:
            offset = int(heads["offset"][chosen[at]])
            raise RemoteProtocolError(
                f"the body of the message at offset {offset} does not match its checksum"
            )


def _names_topic(data: Bytes, at: np.ndarray, is_v2: np.ndarray, topic: str) -> np.ndarray:
    """Return the mask of positions that hold *topic*, preceded by its length."""
    name = topic.encode()
    same = gather(data, "u1", at - 1) == len(name)
    if is_v2.any():  # the length has two bytes
        same &= ~is_v2 | (gather(data, "u1", at - 2) == 0)
    names = gather(data, f"V{len(name)}", at)
    if names.tobytes() != name * len(names):
        same &= np.fromiter((each.tobytes() == name for each in names), bool, len(names))
    return same
