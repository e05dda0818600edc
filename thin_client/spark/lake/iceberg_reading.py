"""The rows of an Iceberg table, from its Parquet files."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import closing

from pyiceberg.exceptions import NoSuchTableError
from pyiceberg.table import Table
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.pandas.types import from_arrow_schema

from thin_client.spark.lake.iceberg import open_catalog
from thin_client.spark.lake.names import DATE
from thin_client.spark.lake.rows import day
from thin_client.spark.option_values import OptionError


def rows_of(spark: SparkSession, name: str, options: Mapping[str, str]) -> DataFrame:
    """Return the rows of the table *name*, with a column ``date`` if it has a ``timestamp``.

    Columns are found by their names: files from before a column was renamed have it null. Raises
    OptionError.
    """
    with closing(open_catalog(name, options)) as catalog:
        try:
            table = catalog.load_table(name)
        except NoSuchTableError:
            raise OptionError(f"there is no Iceberg table {name}") from None
        files = _files(table, name)
    schema = from_arrow_schema(table.schema().as_arrow())
    rows = spark.read.schema(schema).parquet(*files) if files else spark.createDataFrame([], schema)
    if "timestamp" not in rows.columns or DATE in rows.columns:
        return rows
    return rows.withColumn(DATE, day())


def _files(table: Table, name: str) -> list[str]:
    files = []
    for each in table.scan().plan_files():
        if each.delete_files:
            raise OptionError(
                f"the Iceberg table {name} has files with deleted rows, which this job cannot read:"
                " rewrite them first"
            )
        files.append(each.file.file_path)
    return files
