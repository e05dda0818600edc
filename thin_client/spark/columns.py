"""Stored records into Arrow columns, all rows at a time. Pure.

A record's fields stand at places that follow from its sizes (``broker_core.remoting.message``), so
numpy computes the places and gathers the fields, and Arrow copies what varies in length. No Python
runs for a row. What is not as nearly all records are (compressed, bytes that are no UTF-8,
properties that are no plain pairs) is told as *odd*: ``records.py`` decodes it one by one.

Nothing here trusts a length before it is checked: a row whose parts do not add up is odd as well,
and the decoder that gets it then says what is wrong.
"""

from __future__ import annotations

from dataclasses import dataclass
from struct import Struct

import numpy as np
import pyarrow as pa

from broker_core.remoting.message import (
    FIXED_BYTES,
    MAGIC_V1,
    MAGIC_V2,
    PHYSICAL_OFFSET_AT,
    RESERVED_PROPERTIES,
    SYS_COMPRESSED,
    Bytes,
    decode_message,
    offset_message_id,
)

# Where fields stand in a record; behind the hosts it is so with hosts of IPv4.
_MAGIC_AT, _OFFSET_AT, _FLAGS_AT, _BORN_AT, _BORN_HOST_AT = 4, 20, 36, 40, 48
_STORED_AT, _STORE_HOST_AT, _BODY_BYTES_AT, _BODY_AT = 56, 64, 84, 88
_V4_BYTES, _WIDER = 8, 12  # of a host; how much wider one of IPv6 is
_BORN_V6_SHIFT, _STORE_V6_SHIFT = 4, 5  # the bits of the flags that tell

#: Records of more bytes than this are found by following their sizes, smaller ones by their marks.
_LARGE_BYTES = 1_500
_MARK = MAGIC_V1 >> 24  # both magics begin with this byte
_SIZE = Struct(">i")

_NAME_ENDS, _VALUE_ENDS = 1, 2  # the separators of properties


def find_starts(data: bytes) -> np.ndarray:
    """Where each record of *data* begins. Raises RemoteProtocolError unless it is whole records."""
    starts = None
    if len(data) >= FIXED_BYTES and _SIZE.unpack_from(data)[0] < _LARGE_BYTES:
        starts = _marked(data)
    return _followed(data) if starts is None else starts


def _marked(data: bytes) -> np.ndarray | None:
    """The starts, if each record ends where the next magic stands; None if bodies hold magics."""
    marks = np.flatnonzero(np.frombuffer(data, np.uint8) == _MARK) - _MAGIC_AT
    marks = marks[(marks >= 0) & (marks <= len(data) - FIXED_BYTES)]
    magics = _gather(data, ">u4", marks + _MAGIC_AT)
    starts = marks[(magics == MAGIC_V1) | (magics == MAGIC_V2)]
    if not len(starts) or starts[0] != 0:
        return None
    ends = starts + _gather(data, ">i4", starts)
    joined = ends[-1] == len(data) and np.array_equal(ends[:-1], starts[1:])
    return starts if joined else None


def _followed(data: bytes) -> np.ndarray:
    starts: list[int] = []
    at, end, size_at = 0, len(data), _SIZE.unpack_from
    while at < end:
        starts.append(at)
        size = size_at(data, at)[0] if at + 4 <= end else 0
        if size < FIXED_BYTES or at + size > end:
            decode_message(data, at)  # raises: it says what is wrong
        at += size
    return np.array(starts, np.int64)


