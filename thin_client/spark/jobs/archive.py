"""A topic to Parquet, exactly once, in folders by date::

    PATH/date=2026-01-31/batch=<query>-<number>/part-….parquet
    PATH/_checkpoint

*date* is the day, in UTC, on which the broker stored a message. A micro-batch replaces the folders
that bear its own name, so one that Spark runs twice leaves its rows once. Its files are made beside
them, in a folder whose name begins with a dot, and moved in one step a folder: a reader sees all
rows that a batch has of a day, or none. While a batch is run again after a crash, its folders may
be away for a moment. The name of the query is part of the folder's, so an archive that begins anew
with another checkpoint replaces nothing: it adds what it reads.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as sf

from thin_client.spark.jobs.session import failing_in_words
from thin_client.spark.jobs.words import with_defaults
from thin_client.spark.options import OptionError, ReadOptions
from thin_client.spark.progress import ProgressListener

DATE, BATCH = "date", "batch"
_DAY_MS = 86_400_000
#: How often to look whether the job was told to end.
_LOOK_S = 0.5
_QUERY = "sql.streaming.queryId"
#: Where Spark makes files that it moves in one step.
_UNFINISHED = ".spark-staging-"


@dataclass(frozen=True, slots=True)
class Archived:
    """What a job did."""

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
    """Write what *options*, those of the source, read to *path*.

    Begins at the earliest messages unless told otherwise, goes on from *checkpoint* (default:
    ``_checkpoint`` in *path*), and ends with what was there when it began; *continuous*: goes on
    until *ending* is set, with a micro-batch *every* so often, as in ``"10 seconds"``. Raises
    OptionError with the sentence of whatever ended it before.
    """
    if every is not None and not continuous:
        raise OptionError("every says how often a continuous archive writes: set continuous too")
    beginnings = [name for name in options if name.lower().startswith("starting")]
    given = dict(options) if beginnings else with_defaults(options, startingOffsets="earliest")
    ReadOptions.parse(given, streaming=True)  # before Spark starts anything
    with failing_in_words():
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
        query = batch.sparkSession.sparkContext.getLocalProperty(_QUERY)
        _replace(batch, path, f"{query}-{number:09d}")

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
    """Write *batch* to the folders of its *name*, instead of what stands there."""
    days = sf.expr(f"date_from_unix_date(CAST(unix_millis(timestamp) DIV {_DAY_MS} AS INT))")
    rows = batch.withColumn(DATE, days).withColumn(BATCH, sf.lit(name))
    # The writer would sort by folder anyway: sorted so, a file has the order of the queues too.
    rows.sortWithinPartitions(DATE, BATCH, "topic", "qid", "offset").write.mode("overwrite").option(
        "partitionOverwriteMode", "dynamic"
    ).partitionBy(DATE, BATCH).parquet(path)


def _sweep(spark: SparkSession, path: str) -> None:
    """Delete what jobs that were killed more than a day ago left unfinished."""
    context = spark.sparkContext
    # Spark's own file systems, whatever *path* is on; PySpark has no public way to them.
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
