"""The rows of an Iceberg table, from its Parquet files."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass

from pyiceberg.exceptions import NoSuchTableError
from pyiceberg.table import Table
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.types import DateType, StringType, StructField, StructType, TimestampType

from thin_client.spark.lake.iceberg import open_catalog
from thin_client.spark.lake.iceberg_columns import Names, columns_of, names_of, read_files
from thin_client.spark.lake.iceberg_parts import parts_of
from thin_client.spark.lake.names import DATE, TOPIC
from thin_client.spark.lake.parts import Part, days_of, span_us
from thin_client.spark.lake.rows import day as day_of_timestamp
from thin_client.spark.lake.stored_rows import days_in, filtered, holding, of_day
from thin_client.spark.option_values import OptionError

_TIMESTAMP = "timestamp"
_VALUES = StructType([StructField(DATE, DateType()), StructField(TOPIC, StringType())])


@dataclass(frozen=True, slots=True)
class IcebergRows:
    """Rows of the table *name*, each time of its current snapshot, with a column ``date`` if it has
    a ``timestamp``.

    Spark cannot leave out files by a date that it computes: the manifests choose those of a day.
    Columns are found by all their names, since files keep earlier ones.
    """

    spark: SparkSession
    name: str
    options: Mapping[str, str]

    def rows(self, where: str | None = None) -> DataFrame:
        """Return the rows. Raises OptionError."""
        schema, names, parts = self._chosen(where)
        return filtered(self._of(schema, names, parts), where)

    def days(self, where: str | None = None) -> list[str]:
        """Return the days of the manifests that may have rows. Raises OptionError."""
        found = days_of(self._chosen(where)[2])
        return days_in(self.rows(where)) if found is None else found

    def rows_of(self, day: str, where: str | None = None) -> DataFrame:
        """Return the rows of one day. Raises OptionError."""
        with self._opened() as table:
            schema, names = columns_of(table), names_of(table, self.name)
            dated = _is_dated(schema)
            parts = parts_of(table, self.name, day=day if dated else None)
        rows = self._of(schema, names, parts)
        if dated and day:  # of a table that is not partitioned by day, files have other days too
            begin, end = (f"timestamp_micros({each}L)" for each in span_us(day))
            rows = rows.where(f"{_TIMESTAMP} >= {begin} AND {_TIMESTAMP} < {end}")
        return filtered(of_day(rows, day), where)

    @contextmanager
    def _opened(self) -> Iterator[Table]:
        with closing(open_catalog(self.name, self.options)) as catalog:
            try:
                yield catalog.load_table(self.name)
            except NoSuchTableError:
                raise OptionError(f"there is no Iceberg table {self.name}") from None

    def _chosen(self, where: str | None) -> tuple[StructType, Names, Sequence[Part]]:
        with self._opened() as table:
            schema, names = columns_of(table), names_of(table, self.name)
            parts: Sequence[Part] = parts_of(table, self.name)
        if not _is_dated(schema):  # it may have a date of its own
            return schema, names, [Part({}, each.files) for each in parts]
        return schema, names, holding(self.spark, parts, _VALUES, where)

    def _of(self, schema: StructType, names: Names, parts: Iterable[Part]) -> DataFrame:
        files = [file for part in parts for file in part.files]
        if files:
            rows = read_files(self.spark, files, schema, names)
        else:
            rows = self.spark.createDataFrame([], schema)
        return rows.withColumn(DATE, day_of_timestamp()) if _is_dated(schema) else rows


def _is_dated(schema: StructType) -> bool:
    """Return whether the day of a row follows from its time."""
    return DATE not in schema.names and any(
        each.name == _TIMESTAMP and isinstance(each.dataType, TimestampType) for each in schema
    )