@dataclass(frozen=True, slots=True)
class Rows:
    """Some records of a buffer: the places of their parts, and what has a fixed place."""

    data: memoryview
    starts: np.ndarray
    offsets: np.ndarray
    #: No row of these can be decoded here.
    odd: np.ndarray
    _flags: np.ndarray
    _body_at: np.ndarray
    _body_end: np.ndarray
    _properties_at: np.ndarray
    _end: np.ndarray

    @classmethod
    def of(cls, data: memoryview, starts: np.ndarray, topic: str) -> Rows:
        """The records of *data* at *starts*, one behind the other from 0 to its end."""
        end = np.append(starts[1:], len(data))
        magics = _gather(data, ">u4", starts + _MAGIC_AT)
        flags = _gather(data, ">i4", starts + _FLAGS_AT)
        wider = ((flags >> _BORN_V6_SHIFT & 1) + (flags >> _STORE_V6_SHIFT & 1)) * _WIDER
        body_at = starts + _BODY_AT + wider
        body_end = body_at + _gather(data, ">i4", starts + _BODY_BYTES_AT + wider)
        named_at = body_end + np.where(magics == MAGIC_V1, 1, 2)
        properties_at = named_at + len(topic.encode()) + 2
        inside = (body_at <= body_end) & (properties_at <= end)
        odd = ~inside
        odd |= (magics != MAGIC_V1) & (magics != MAGIC_V2)
        odd |= flags & SYS_COMPRESSED != 0
        odd |= ~_names_topic(data, body_end, named_at, topic)
        odd |= properties_at + _gather(data, ">i2", properties_at - 2) != end
        offsets = _gather(data, ">i8", starts + _OFFSET_AT).astype(np.int64)
        return cls(data, starts, offsets, odd, flags, body_at, body_end, properties_at, end)

    def only(self, chosen: np.ndarray) -> Rows:
        """Those that *chosen*, a mask or places, names."""
        return Rows(
            self.data,
            self.starts[chosen],
            self.offsets[chosen],
            self.odd[chosen],
            self._flags[chosen],
            self._body_at[chosen],
            self._body_end[chosen],
            self._properties_at[chosen],
            self._end[chosen],
        )

    def __len__(self) -> int:
        return len(self.starts)

    def record(self, at: int) -> bytes:
        """The whole record of a row."""
        return bytes(self.data[int(self.starts[at]) : int(self._end[at])])

    def bodies(self) -> pa.Array:
        """As binary."""
        return _cut(self.data, self._body_at, self._body_end)

    def properties(self) -> pa.Array:
        """All properties of each row as stored, as binary."""
        return _cut(self.data, self._properties_at, self._end)

    def born_ms(self) -> np.ndarray:
        """By the producer's clock."""
        return _gather(self.data, ">i8", self.starts + _BORN_AT).astype(np.int64)

    def stored_ms(self) -> np.ndarray:
        """By the broker's clock."""
        wider = (self._flags >> _BORN_V6_SHIFT & 1) * _WIDER
        return _gather(self.data, ">i8", self.starts + wider + _STORED_AT).astype(np.int64)

    def place_ids(self, chosen: np.ndarray) -> list[str]:
        """The ids that name the places of *chosen* rows in the broker's log."""
        ids = []
        for start, flags in zip(self.starts[chosen], self._flags[chosen], strict=True):
            host_at = start + _STORE_HOST_AT + (flags >> _BORN_V6_SHIFT & 1) * _WIDER
            host_end = host_at + _V4_BYTES + (flags >> _STORE_V6_SHIFT & 1) * _WIDER
            physical_at = start + PHYSICAL_OFFSET_AT
            place = self.data[physical_at : physical_at + 8]
            host = bytes(self.data[host_at:host_end])
            ids.append(offset_message_id(host, int.from_bytes(place, "big", signed=True)))
        return ids


def _names_topic(data: Bytes, at: np.ndarray, named_at: np.ndarray, topic: str) -> np.ndarray:
    """Whether *topic* stands in each row, its length before it."""
    name = topic.encode()
    lengths = _gather(data, "u1", named_at - 1)
    names = _gather(data, f"V{len(name)}", named_at)
    same = lengths == len(name)
    same &= (named_at - at == 1) | (_gather(data, "u1", named_at - 2) == 0)
    if names.tobytes() != name * len(names):
        same &= np.fromiter((each.tobytes() == name for each in names), bool, len(names))
    return same


