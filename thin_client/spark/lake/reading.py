"""The rows of an archive in each format.

Spark reads the Parquet files of a table's current version, which the format's own library lists; so
no jar has to fit the version of Spark.
"""

from __future__ import annotations

from collections.abc import Mapping

from pyspark.sql import SparkSession

from thin_client.spark.lake.formats import checked, library_of
from thin_client.spark.lake.parquet_merge import refuse_unfinished
from thin_client.spark.lake.stored_rows import ParquetRows, StoredRows


def archived(
    spark: SparkSession, path: str, *, format: str, catalog: Mapping[str, str]
) -> StoredRows:
    """Return the rows at *path*, with a column ``date`` if it is an archive. Raises OptionError.

    Args:
        spark: the session of the job.
        path: a Spark path; of the format ``iceberg`` a table, as in ``lake.orders``.
        format: ``parquet``, ``delta`` or ``iceberg``.
        catalog: options of the Iceberg catalog, beside the user's configuration.
    """
    name = checked(format, catalog)
    with library_of(name):
        if name == "delta":
            from thin_client.spark.lake.delta_reading import DeltaRows

            return DeltaRows(spark, path)
        if name == "iceberg":
            from thin_client.spark.lake.iceberg_reading import IcebergRows

            return IcebergRows(spark, path, catalog)
    # Later batches may have more columns. This lists the files.
    rows = spark.read.option("mergeSchema", "true").parquet(path)
    refuse_unfinished(spark, path)
    return ParquetRows(rows)
