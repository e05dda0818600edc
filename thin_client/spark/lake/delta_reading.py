"""The rows of a Delta table, from its Parquet files."""

from __future__ import annotations

import pyarrow as pa
from deltalake import DeltaTable
from deltalake.exceptions import TableNotFoundError
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as sf
from pyspark.sql.pandas.types import from_arrow_schema
from pyspark.sql.types import StructType

from thin_client.spark.lake.files import qualified
from thin_client.spark.option_values import OptionError

#: Features by which a Parquet file alone does not tell a table's rows.
_UNREADABLE = {"deletionVectors", "columnMapping"}
#: Property with the kind of column mapping, none by default.
_MAPPING = "delta.columnMapping.mode"


def partitions(spark: SparkSession, path: str) -> list[DataFrame]:
    """Return the rows of each partition of the table at *path*; at least one frame, maybe empty;
    all have the same columns in the same order.

    The values of partition columns are in the table's log, not in its files. A frame for each of
    them, instead of one joined with them, lets Spark leave out the partitions that a query does not
    need: a job that goes on day by day would read the whole table each day. Raises OptionError.
    """
    root = qualified(spark, path).rstrip("/")
    try:
        table = DeltaTable(root)
    except TableNotFoundError:
        raise OptionError(f"there is no Delta table at {path}") from None
    if used := sorted(_features(table) & _UNREADABLE):
        raise OptionError(
            f"the Delta table {path} uses {used[0]}, which this job cannot read: copy it to a table"
            " without"
        )
    schema = from_arrow_schema(pa.schema(table.schema()))
    keys = table.metadata().partition_columns
    stored = StructType([each for each in schema if each.name not in keys])
    frames = []
    for values in table.partitions() if keys else [{}]:
        # The empty text stands for null.
        chosen = [(key, "=", values[key] or "") for key in keys] or None
        files = table.file_uris(file_pruning_predicate=chosen)
        if files:
            rows = spark.read.schema(stored).parquet(*[_at(root, table, file) for file in files])
            frames.append(
                rows.select(
                    *(
                        sf.lit(values[each.name]).cast(each.dataType).alias(each.name)
                        if each.name in keys
                        else each.name
                        for each in schema
                    )
                )
            )
    return frames or [spark.createDataFrame([], schema)]


def _features(table: DeltaTable) -> set[str]:
    """Return the features that a reader needs. Tables of reader version 2 list none: they have
    column mapping by their property.
    """
    named = set(table.protocol().reader_features or ())
    if table.metadata().configuration.get(_MAPPING, "none") != "none":
        named.add("columnMapping")
    return named


def _at(root: str, table: DeltaTable, file: str) -> str:
    """Return Spark's path of a *file* that the library names."""
    base = table.table_uri.rstrip("/")
    for start in (base, base.removeprefix("file://"), root):
        if file.startswith(f"{start}/"):
            return f"{root}{file.removeprefix(start)}"
    return file
