"""The schema of the source, and the conversion of stored records to Arrow batches.

Most rows are decoded together (``columns.py``); odd ones one by one with the proxy's decoder, by
the rules for messages in thin clients. Both give the same rows.
"""

from __future__ import annotations

from collections.abc import Generator, Iterable, Iterator, Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from broker_core.errors import RemoteProtocolError
from broker_core.remoting.compression import CodecMissing, check_installed
from broker_core.remoting.message import (
    KEYS,
    RESERVED_PROPERTIES,
    TAGS,
    UNIQ_KEY,
    StoredMessage,
    decode_message,
)
from thin_client.key_hash import BLANKS, plain_key
from thin_client.spark.columns import Rows, find_starts, states_checksum
from thin_client.spark.offsets import Slice
from thin_client.spark.pairs import Pairs, pairs_of

_TEXT, _TIME = pa.string(), pa.timestamp("us", tz="UTC")
_HEADERS = pa.list_(
    pa.field("element", pa.struct([pa.field("key", _TEXT), pa.field("value", pa.binary())]))
)

#: Name, Spark type and Arrow type of each column, in order.
_COLUMNS = (
    ("key", "STRING", _TEXT),
    ("value", "BINARY", pa.binary()),
    ("topic", "STRING", _TEXT),
    ("qid", "STRING", _TEXT),
    ("offset", "BIGINT", pa.int64()),
    ("timestamp", "TIMESTAMP", _TIME),
    ("bornTimestamp", "TIMESTAMP", _TIME),
    ("tag", "STRING", _TEXT),
    ("properties", "MAP<STRING, STRING>", pa.map_(_TEXT, _TEXT)),
    ("messageId", "STRING", _TEXT),
)
_HEADERS_COLUMN = ("headers", "ARRAY<STRUCT<key: STRING, value: BINARY>>", _HEADERS)

#: Maximum rows and stored bytes of a batch; a larger record has a batch of its own. Compressed
#: bodies count with their inflated size, so that no column exceeds its 32-bit offsets.
MAX_ROWS, MAX_BYTES = 16_384, 8 * 1024 * 1024
#: Smaller chunks are joined: the fixed cost of a batch is that of about 50 rows.
WORTH_BYTES = 512 * 1024
#: Spark's years 1 to 9999 in milliseconds since 1970; a producer's clock may be outside of them.
_FIRST_MS, _LAST_MS = -62_135_596_800_000, 253_402_300_799_999


class GarbledRecords(ValueError):
    """The proxy sent invalid records; the message states the place and the defect."""

    def __init__(self, part: Slice, *, due: int, why: str) -> None:
        super().__init__(
            f"topic {part.topic!r}, qid {part.qid!r}, at or after offset {due}: {why}; expected"
            " complete stored records with ascending offsets"
        )


class CannotInflate(RuntimeError):
    """A body is compressed with a codec that is not installed; the message names its package."""

    def __init__(self, part: Slice, offset: int, why: str) -> None:
        super().__init__(
            f"topic {part.topic!r}, qid {part.qid!r}, offset {offset}: the body {why}; install it"
            " where Spark's executors run"
        )


def schema_ddl(*, include_headers: bool) -> str:
    """Return the columns as a Spark DDL schema."""
    return ", ".join(f"{name} {kind}" for name, kind, _ in _columns(include_headers))


def arrow_schema(*, include_headers: bool) -> pa.Schema:
    """Return the columns as the exact Arrow schema that Spark expects."""
    return pa.schema([(name, kind) for name, _, kind in _columns(include_headers)])


def _columns(include_headers: bool) -> tuple[tuple[str, str, pa.DataType], ...]:
    return (*_COLUMNS, _HEADERS_COLUMN) if include_headers else _COLUMNS


def record_batches(
    chunks: Iterable[bytes], part: Slice, *, include_headers: bool
) -> Iterator[pa.RecordBatch]:
    """Yield the rows of *part* from *chunks* of complete stored records, in queue order.

    Records outside *part* are skipped. Raises GarbledRecords at the first record that is invalid or
    whose offset does not ascend, and CannotInflate.
    """
    decoder = _Decoder(part, arrow_schema(include_headers=include_headers))
    for data in _joined(chunks):
        yield from decoder.batches(data)


def _joined(chunks: Iterable[bytes]) -> Iterator[bytes]:
    waiting: list[bytes] = []
    size = 0
    for chunk in chunks:
        waiting.append(chunk)
        size += len(chunk)
        if size >= WORTH_BYTES:
            yield waiting[0] if len(waiting) == 1 else b"".join(waiting)
            waiting, size = [], 0
    if size:
        yield b"".join(waiting)


