"""The rows of a Delta table, from its Parquet files."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import pyarrow as pa
from deltalake import DeltaTable
from deltalake.exceptions import TableNotFoundError
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as sf
from pyspark.sql.pandas.types import from_arrow_schema
from pyspark.sql.types import StructType

from thin_client.spark.lake.delta_parts import parts_of
from thin_client.spark.lake.files import qualified
from thin_client.spark.lake.names import in_pairs
from thin_client.spark.lake.parts import Part, days_of
from thin_client.spark.lake.stored_rows import days_in, filtered, holding, of_day
from thin_client.spark.option_values import OptionError

#: Features by which a Parquet file alone does not tell a table's rows.
_UNREADABLE = {"deletionVectors", "columnMapping"}
#: Property with the kind of column mapping, none by default.
_MAPPING = "delta.columnMapping.mode"


@dataclass(frozen=True, slots=True)
class DeltaRows:
    """Rows of the table at *path*, each time of its current version.

    The values of partition columns are in the table's log, not in its files. A frame for each
    partition adds them, and a table of some years has thousands of partitions: so only those become
    frames that a job needs.
    """

    spark: SparkSession
    path: str

    def rows(self, where: str | None = None) -> DataFrame:
        """Return the rows. Raises OptionError."""
        table = self._table()
        return filtered(self._of(table, self._chosen(table, where)), where)

    def days(self, where: str | None = None) -> list[str]:
        """Return the days of the table's log that may have rows. Raises OptionError."""
        found = days_of(self._chosen(self._table(), where))
        return days_in(self.rows(where)) if found is None else found

    def rows_of(self, day: str, where: str | None = None) -> DataFrame:
        """Return the rows of one day. Raises OptionError."""
        table = self._table()
        parts = parts_of(table)
        if days_of(parts) is not None:
            parts = [each for each in parts if each.day == day]
        return filtered(of_day(self._of(table, parts), day), where)

    def _table(self) -> DeltaTable:
        try:
            table = DeltaTable(qualified(self.spark, self.path).rstrip("/"))
        except TableNotFoundError:
            raise OptionError(f"there is no Delta table at {self.path}") from None
        if used := sorted(_features(table) & _UNREADABLE):
            raise OptionError(
                f"the Delta table {self.path} uses {used[0]}, which this job cannot read: copy it"
                " to a table without"
            )
        return table

    def _chosen(self, table: DeltaTable, where: str | None) -> Sequence[Part]:
        return holding(self.spark, parts_of(table), _schema(table), where)

    def _of(self, table: DeltaTable, parts: Sequence[Part]) -> DataFrame:
        """Return the rows of *parts*; the columns are in the order of the table's."""
        schema, keys = _schema(table), table.metadata().partition_columns
        if not parts:
            return self.spark.createDataFrame([], schema)
        stored = StructType([each for each in schema if each.name not in keys])
        root = qualified(self.spark, self.path).rstrip("/")
        frames = []
        for part in parts:
            files = [_at(root, file) for file in part.files]
            rows = self.spark.read.schema(stored).parquet(*files)
            frames.append(
                rows.select(
                    *(
                        sf.lit(part.values[each.name]).cast(each.dataType).alias(each.name)
                        if each.name in keys
                        else each.name
                        for each in schema
                    )
                )
            )
        return in_pairs(frames, DataFrame.union)


def _schema(table: DeltaTable) -> StructType:
    found: StructType = from_arrow_schema(pa.schema(table.schema()))
    return found


def _features(table: DeltaTable) -> set[str]:
    """Return the features that a reader needs. Tables of reader version 2 list none: they have
    column mapping by their property.
    """
    named = set(table.protocol().reader_features or ())
    if table.metadata().configuration.get(_MAPPING, "none") != "none":
        named.add("columnMapping")
    return named


def _at(root: str, file: str) -> str:
    """Return Spark's path of a *file* that the log names."""
    return file if "://" in file or file.startswith("/") else f"{root}/{file}"
