"""The schema of the source, and the conversion of stored records to Arrow batches.

Most rows are decoded together (``columns.py``); odd ones one by one with the proxy's decoder, by
the rules for messages in thin clients. Both give the same rows.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterable, Iterator, Mapping, Sequence
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
from thin_client.spark.option_values import OptionError
from thin_client.spark.pairs import Pairs, pairs_of
from thin_client.spark.queue_numbers import number_of
from thin_client.spark.tombstones import BODIES, EMPTY, NULL, TOMBSTONE, value_of

_TEXT, _TIME = pa.string(), pa.timestamp("us", tz="UTC")
_HEADERS = pa.list_(
    pa.field("element", pa.struct([pa.field("key", _TEXT), pa.field("value", pa.binary())]))
)

#: Spark type and Arrow type of each column, in order.
_COLUMNS: Mapping[str, tuple[str, pa.DataType]] = {
    "key": ("STRING", _TEXT),
    "value": ("BINARY", pa.binary()),
    "topic": ("STRING", _TEXT),
    "qid": ("STRING", _TEXT),
    "offset": ("BIGINT", pa.int64()),
    "timestamp": ("TIMESTAMP", _TIME),
    "bornTimestamp": ("TIMESTAMP", _TIME),
    "tag": ("STRING", _TEXT),
    "properties": ("MAP<STRING, STRING>", pa.map_(_TEXT, _TEXT)),
    "messageId": ("STRING", _TEXT),
    "headers": ("ARRAY<STRUCT<key: STRING, value: BINARY>>", _HEADERS),
}
#: The same with Kafka's names: first the columns of Kafka's source, which has headers last.
_KAFKA_COLUMNS: Mapping[str, tuple[str, pa.DataType]] = {
    "key": ("BINARY", pa.binary()),
    "value": _COLUMNS["value"],
    "topic": _COLUMNS["topic"],
    "partition": ("INT", pa.int32()),
    "offset": _COLUMNS["offset"],
    "timestamp": _COLUMNS["timestamp"],
    "timestampType": ("INT", pa.int32()),
    "headers": _COLUMNS["headers"],
    **{name: _COLUMNS[name] for name in ("qid", "bornTimestamp", "tag", "properties", "messageId")},
}
_KAFKA_DEFAULT = ("key", "value", "topic", "partition", "offset", "timestamp", "timestampType")
#: Kafka's number for times at which a broker stored a message, as all are.
_STORED_TIME = 1
#: Columns that follow from the position alone.
_POSITION = frozenset({"topic", "qid", "offset", "partition", "timestampType"})
#: Columns that need a message's properties; ``value`` because of tombstones.
_OF_PROPERTIES = frozenset({"key", "value", "tag", "properties", "messageId", "headers"})

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


def column_names(*, include_headers: bool, kafka_names: bool = False) -> tuple[str, ...]:
    """Return the columns of a source whose schema is not given."""
    if kafka_names:
        return (*_KAFKA_DEFAULT, "headers") if include_headers else _KAFKA_DEFAULT
    return tuple(name for name in _COLUMNS if include_headers or name != "headers")


def schema_ddl(columns: Iterable[str], *, kafka_names: bool = False) -> str:
    """Return *columns* as a Spark DDL schema."""
    known = _known(kafka_names)
    return ", ".join(f"{name} {known[name][0]}" for name in columns)


def arrow_schema(columns: Iterable[str], *, kafka_names: bool = False) -> pa.Schema:
    """Return *columns* as the exact Arrow schema that Spark expects."""
    known = _known(kafka_names)
    return pa.schema([(name, known[name][1]) for name in columns])


def chosen_columns(given: pa.Schema, *, kafka_names: bool = False) -> tuple[str, ...]:
    """Return the names of *given*, a schema chosen by the user. Raises OptionError for columns that
    the source does not have, or of other types.
    """
    columns = _known(kafka_names)
    for field in given:
        known = columns.get(field.name)
        if known is None:
            raise OptionError(
                f"schema() names the column {field.name!r}: expected some of {', '.join(columns)}"
            )
        if field.type != known[1]:
            raise OptionError(
                f"schema() gives the column {field.name!r} another type: expected {known[0]}"
            )
    return tuple(given.names)


def _known(kafka_names: bool) -> Mapping[str, tuple[str, pa.DataType]]:
    return _KAFKA_COLUMNS if kafka_names else _COLUMNS


def need_records(columns: Iterable[str]) -> bool:
    """Return whether *columns* need more than the positions of messages."""
    return not _POSITION.issuperset(columns)


def position_batches(
    part: Slice, columns: Sequence[str], *, kafka_names: bool = False
) -> Iterator[pa.RecordBatch]:
    """Yield *columns*, of those that need no records, for each offset of *part*."""
    schema = arrow_schema(columns, kafka_names=kafka_names)
    for first in range(part.start, part.end, MAX_ROWS):
        offsets = np.arange(first, min(first + MAX_ROWS, part.end))
        same, own = _of_queue(part, len(offsets)), pa.array(offsets)
        made = [own if name == "offset" else same[name]() for name in columns]
        yield pa.record_batch(made, schema=schema)


def _of_queue(part: Slice, rows: int) -> dict[str, Callable[[], pa.Array]]:
    """Return the columns in which all rows of a queue are equal."""
    return {
        "topic": lambda: pa.repeat(part.topic, rows),
        "qid": lambda: pa.repeat(part.qid, rows),
        "partition": lambda: pa.repeat(pa.scalar(int(number_of(part.qid)), pa.int32()), rows),
        "timestampType": lambda: pa.repeat(pa.scalar(_STORED_TIME, pa.int32()), rows),
    }


def record_batches(
    chunks: Iterable[bytes], part: Slice, columns: Sequence[str], *, kafka_names: bool = False
) -> Iterator[pa.RecordBatch]:
    """Yield *columns* of the rows of *part* from *chunks* of complete stored records, in queue
    order.

    Records outside *part* are skipped. Raises GarbledRecords at the first record that is invalid or
    whose offset does not ascend, and CannotInflate.
    """
    decoder = _Decoder(part, arrow_schema(columns, kafka_names=kafka_names))
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
        plain, pairs = rows.only(places), None
        if self._needs_pairs:
            plain, places, pairs = self._with_pairs(plain, places, single)
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

    def _with_pairs(
        self, rows: Rows, places: np.ndarray, single: dict[int, StoredMessage]
    ) -> tuple[Rows, np.ndarray, Pairs | None]:
        """Return *rows* and their *places* without those of odd properties, which are decoded into
        *single*, and the pairs of the others; None if no row is left.
        """
        while len(rows):
            found = pairs_of(rows.properties())
            if isinstance(found, Pairs):
                return rows, places, found
            for at in np.flatnonzero(found).tolist():
                single[int(places[at])] = decode_message(rows.record(at))
            rows, places = rows.only(~found), places[~found]
        return rows, places, None

    @property
    def _needs_pairs(self) -> bool:
        return not _OF_PROPERTIES.isdisjoint(self._schema.names)

    def _from_columns(self, rows: Rows, pairs: Pairs | None) -> pa.RecordBatch:
        made: dict[str, Callable[[], pa.Array]] = {
            **_of_queue(self._part, len(rows)),
            "offset": lambda: pa.array(rows.offsets),
            "timestamp": lambda: _times(rows.stored_ms),
            "bornTimestamp": lambda: _times(rows.born_ms),
        }
        if pairs is not None:
            made |= {
                "key": lambda: self._keys(pairs),
                "value": lambda: _values(rows, pairs),
                "tag": lambda: pairs.last(TAGS)[0],
                "properties": pairs.maps,
                "messageId": lambda: _message_ids(rows, pairs),
                "headers": lambda: pairs.headers(_HEADERS),
            }
        return pa.record_batch([made[name]() for name in self._schema.names], schema=self._schema)

    def _keys(self, pairs: Pairs) -> pa.Array:
        """Return the keys as text, or with Kafka's names as binary."""
        return _plain_keys(pairs.last(KEYS)[0]).cast(self._schema.field("key").type)

    def _from_messages(self, messages: Sequence[StoredMessage]) -> pa.RecordBatch:
        rows = [self._row(message) for message in messages]
        columns = []
        for name, kind in zip(self._schema.names, self._schema.types, strict=True):
            values = [row[name] for row in rows]
            columns.append(_times(np.array(values)) if kind == _TIME else pa.array(values, kind))
        return pa.record_batch(columns, schema=self._schema)

    def _row(self, message: StoredMessage) -> dict[str, Any]:
        own = [pair for pair in message.properties.items() if pair[0] not in RESERVED_PROPERTIES]
        return {
            "key": plain_key(message.key or "") or None,
            "value": value_of(message.body, message.properties.get(TOMBSTONE)),
            "topic": self._part.topic,
            "qid": self._part.qid,
            "partition": int(number_of(self._part.qid)),
            "offset": message.queue_offset,
            "timestamp": message.store_ms,
            "timestampType": _STORED_TIME,
            "bornTimestamp": message.born_ms,
            "tag": message.tag,
            "properties": own,
            "messageId": message.message_id,
            "headers": [{"key": name, "value": text.encode()} for name, text in own] or None,
        }