class _Decoder:
    """Decoder of one slice, which remembers its last offset."""

    def __init__(self, part: Slice, schema: pa.Schema) -> None:
        self._part = part
        self._schema = schema
        self._last = -1  # the offset of the last record

    def batches(self, data: bytes) -> Iterator[pa.RecordBatch]:
        try:
            starts = find_starts(data)
            bounds = np.append(starts, len(data))
            low = 0
            while low < len(starts):
                fitting = int(np.searchsorted(bounds, bounds[low] + MAX_BYTES, side="right")) - 1
                high = max(low + 1, min(fitting, low + MAX_ROWS))
                low += yield from self._piece(data, bounds[low : high + 1])
        except RemoteProtocolError as error:
            raise self._garbled(str(error)) from error

    def _piece(self, data: bytes, bounds: np.ndarray) -> Generator[pa.RecordBatch, None, int]:
        """Yield a batch of the records between *bounds*; return the number of records used.

        Odd rows are decoded first, whether or not they belong to the slice, to validate them and to
        learn the inflated size of their bodies. Once that exceeds the limit, the batch ends.
        """
        start, end = int(bounds[0]), int(bounds[-1])
        rows = Rows.of(memoryview(data)[start:end], bounds[:-1] - start, self._part.topic)
        wanted = (rows.offsets >= self._part.start) & (rows.offsets < self._part.end)
        single: dict[int, StoredMessage] = {}
        size = 0
        for at in np.flatnonzero(rows.odd).tolist():
            if size > MAX_BYTES:
                rows, wanted = rows.only(slice(at)), wanted[:at]
                break
            try:
                record = rows.record(at)
                message = decode_message(
                    record, check_bodies=states_checksum(record), plain=bool(wanted[at])
                )
            except RemoteProtocolError:
                self._check_order(rows.offsets[:at])  # so that the error names the next one
                raise
            if wanted[at]:
                self._check_codec(message)
                single[at] = message
                size += len(message.body)
        self._check_order(rows.offsets)
        if wanted.any():
            yield self._batch(rows, np.flatnonzero(wanted & ~rows.odd), single)
        return len(rows)

    def _check_codec(self, message: StoredMessage) -> None:
        """Raise CannotInflate if the codec of the body is not installed.

        A body with an unknown or damaged compression is kept as stored; but a missing package must
        not change rows.
        """
        try:
            if message.body_is_compressed:
                check_installed(message.sys_flag)
        except CodecMissing as error:
            raise CannotInflate(self._part, message.queue_offset, str(error)) from error

    def _check_order(self, offsets: np.ndarray) -> None:
        falls = np.flatnonzero(offsets <= np.concatenate(([self._last], offsets[:-1])))
        if len(falls):
            at = int(falls[0])
            self._last = int(offsets[at - 1]) if at else self._last
            raise self._garbled(f"the record of offset {offsets[at]} follows")
        if len(offsets):
            self._last = int(offsets[-1])

    def _garbled(self, why: str) -> GarbledRecords:
        return GarbledRecords(self._part, due=max(self._part.start, self._last + 1), why=why)

    def _batch(
        self, rows: Rows, places: np.ndarray, single: dict[int, StoredMessage]
    ) -> pa.RecordBatch:
        """Return the rows at *places* and the *single* rows, in queue order."""
        plain = rows.only(places)
        while len(plain) and not isinstance(pairs := pairs_of(plain.properties()), Pairs):
            for at in np.flatnonzero(pairs).tolist():
                single[int(places[at])] = decode_message(plain.record(at))
            plain, places = plain.only(~pairs), places[~pairs]
        apart = sorted(single)
        batches = []
        if len(plain):
            batches.append(self._from_columns(plain, pairs))
        if apart:
            batches.append(self._from_messages([single[at] for at in apart]))
        if len(batches) == 1:
            return batches[0]
        order = np.argsort(np.concatenate((places, apart)))
        return pa.concat_batches(batches).take(pa.array(order))

    def _from_columns(self, rows: Rows, pairs: Pairs) -> pa.RecordBatch:
        ids, missing = pairs.last(UNIQ_KEY)
        if missing.any():
            places = np.zeros(len(rows), np.int64)
            places[missing] = np.arange(np.count_nonzero(missing))
            own = pa.array(rows.place_ids(missing)).take(pa.array(places))
            ids = pc.if_else(pa.array(missing), own, ids)
        columns = [
            _plain_keys(pairs.last(KEYS)[0]),
            rows.bodies(),
            pa.repeat(self._part.topic, len(rows)),
            pa.repeat(self._part.qid, len(rows)),
            pa.array(rows.offsets),
            _times(rows.stored_ms),
            _times(rows.born_ms),
            pairs.last(TAGS)[0],
            pairs.maps(),
            ids,
        ]
        if len(self._schema) > len(columns):
            columns.append(pairs.headers(_HEADERS))
        return pa.record_batch(columns, schema=self._schema)

    def _from_messages(self, messages: Sequence[StoredMessage]) -> pa.RecordBatch:
        rows = zip(*(self._row(message) for message in messages), strict=True)
        columns = [
            _times(np.array(values)) if kind == _TIME else pa.array(values, kind)
            for values, kind in zip(rows, self._schema.types, strict=False)
        ]
        return pa.record_batch(columns, schema=self._schema)

    def _row(self, message: StoredMessage) -> tuple[Any, ...]:
        own = [pair for pair in message.properties.items() if pair[0] not in RESERVED_PROPERTIES]
        return (
            plain_key(message.key or "") or None,
            message.body,
            self._part.topic,
            self._part.qid,
            message.queue_offset,
            message.store_ms,
            message.born_ms,
            message.tag,
            own,
            message.message_id,
            [{"key": name, "value": text.encode()} for name, text in own] or None,
        )


def _plain_keys(keys: pa.Array) -> pa.Array:
    """Return *keys* without surrounding blanks; null if empty."""
    plain = pc.utf8_trim(keys, characters=BLANKS)
    return pc.if_else(pc.equal(plain, ""), None, plain)


def _times(ms: np.ndarray) -> pa.Array:
    beyond = (ms < _FIRST_MS) | (ms > _LAST_MS)
    micros = np.where(beyond, 0, ms) * 1000
    return pa.array(micros, pa.int64(), mask=beyond if beyond.any() else None).cast(_TIME)
