"""The format that a folder has already: a job of another format must not touch it.

A forgotten ``--format`` would continue the query of a Delta table by its checkpoint, with Parquet
folders: no version of the table has their messages, and a vacuum of the table deletes them.
"""

from __future__ import annotations

from pyspark.sql import SparkSession

from thin_client.spark.lake.files import files_below
from thin_client.spark.lake.names import RECORD
from thin_client.spark.option_values import OptionError

#: Folder with the log of a Delta table.
_LOG = "_delta_log"


def refuse_table(spark: SparkSession, path: str) -> None:
    """Raise OptionError if *path* is the folder of a Delta table."""
    if files_below(spark, f"{path.rstrip('/')}/{_LOG}"):
        raise OptionError(
            f"{path} is the folder of a Delta table: set format to delta, or choose another folder"
        )


def refuse_folders(spark: SparkSession, path: str) -> None:
    """Raise OptionError if *path* is an archive of Parquet folders."""
    if files_below(spark, f"{path.rstrip('/')}/{RECORD}"):
        raise OptionError(
            f"{path} is an archive of Parquet folders: set format to parquet, or choose another"
            " folder"
        )
