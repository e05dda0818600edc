"""Baselines for the bulk source: two plain Python data sources with prepared rows in memory.

Columns and sizes are the same. One yields tuples, the other Arrow batches.
"""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime
from typing import Any

import pyarrow as pa
from pyspark.sql.datasource import DataSource, DataSourceReader, InputPartition

from thin_client.spark.records import arrow_schema, column_names, schema_ddl

#: Prepared rows; only their offsets change.
_READY = 10_000
_KEYS = 4_000


class _Rows(DataSourceReader):
    """*rows* in all, evenly in *partitions* partitions, with values of *bytes* bytes."""

    def __init__(self, options: dict[str, str]) -> None:
        self._rows = int(options["rows"])
        self._partitions = int(options["partitions"])
        self._bytes = int(options["bytes"])

    def partitions(self) -> list[InputPartition]:
        """Return the number of each partition."""
        return [InputPartition(number) for number in range(self._partitions)]

    def _share(self, partition: InputPartition) -> int:
        return len(range(partition.value, self._rows, self._partitions))

    def _ready(self, partition: InputPartition) -> list[tuple[Any, ...]]:
        now = datetime(2026, 1, 1, tzinfo=UTC)
        place = ("bench", f"broker-a_{partition.value}")
        return [
            (
                f"key-{number % _KEYS}",
                number.to_bytes(self._bytes, "big"),
                *place,
                number,
                now,
                now,
                None,
                {},
                f"{number:032X}",
            )
            for number in range(_READY)
        ]


class TupleRows(_Rows):
    """A source that yields tuples."""

    def read(self, partition: InputPartition) -> Iterator[tuple[Any, ...]]:
        """The rows of a task."""
        ready = [(row[:4], row[5:]) for row in self._ready(partition)]
        for offset in range(self._share(partition)):
            before, after = ready[offset % _READY]
            yield (*before, offset, *after)


class ArrowRows(_Rows):
    """A source that yields batches."""

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """The rows of a task."""
        schema = arrow_schema(column_names(include_headers=False))
        columns = zip(*self._ready(partition), strict=True)
        ready = [
            pa.array([list(each) for each in column] if pa.types.is_map(kind) else column, kind)
            for column, kind in zip(columns, schema.types, strict=True)
        ]
        at = schema.get_field_index("offset")
        rows = self._share(partition)
        for start in range(0, rows, _READY):
            count = min(_READY, rows - start)
            ready[at] = pa.array(range(start, start + count), pa.int64())
            yield pa.record_batch([each.slice(0, count) for each in ready], schema=schema)


class _Source(DataSource):
    def schema(self) -> str:
        """Return the columns of orderlane's source."""
        return schema_ddl(column_names(include_headers=False))


class TupleSource(_Source):
    """``format("bench-tuples")``"""

    @classmethod
    def name(cls) -> str:
        """The format."""
        return "bench-tuples"

    def reader(self, schema: Any) -> DataSourceReader:
        """For ``spark.read``."""
        return TupleRows(self.options)


class ArrowSource(_Source):
    """``format("bench-arrow")``"""

    @classmethod
    def name(cls) -> str:
        """The format."""
        return "bench-arrow"

    def reader(self, schema: Any) -> DataSourceReader:
        """For ``spark.read``."""
        return ArrowRows(self.options)