@dataclass(frozen=True, slots=True)
class Pairs:
    """The properties of some rows, as pairs of name and value in one array of parts."""

    #: Names and values, with what stands between them; ``name_at`` is the place of each name.
    parts: pa.Array
    name_at: np.ndarray
    row: np.ndarray
    #: Which entry of ``names`` each pair has.
    kind: np.ndarray
    names: list[str]
    rows: int

    def last(self, name: str) -> tuple[pa.Array, np.ndarray]:
        """The value of *name* in each row, null without one, and the mask of these nulls."""
        if name not in self.names:
            return pa.nulls(self.rows, pa.string()), np.ones(self.rows, bool)
        mine = np.flatnonzero(self.kind == self.names.index(name))
        places = np.full(self.rows, -1, np.int64)
        places[self.row[mine]] = self.name_at[mine] + 2
        missing = places < 0
        return self.parts.take(_places(places, missing if missing.any() else None)), missing

    def maps(self) -> pa.Array:
        """The application's own properties of each row, as a map."""
        own = np.array([name not in RESERVED_PROPERTIES for name in self.names], bool)
        chosen = np.flatnonzero(own[self.kind]) if own.any() else np.zeros(0, np.int64)
        keys = self.parts.take(_places(self.name_at[chosen]))
        values = self.parts.take(_places(self.name_at[chosen] + 2))
        return pa.MapArray.from_arrays(self._offsets(chosen), keys, values)

    def headers(self, kind: pa.DataType) -> pa.Array:
        """All properties of each row, as a list of structs of the type *kind*."""
        keys = self.parts.take(_places(self.name_at))
        values = self.parts.take(_places(self.name_at + 2)).cast(pa.binary())
        fields = list(kind.value_type)
        structs = pa.StructArray.from_arrays([keys, values], fields=fields)
        offsets = self._offsets(np.arange(len(self.row)))
        return pa.ListArray.from_arrays(offsets, structs, type=kind)

    def _offsets(self, chosen: np.ndarray) -> pa.Array:
        offsets = np.zeros(self.rows + 1, np.int32)
        np.cumsum(np.bincount(self.row[chosen], minlength=self.rows), out=offsets[1:])
        return pa.array(offsets)


def pairs_of(properties: pa.Array) -> Pairs | np.ndarray:
    """The pairs in *properties*, or the mask of odd rows: the others have to be asked for again."""
    raw, ends = _flat(_ended(properties))
    odd = _odd_text(raw, ends)
    if odd is not None:
        return odd
    separators = np.flatnonzero(raw <= _VALUE_ENDS)
    odd = _odd_separators(raw, ends, separators)
    if odd is not None:
        return odd
    bounds = np.zeros(2 * len(separators) + 1, np.int32)
    bounds[1::2] = separators
    bounds[2::2] = separators + 1
    parts = _strings(bounds, raw)
    name_at = np.arange(0, 2 * len(separators), 4)
    sizes = np.diff(bounds)
    row = np.searchsorted(ends, separators[::2], side="right")
    full = (sizes[name_at] > 0) & (sizes[name_at + 2] > 0)  # readers drop the others
    if not full.all():
        name_at, row = name_at[full], row[full]
    encoded = parts.take(_places(name_at)).dictionary_encode()
    kind = encoded.indices.to_numpy()
    repeated = _repeated(row, kind, len(ends))
    if repeated is not None:
        return repeated
    return Pairs(parts, name_at, row, kind, encoded.dictionary.to_pylist(), len(ends))


def _ended(properties: pa.Array) -> pa.Array:
    """With the last separator, which some brokers do not write, where one is missing."""
    raw, ends = _flat(properties)
    starts = np.concatenate(([0], ends[:-1]))
    filled = ends > starts
    open_ = filled.copy()
    open_[filled] = raw[ends[filled] - 1] != _VALUE_ENDS
    if not open_.any():
        return properties
    offsets = np.concatenate(([0], np.cumsum(ends - starts + open_))).astype(np.int32)
    joined = np.full(offsets[-1], _VALUE_ENDS, np.uint8)
    joined[np.arange(len(raw)) + np.repeat(np.cumsum(open_) - open_, ends - starts)] = raw
    buffers = [None, pa.py_buffer(offsets), pa.py_buffer(joined)]
    return pa.Array.from_buffers(pa.binary(), len(ends), buffers)


