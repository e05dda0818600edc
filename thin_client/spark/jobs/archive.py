"""Archive topics exactly once: as Parquet folders by date, a Delta table or an Iceberg table.

Spark runs a micro-batch again if its driver died before Spark's own commit of it. Each format
(``thin_client.spark.lake``) recognizes such a batch by the name of the query and the number of the
batch. By default, folders of Parquet files::

    PATH/date=2026-01-31/batch=<query>-<number>/part-….parquet
    PATH/_checkpoint

*date* is the UTC day on which the broker stored a message.
"""

from __future__ import annotations

import threading
from collections.abc import Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass
from typing import Any

from pyspark.sql import DataFrame, SparkSession

from thin_client.spark.connected import query_id
from thin_client.spark.jobs.session import errors_as_sentences
from thin_client.spark.jobs.words import with_defaults
from thin_client.spark.kafka_names import with_own_columns
from thin_client.spark.lake.destination import Destination
from thin_client.spark.lake.files import qualified
from thin_client.spark.lake.formats import checked, destination
from thin_client.spark.lake.names import OWN_COLUMNS, exposes
from thin_client.spark.lake.schemas import BodySchema, check_topics, read_schemas
from thin_client.spark.lake.typed import TypedColumns
from thin_client.spark.option_values import size_bytes
from thin_client.spark.options import OptionError, ReadOptions
from thin_client.spark.progress import ProgressListener

#: Interval of checks for *ending*.
_LOOK_S = 0.5
#: Limits of the size of a file.
_LEAST_BYTES, _MOST_BYTES = 1 << 16, 1 << 34


@dataclass(frozen=True, slots=True)
class Archived:
    """Result of an archive job."""

    rows: int
    batches: int


@dataclass(frozen=True, slots=True)
class _Place:
    """Where an archive is, as ``destination`` takes it; without a session."""

    path: str
    format: str
    catalog: Mapping[str, str]
    target: int | None

    def at(self, spark: SparkSession) -> Destination:
        return destination(
            spark, self.path, format=self.format, catalog=self.catalog, target=self.target
        )


def archive(
    spark: SparkSession,
    options: Mapping[str, str],
    path: str,
    *,
    format: str = "parquet",
    catalog: Mapping[str, str] | None = None,
    target_file_size: str | None = None,
    schemas: str | None = None,
    checkpoint: str | None = None,
    continuous: bool = False,
    every: str | None = None,
    ending: threading.Event | None = None,
) -> Archived:
    """Archive the messages that the source reads, by default from the earliest.

    Args:
        spark: the session of the query.
        options: those of the source.
        path: the folder of the archive; of the format ``iceberg`` a table, as in ``lake.orders``.
        format: ``parquet``, ``delta`` or ``iceberg``.
        catalog: options of the Iceberg catalog, as ``pyiceberg`` names them, beside the user's
            configuration of ``pyiceberg``.
        target_file_size: approximate size of a file, 64k to 16g, as in ``"128m"``; by default a
            micro-batch has one file for each task and day.
        schemas: content of a schema file (``lake.schemas``): further columns with the typed fields
            of JSON bodies, and ``bodyFits``. Later runs may add columns, but not change types; rows
            that are archived stay as they are.
        checkpoint: where a repeated run continues; default: ``_checkpoint`` in *path*, or at the
            location of the Iceberg table. In the archive its name needs a leading underscore.
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
    read = ReadOptions.parse(given, streaming=True)  # fails before Spark starts a query
    target = None if target_file_size is None else file_size(target_file_size)
    checked(format, catalog or {})
    bodies = () if schemas is None else read_schemas(schemas, "the schema file")
    check_topics((each.topic for each in bodies), read.selection, "the schema file")
    with errors_as_sentences():
        return _run(
            spark,
            given,
            _Place(path, format, catalog or {}, target),
            bodies=bodies,
            checkpoint=checkpoint,
            trigger=_trigger(every, continuous=continuous),
            ending=ending or threading.Event(),
        )


def file_size(text: str) -> int:
    """Parse the target size of a file, in bytes. Raises OptionError."""
    return size_bytes("target_file_size", text, least=_LEAST_BYTES, most=_MOST_BYTES)


def _run(
    spark: SparkSession,
    options: Mapping[str, str],
    place: _Place,
    *,
    bodies: Sequence[BodySchema],
    checkpoint: str | None,
    trigger: Mapping[str, Any],
    ending: threading.Event,
) -> Archived:
    rows = spark.readStream.format("orderlane").options(**options).load()
    if bodies:
        reserved = {*rows.columns, "headers", *OWN_COLUMNS}
        rows = TypedColumns.of(spark, bodies, reserved=reserved).added_to(rows)
    with closing(place.at(spark)) as there:
        there.prepare(rows)
        kept = _checkpoint(spark, there.checkpoint(), checkpoint)

    def write(batch: DataFrame, number: int) -> None:
        # A server of Spark Connect runs this in another process, so it takes no session along.
        # Spark shows the whole traceback of an error that is no sentence.
        with errors_as_sentences(), closing(place.at(batch.sparkSession)) as there:
            there.write(batch, query_id(batch, kept), number)

    writer = rows.writeStream.foreachBatch(write).option("checkpointLocation", kept)
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


def _checkpoint(spark: SparkSession, own: str, given: str | None) -> str:
    """Return the folder *given*, or else the archive's *own*. Raises OptionError for a folder that
    a compaction would delete after the retention: the archive would start over.
    """
    if not given:
        return own
    if exposes(_absolute(spark, own.rpartition("/")[0] or "/"), _absolute(spark, given)):
        raise OptionError(
            f"the checkpoint {given} is in the archive, where cleanups delete it: move the folder"
            " out of the archive, or to a name with a leading underscore"
        )
    return given


def _absolute(spark: SparkSession, path: str) -> str:
    try:
        return qualified(spark, path)
    except OptionError:  # relative to a folder of the server of Spark Connect
        return path


def _trigger(every: str | None, *, continuous: bool) -> dict[str, Any]:
    if not continuous:
        return {"availableNow": True}
    return {"processingTime": every or "10 seconds"}
