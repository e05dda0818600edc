"""Archive a topic as Parquet, exactly once, in folders by date::

    PATH/date=2026-01-31/batch=<query>-<number>/part-….parquet
    PATH/_checkpoint

*date* is the UTC day on which the broker stored a message. A micro-batch replaces the folders of
its own name, so its rows are stored once even if Spark runs it twice. Its files are written to a
folder with a leading dot and moved in one step per folder: a reader sees all of a batch's rows of a
day, or none. While a batch is repeated after a crash, its folders may be missing for a moment. The
folder name contains the name of the query, so an archive with another checkpoint replaces no
folders: it adds the rows that it reads.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as sf

from thin_client.spark.jobs.connected import is_connected, query_id
from thin_client.spark.jobs.session import errors_as_sentences
from thin_client.spark.jobs.words import with_defaults
from thin_client.spark.kafka_names import with_own_columns
from thin_client.spark.options import OptionError, ReadOptions
from thin_client.spark.progress import ProgressListener

DATE, BATCH = "date", "batch"
_DAY_MS = 86_400_000
#: Interval of checks for *ending*.
_LOOK_S = 0.5
#: Prefix of Spark's folders for unfinished files.
_UNFINISHED = ".spark-staging-"


@dataclass(frozen=True, slots=True)
class Archived:
    """Result of an archive job."""

    rows: int
    batches: int


def archive(
    spark: SparkSession,
    options: Mapping[str, str],
    path: str,
    *,
    checkpoint: str | None = None,
    continuous: bool = False,
    every: str | None = None,
    ending: threading.Event | None = None,
) -> Archived:
    """Archive the messages that the source reads, by default from the earliest.

    Args:
        spark: the session of the query.
        options: those of the source.
        path: the folder of the archive.
        checkpoint: where a repeated run continues; default: ``_checkpoint`` in *path*.
        continuous: run until *ending* is set; by default only to the topics' ends at the start.
        every: interval of micro-batches with *continuous*; default: ``"10 seconds"``.
        ending: stops the job when set.

    Raises OptionError, with one sentence, if the job fails.
    """
    if every is not None and not continuous:
        raise OptionError("every is the interval of a continuous archive: set continuous too")
    beginnings = [name for name in options if name.lower().startswith("starting")]
    own = with_own_columns(options)
    given = own if beginnings else with_defaults(own, startingOffsets="earliest")
    ReadOptions.parse(given, streaming=True)  # fails before Spark starts a query
    with errors_as_sentences():
        return _run(
            spark,
            given,
            path,
            checkpoint=checkpoint or f"{path.rstrip('/')}/_checkpoint",
            trigger=_trigger(every, continuous=continuous),
            ending=ending or threading.Event(),
        )


def _run(
    spark: SparkSession,
    options: Mapping[str, str],
    path: str,
    *,
    checkpoint: str,
    trigger: Mapping[str, Any],
    ending: threading.Event,
) -> Archived:
    def write(batch: DataFrame, number: int) -> None:
        _replace(batch, path, f"{query_id(batch, checkpoint)}-{number:09d}")

    _sweep(spark, path)
    rows = spark.readStream.format("orderlane").options(**options).load()
    writer = rows.writeStream.foreachBatch(write).option("checkpointLocation", checkpoint)
    with ProgressListener(options).listening(spark) as listener:
        query = writer.queryName(listener.query).trigger(**trigger).start()
        try:
            while not query.awaitTermination(_LOOK_S):
                if ending.is_set():
                    break
        finally:
            query.stop()
            listener.wait_for_end(query)
    return Archived(listener.rows, listener.batches)


def _replace(batch: DataFrame, path: str, name: str) -> None:
    """Write *batch* to the folders of its *name*, replacing their content."""
    days = sf.expr(f"date_from_unix_date(CAST(unix_millis(timestamp) DIV {_DAY_MS} AS INT))")
    rows = batch.withColumn(DATE, days).withColumn(BATCH, sf.lit(name))
    # The writer sorts by folder anyway: sorting here also keeps each file in queue order.
    rows.sortWithinPartitions(DATE, BATCH, "topic", "qid", "offset").write.mode("overwrite").option(
        "partitionOverwriteMode", "dynamic"
    ).partitionBy(DATE, BATCH).parquet(path)


def _sweep(spark: SparkSession, path: str) -> None:
    """Delete unfinished files of jobs that were killed more than a day ago.

    Spark Connect has no means to do so.
    """
    if is_connected(spark):
        return
    context = spark.sparkContext
    # Spark's file systems support any *path*; PySpark has no public API for them.
    folder = context._jvm.org.apache.hadoop.fs.Path(path)
    files = folder.getFileSystem(context._jsc.hadoopConfiguration())
    oldest_ms = time.time_ns() // 1_000_000 - _DAY_MS
    for found in files.listStatus(folder) if files.exists(folder) else ():
        unfinished = found.getPath().getName().startswith(_UNFINISHED)
        if unfinished and found.getModificationTime() < oldest_ms:
            files.delete(found.getPath(), True)


def _trigger(every: str | None, *, continuous: bool) -> dict[str, Any]:
    if not continuous:
        return {"availableNow": True}
    return {"processingTime": every or "10 seconds"}