def _values(rows: Rows, pairs: Pairs) -> pa.Array:
    tombstones, missing = pairs.last(TOMBSTONE)
    return rows.bodies() if missing.all() else values_of(rows.bodies(), tombstones)


def _message_ids(rows: Rows, pairs: Pairs) -> pa.Array:
    """Return the producers' IDs; of messages without one, the IDs of their positions in the log."""
    ids, missing = pairs.last(UNIQ_KEY)
    if not missing.any():
        return ids
    places = np.zeros(len(rows), np.int64)
    places[missing] = np.arange(np.count_nonzero(missing))
    own = pa.array(rows.place_ids(missing)).take(pa.array(places))
    return pc.if_else(pa.array(missing), own, ids)


def values_of(bodies: pa.Array, tombstones: pa.Array) -> pa.Array:
    """Return the values of messages with *bodies* and the property *tombstones*, null if absent."""
    for tombstone, value in ((NULL, None), (EMPTY, b"")):
        same = pc.equal(bodies, pa.scalar(BODIES[tombstone], bodies.type))
        chosen = pc.and_(same, pc.fill_null(pc.equal(tombstones, tombstone), False))
        bodies = pc.if_else(chosen, pa.scalar(value, bodies.type), bodies)
    return bodies


def _plain_keys(keys: pa.Array) -> pa.Array:
    """Return *keys* without surrounding blanks; null if empty."""
    plain = pc.utf8_trim(keys, characters=BLANKS)
    return pc.if_else(pc.equal(plain, ""), None, plain)


def _times(ms: np.ndarray) -> pa.Array:
    beyond = (ms < _FIRST_MS) | (ms > _LAST_MS)
    micros = np.where(beyond, 0, ms) * 1000
    return pa.array(micros, pa.int64(), mask=beyond if beyond.any() else None).cast(_TIME)
