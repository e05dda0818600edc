"""Vectorized parsing of the properties of many rows into name-value pairs. Pure."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from broker_core.remoting.message import RESERVED_PROPERTIES
from thin_client.spark.gathering import flat, gather, indices, strings

_NAME_ENDS, _VALUE_ENDS = 1, 2  # the separators of properties


@dataclass(frozen=True, slots=True)
class Pairs:
    """Properties of several rows, as name-value pairs in one array."""

    #: Names, values and the text between them; ``name_at`` is the index of each name.
    parts: pa.Array
    name_at: np.ndarray
    row: np.ndarray
    #: Index in ``names`` of each pair's name.
    kind: np.ndarray
    names: list[str]
    rows: int

    def last(self, name: str) -> tuple[pa.Array, np.ndarray]:
        """Return the value of *name* in each row, null if missing, and the mask of the nulls."""
        if name not in self.names:
            return pa.nulls(self.rows, pa.string()), np.ones(self.rows, bool)
        mine = np.flatnonzero(self.kind == self.names.index(name))
        places = np.full(self.rows, -1, np.int64)
        places[self.row[mine]] = self.name_at[mine] + 2
        missing = places < 0
        return self.parts.take(indices(places, missing if missing.any() else None)), missing

    def maps(self) -> pa.Array:
        """Return each row's application properties as a map."""
        own = self._own()
        keys, values = self._texts(own)
        return pa.MapArray.from_arrays(pa.array(self._offsets(own)), keys, values)

    def headers(self, kind: pa.DataType) -> pa.Array:
        """Return each row's application properties as a list of structs; null if it has none."""
        own = self._own()
        keys, values = self._texts(own)
        structs = pa.StructArray.from_arrays(
            [keys, values.cast(pa.binary())], fields=list(kind.value_type)
        )
        offsets = self._offsets(own)
        none = pa.array(offsets[1:] == offsets[:-1])
        return pa.ListArray.from_arrays(pa.array(offsets), structs, type=kind, mask=none)

    def _own(self) -> np.ndarray:
        own = np.array([name not in RESERVED_PROPERTIES for name in self.names], bool)
        return np.flatnonzero(own[self.kind]) if own.any() else np.zeros(0, np.int64)

    def _texts(self, chosen: np.ndarray) -> tuple[pa.Array, pa.Array]:
        names = self.name_at[chosen]
        return self.parts.take(indices(names)), self.parts.take(indices(names + 2))

    def _offsets(self, chosen: np.ndarray) -> np.ndarray:
        offsets = np.zeros(self.rows + 1, np.int32)
        np.cumsum(np.bincount(self.row[chosen], minlength=self.rows), out=offsets[1:])
        return offsets


def pairs_of(properties: pa.Array) -> Pairs | np.ndarray:
    """Return the pairs in *properties*, or a mask of odd rows; then call again without these."""
    raw, ends = flat(_ended(properties))
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
    parts = strings(bounds, raw)
    rows, name_at, sizes = len(ends), np.arange(0, 2 * len(separators), 4), np.diff(bounds)
    full = (sizes[name_at] > 0) & (sizes[name_at + 2] > 0)  # readers drop empty pairs
    names = _same_names(raw, ends, bounds) if full.all() else None
    if names is not None:
        row, kind = np.repeat(np.arange(rows), len(names)), np.tile(np.arange(len(names)), rows)
        return Pairs(parts, name_at, row, kind, names, rows)
    row, name_at = np.searchsorted(ends, separators[::2], side="right")[full], name_at[full]
    encoded = parts.take(indices(name_at)).dictionary_encode()
    kind = encoded.indices.to_numpy()
    repeated = _repeated(row, kind, rows)
    if repeated is not None:
        return repeated
    return Pairs(parts, name_at, row, kind, encoded.dictionary.to_pylist(), rows)


def _same_names(raw: np.ndarray, ends: np.ndarray, bounds: np.ndarray) -> list[str] | None:
    """Return the names of a row if all rows have the same names in the same order, none twice."""
    each, rest = divmod(len(bounds) // 4, max(1, len(ends)))
    if rest or not each or not np.array_equal(bounds[4 * each :: 4 * each], ends):
        return None
    names = []
    for at in range(each):
        begins, stops = bounds[4 * at : -1 : 4 * each], bounds[4 * at + 1 :: 4 * each]
        name = raw[begins[0] : stops[0]].tobytes()
        alike = (stops - begins == len(name)).all()
        if not alike or gather(raw, f"V{len(name)}", begins).tobytes() != name * len(ends):
            return None
        names.append(name.decode())
    return names if len(set(names)) == each else None


def _ended(properties: pa.Array) -> pa.Array:
    """Append the last separator where it is missing; some brokers do not write it."""
    raw, ends = flat(properties)
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
    """Return the mask of rows with invalid UTF-8; None if there are none."""
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
    """Return the mask of rows that do not repeat name, 0x01, value, 0x02; None if none."""
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
    """Return the mask of rows with a repeated name, whose last value counts; None if none."""
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