def _odd_text(raw: np.ndarray, ends: np.ndarray) -> np.ndarray | None:
    """Rows that are no UTF-8; None without any."""
    if not len(raw) or raw.max() < 0x80:
        return None
    text = raw.tobytes()
    if _is_text(text):
        return None
    bounds = zip([0, *ends[:-1].tolist()], ends.tolist(), strict=True)
    return np.fromiter((not _is_text(text[at:end]) for at, end in bounds), bool, len(ends))


def _is_text(raw: bytes) -> bool:
    try:
        raw.decode()
    except UnicodeDecodeError:
        return False
    return True


def _odd_separators(raw: np.ndarray, ends: np.ndarray, places: np.ndarray) -> np.ndarray | None:
    """Rows in which name, 0x01, value, 0x02 do not take turns; None without any."""
    kinds = raw[places]
    if (
        len(kinds) % 2 == 0
        and (kinds[::2] == _NAME_ENDS).all()
        and (kinds[1::2] == _VALUE_ENDS).all()
    ):
        return None  # each row ends with 0x02, so each begins with a name
    row = np.searchsorted(ends, places, side="right")
    counts = np.bincount(row, minlength=len(ends))
    nth = np.arange(len(places)) - np.repeat(np.cumsum(counts) - counts, counts)
    odd = counts % 2 == 1
    odd[row[kinds != _NAME_ENDS + nth % 2]] = True
    return odd


def _repeated(row: np.ndarray, kind: np.ndarray, rows: int) -> np.ndarray | None:
    """Rows with a name twice, of which the last one counts; None without any."""
    counts = np.bincount(row, minlength=rows)
    most = int(counts.max(initial=0))
    odd = np.zeros(rows, bool)
    if most <= 8:
        for lag in range(1, most):
            odd[row[lag:][(row[lag:] == row[:-lag]) & (kind[lag:] == kind[:-lag])]] = True
    else:
        named = np.sort(row.astype(np.int64) * (int(kind.max()) + 1) + kind)
        odd[named[1:][named[1:] == named[:-1]] // (int(kind.max()) + 1)] = True
    return odd if odd.any() else None


def _gather(data: Bytes, kind: str, at: np.ndarray) -> np.ndarray:
    """The field of *kind* at each place; at a place outside *data* any other one."""
    last = len(data) - np.dtype(kind).itemsize
    if last < 0:
        return np.zeros(len(at), kind)
    everywhere = np.ndarray((last + 1,), kind, buffer=data, strides=(1,))
    return everywhere[np.clip(at, 0, last)]


def _cut(data: Bytes, starts: np.ndarray, ends: np.ndarray) -> pa.Array:
    """The bytes from each start to its end, as binary; they rise and do not overlap."""
    bounds = np.zeros(2 * len(starts) + 1, np.int32)
    bounds[1::2] = starts
    bounds[2::2] = ends
    buffers = [None, pa.py_buffer(bounds), pa.py_buffer(data)]
    parts = pa.Array.from_buffers(pa.binary(), 2 * len(starts), buffers)
    return parts.take(_places(np.arange(1, 2 * len(starts), 2)))


def _strings(bounds: np.ndarray, raw: np.ndarray) -> pa.Array:
    buffers = [None, pa.py_buffer(bounds), pa.py_buffer(raw)]
    return pa.Array.from_buffers(pa.string(), len(bounds) - 1, buffers)


def _places(at: np.ndarray, missing: np.ndarray | None = None) -> pa.Array:
    return pa.array(at, pa.int64(), mask=missing)


def _flat(texts: pa.Array) -> tuple[np.ndarray, np.ndarray]:
    """All bytes of an array behind each other, and where each entry ends."""
    _, offsets, values = texts.buffers()
    ends = np.frombuffer(offsets, np.int32, len(texts) + 1)[1:]
    size = int(ends[-1]) if len(ends) else 0
    raw = np.frombuffer(values, np.uint8, size) if size else np.zeros(0, np.uint8)
    return raw, ends
