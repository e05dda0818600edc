"""The format of an archive, by its name."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager

from pyspark.sql import SparkSession

from thin_client.spark.lake.compaction import Compaction
from thin_client.spark.lake.destination import Destination
from thin_client.spark.lake.names import FORMATS
from thin_client.spark.lake.parquet import ParquetFolders
from thin_client.spark.lake.parquet_merge import ParquetMerge
from thin_client.spark.option_values import OptionError, one_of

#: Libraries of the extra ``lake``, and what they need themselves.
_LIBRARIES = ("deltalake", "pyiceberg", "arro3", "sqlalchemy")


def checked(format: str, catalog: Mapping[str, str]) -> str:
    """Return the name of a format. Raises OptionError if *catalog* does not belong to it."""
    name = one_of(*FORMATS)("format", format)
    if catalog and name != "iceberg":
        raise OptionError(f"catalog is for the format iceberg: the format is {name}")
    return name


def destination(
    spark: SparkSession,
    path: str,
    *,
    format: str,
    catalog: Mapping[str, str],
    target: int | None,
) -> Destination:
    """Return the place *path* in *format*. Raises OptionError.

    Args:
        spark: the session of the job.
        path: a Spark path; of the format ``iceberg`` a table, as in ``lake.orders``.
        format: one of FORMATS.
        catalog: options of the Iceberg catalog, beside the user's configuration.
        target: approximate size of a file in bytes; None: as many files as there are tasks.
    """
    name = checked(format, catalog)
    with library_of(name):
        if name == "delta":
            from thin_client.spark.lake.delta import Delta

            return Delta(spark, path, target)
        if name == "iceberg":
            from thin_client.spark.lake.iceberg import Iceberg

            return Iceberg(spark, path, catalog, target)
    return ParquetFolders(spark, path, target)


def compaction(
    spark: SparkSession,
    path: str,
    *,
    format: str,
    catalog: Mapping[str, str],
    checkpoint: str | None,
) -> Compaction:
    """Return the archive at *path*, whose small files can be merged. Raises OptionError.

    Args:
        spark: the session of the job.
        path: as of ``destination``.
        format: one of FORMATS.
        catalog: options of the Iceberg catalog, beside the user's configuration.
        checkpoint: the archive's, of the format ``parquet``; None: ``_checkpoint`` in *path*.
    """
    name = checked(format, catalog)
    if checkpoint is not None and name != "parquet":
        raise OptionError(f"checkpoint is for the format parquet: the format is {name}")
    with library_of(name):
        if name == "delta":
            from thin_client.spark.lake.delta_merge import DeltaMerge

            return DeltaMerge(spark, path)
        if name == "iceberg":
            from thin_client.spark.lake.iceberg_merge import IcebergMerge

            return IcebergMerge(spark, path, catalog)
    folder = path.rstrip("/")
    return ParquetMerge(spark, folder, (checkpoint or f"{folder}/_checkpoint").rstrip("/"))


@contextmanager
def library_of(format: str) -> Iterator[None]:
    """Convert the error for a missing library of *format* to an OptionError."""
    try:
        yield
    except ModuleNotFoundError as error:
        missing = (error.name or "").partition(".")[0]
        if missing not in _LIBRARIES:
            raise
        raise OptionError(
            f"{missing} is not installed: the format {format} needs the extra 'lake', as in"
            " pip install 'orderlane[server,lake]'"
        ) from None
