"""Folders of Parquet files by date and micro-batch.

A micro-batch replaces the folders of its own name, so its rows are stored once even if Spark runs
it twice. Its files are written to a folder with a leading dot and moved in one step per folder: a
reader sees all of a batch's rows of a day, or none. While a batch is repeated after a crash, its
folders may be missing for a moment. The folder name contains the name of the query, so an archive
with another checkpoint replaces no folders: it adds the rows that it reads.
"""

from __future__ import annotations

import json
import time
from dataclasses import dataclass

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as sf

from thin_client.spark.connected import is_connected
from thin_client.spark.lake.files import children, delete, read_lines
from thin_client.spark.lake.kept_format import refuse_table
from thin_client.spark.lake.names import BATCH, DATE, RECORD, TOPIC
from thin_client.spark.lake.rows import DAY_MS, ORDER, day, gathered, settings_of, sized
from thin_client.spark.lake.schemas import new_columns
from thin_client.spark.lake.typed import kinds
from thin_client.spark.option_values import OptionError

#: Prefix of Spark's folders for unfinished files.
_UNFINISHED = ".spark-staging-"


@dataclass(frozen=True, slots=True)
class ParquetFolders:
    """The folder *path*.

    Args:
        path: a Spark path.
        target: approximate size of a file in bytes; None: one file for each task and day.
    """

    spark: SparkSession
    path: str
    target: int | None

    def prepare(self, rows: DataFrame) -> None:
        """Compare the columns with those of earlier runs, and delete unfinished files of jobs that
        were killed more than a day ago.

        Spark Connect has no means to delete files. Raises OptionError also for a Delta table, and
        for a damaged record of the columns.
        """
        refuse_table(self.spark, self.path)
        self._compare(rows)
        if not is_connected(self.spark):
            self._sweep()

    def _compare(self, rows: DataFrame) -> None:
        """Record the columns of *rows*: files alone would let a type change unnoticed.

        Each record is a line of columns that were new, and none is ever replaced.
        """
        record = f"{self.path.rstrip('/')}/{RECORD}"
        lines = read_lines(self.spark, record)
        try:
            there = {name: kind for line in lines for name, kind in json.loads(line).items()}
        except (ValueError, AttributeError) as error:
            raise OptionError(
                f"{record} does not have the columns of the archive: {error}"
            ) from None
        wanted = kinds(rows.schema)
        new = new_columns(there, wanted, f"the archive {self.path}")
        if new:
            line = json.dumps({name: wanted[name] for name in new})
            self.spark.range(1).select(sf.lit(line).alias("value")).write.mode("append").text(
                record
            )

    def _sweep(self) -> None:
        oldest_ms = time.time_ns() // 1_000_000 - DAY_MS
        for found in children(self.spark, self.path):
            if found.path.startswith(_UNFINISHED) and found.modified_ms < oldest_ms:
                delete(self.spark, f"{self.path.rstrip('/')}/{found.path}")

    def checkpoint(self) -> str:
        """Return a folder in *path*."""
        return f"{self.path.rstrip('/')}/_checkpoint"

    def close(self) -> None:
        """Do nothing: there is no connection."""

    def write(self, batch: DataFrame, query: str, number: int) -> None:
        """Write *batch* to the folders of its name, replacing their content."""
        rows = batch.withColumn(DATE, day()).withColumn(BATCH, sf.lit(f"{query}-{number:09d}"))
        with settings_of(batch.sparkSession, sized(self.target) if self.target else {}):
            # The writer sorts by folder anyway: sorting here also keeps each file in queue order.
            gathered(rows, (DATE, TOPIC), self.target).sortWithinPartitions(
                DATE, BATCH, TOPIC, *ORDER
            ).write.mode("overwrite").option("partitionOverwriteMode", "dynamic").partitionBy(
                DATE, BATCH
            ).parquet(self.path)
