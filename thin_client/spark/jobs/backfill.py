"""Send an archive or other Parquet files to a topic, rate-limited, in order within each key.

One task sends all rows of a key, sorted. For an archive the order is known: by offset within a
queue, and by stored time between the queues of a key. Other files need *order_by*.

Messages are sent at least once: a repeated task creates the same message names (``outgoing.py``).
With a progress file a job sends day by day; a repeated job starts with the first unfinished day,
whose messages have the same names again. Days are sent together if a broker's clock stepped back
over the midnight between them.

Offsets begin again when a topic is deleted and created again. An archive does not tell the lives of
a topic apart, so a job fails if offsets and times contradict each other within a key.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from pyspark.sql import Column, DataFrame, Observation, SparkSession, Window
from pyspark.sql import functions as sf
from pyspark.sql.types import TimestampType

from thin_client.delivery import json_path, new_message_id
from thin_client.spark.connected import parallelism
from thin_client.spark.jobs.progress_file import LocalFile, Progress, TextFile
from thin_client.spark.jobs.session import errors_as_sentences
from thin_client.spark.jobs.words import with_defaults
from thin_client.spark.lake.files import SparkFile
from thin_client.spark.lake.formats import checked
from thin_client.spark.lake.parts import follows, span_us
from thin_client.spark.lake.reading import archived
from thin_client.spark.lake.stored_rows import StoredRows
from thin_client.spark.options import OptionError, WriteOptions
from thin_client.spark.outgoing import COLUMNS, sharding_key

#: Columns of an archive, which define the order of its rows.
_PLACE = ("topic", "qid", "offset", "timestamp")
#: Columns of an archive that the messages do not take over: their keys choose the queues, and the
#: headers are the properties again.
_ANEW = ("topic", "qid", "headers")
_LANE, _ORDER = "_lane", "_order"
#: A clock is not set back further than this; a topic that was created again looks as if it were.
_STEP_BACK_MIN = 10


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """Rows to send, and how to send them.

    Args:
        select: SQL expressions for the columns of messages; default: the columns of the files.
        where: SQL condition for the rows.
        order_by: columns that order the rows of a key; default: the order of an archive.
        sharding_path: JSON path into the value; its result chooses the queue and is the key whose
            order is kept.
        rows_per_second: maximum rate of the whole job.
        partitions: number of tasks; default: Spark's default parallelism. A job that continues
            from a progress file has as many as the first one.
        keep_ids: keep the message IDs in the column ``messageId``.
        progress: file with which a repeated job continues, day by day: on the driver, or with a
            scheme (``hdfs://…``, ``s3a://…``) where Spark's file systems have it.
        format: ``parquet``, ``delta`` or ``iceberg``.
        catalog: options of the Iceberg catalog, beside the user's configuration of ``pyiceberg``.
    """

    select: Sequence[str] = ()
    where: str | None = None
    order_by: Sequence[str] = ()
    sharding_path: str | None = None
    rows_per_second: float | None = None
    partitions: int | None = None
    keep_ids: bool = False
    progress: Path | str | None = None
    format: str = "parquet"
    catalog: Mapping[str, str] = field(default_factory=dict)

    def about(self) -> dict[str, str]:
        """Return the settings that determine the messages and their order; a job that continues
        from a progress file needs the same ones.
        """
        said = {
            "select": ", ".join(self.select),
            "where": self.where,
            "order_by": ", ".join(self.order_by),
            "sharding_path": self.sharding_path,
            "keep_ids": "yes" if self.keep_ids else None,
            "format": None if self.format == "parquet" else self.format,
        }
        return {name: text for name, text in said.items() if text}


def backfill(
    spark: SparkSession, options: Mapping[str, str], path: str, *, topic: str, plan: Plan
) -> int:
    """Send the rows at *path* to *topic* with the sink's *options*; return the number of rows sent.

    Raises OptionError, with one sentence, if the job fails.
    """
    given = {**options, "topic": topic}
    write = WriteOptions.parse(given, streaming=False)  # fails before Spark reads a file
    _check(plan, write)
    # Each step has a name of its own, or equal rows of two days would look like repeats.
    given = {name: text for name, text in given.items() if name.lower() != "jobid"}
    sent = 0
    file = _file(spark, plan.progress)
    with errors_as_sentences(), nullcontext() if file is None else file.held():
        progress = Progress.read(
            file,
            {"path": path, "topic": topic, **plan.about()},
            partitions=plan.partitions or parallelism(spark),
            job=write.job_id or new_message_id(),
        )
        _check_names(progress, plan, write)
        progress.keep()
        stored = archived(spark, path, format=plan.format, catalog=plan.catalog)
        for days, rows in _steps(stored, plan, progress):
            messages = _messages(rows, plan, progress.partitions)
            sent += _send(messages, given, plan, progress, days[0])
            progress.add(*days)
    return sent


def _file(spark: SparkSession, given: Path | str | None) -> TextFile | None:
    """Return the file of a job's progress; one with a scheme is Spark's."""
    if given is None:
        return None
    if isinstance(given, str) and "://" in given:
        return SparkFile(spark, given)
    return LocalFile(Path(given))


def _check_names(progress: Progress, plan: Plan, write: WriteOptions) -> None:
    """Raise OptionError for what differs from the first run and is in the names of its messages."""
    if write.job_id not in (None, progress.job):
        raise OptionError(
            f"{progress.file} is of a job with the jobId {progress.job!r}, not {write.job_id!r}:"
            " leave jobId out, or choose another file"
        )
    if plan.partitions not in (None, progress.partitions):
        raise OptionError(
            f"{progress.file} is of a job with {progress.partitions} partitions, which the names of"
            f" its messages contain, not with {plan.partitions}: leave partitions out, or choose"
            " another file"
        )


def _check(plan: Plan, write: WriteOptions) -> None:
    checked(plan.format, plan.catalog)
    if plan.rows_per_second is not None and write.max_rows_per_second is not None:
        raise OptionError(
            "maxRowsPerSecond limits each task, and the rate the whole job: set one of them"
        )
    if plan.rows_per_second is not None and not plan.rows_per_second > 0:
        raise OptionError(f"the rate is {plan.rows_per_second:g} rows/s: expected a number above 0")
    if plan.sharding_path is not None:
        try:
            json_path(plan.sharding_path)
        except ValueError as error:
            raise OptionError(str(error)) from None


def _steps(
    stored: StoredRows, plan: Plan, progress: Progress
) -> Iterator[tuple[list[str], DataFrame]]:
    """Yield the remaining rows day by day, with the days; all at once without a progress file."""
    if progress.file is None:
        yield [""], stored.rows(plan.where)
        return
    left = [day for day in stored.days(plan.where) if day not in progress.done]
    while left:
        days = [left.pop(0)]
        rows = last = stored.rows_of(days[0], plan.where)
        while left and not plan.order_by and follows(days[-1], left[0]):
            following = stored.rows_of(left[0], plan.where)
            if not _overlap(last, following, days[-1]):
                break
            rows, last = rows.unionByName(following, allowMissingColumns=True), following
            days.append(left.pop(0))
        yield days, rows


def _overlap(rows: DataFrame, following: DataFrame, day: str) -> bool:
    """Return whether a queue of an archive has higher offsets among the last *rows* of *day* than
    among the first ones of the *following* day.
    """
    if not _is_placed(rows):
        return False
    _, midnight_us = span_us(day)
    near_us = _STEP_BACK_MIN * 60_000_000
    queue = ["topic", "qid"]
    ends = (
        rows.where(f"timestamp >= timestamp_micros({midnight_us - near_us}L)")
        .groupBy(*queue)
        .agg(sf.max("offset").alias("last"))
    )
    begins = (
        following.where(f"timestamp < timestamp_micros({midnight_us + near_us}L)")
        .groupBy(*queue)
        .agg(sf.min("offset").alias("first"))
    )
    return bool(ends.join(begins, queue).where("first < last").head(1))


def _messages(rows: DataFrame, plan: Plan, partitions: int) -> DataFrame:
    """Return the messages, each key in one partition and in order."""
    wanted = [sf.expr(each) for each in plan.select] or [
        sf.col(name)
        for name in COLUMNS
        if name in rows.columns and name not in _ANEW and (name != "messageId" or plan.keep_ids)
    ]
    order, by_place = _order(rows, plan)
    messages = rows.select(*wanted, *(each.alias(f"{_ORDER}{i}") for i, each in enumerate(order)))
    if "value" not in messages.columns:
        raise OptionError(
            "column 'value' is missing: create the message's body with select, as in"
            " to_json(struct(*)) AS value"
        )
    if plan.sharding_path is not None:
        messages = messages.withColumn("shardingKey", _found_at(plan.sharding_path))
    columns = [f"{_ORDER}{i}" for i in range(len(order))]
    lane = [_plain(name) for name in ("shardingKey", "key") if name in messages.columns]
    # Rows without a key have no order: they are spread over all partitions.
    spread = sf.xxhash64(*columns).cast("string")
    messages = messages.withColumn(_LANE, sf.coalesce(*lane, spread))
    messages = messages.repartition(partitions, _LANE)
    if by_place:
        # A broker's clock may step back, offsets do not: within a queue only offsets count.
        topic, qid, offset, timestamp = columns
        queue = Window.partitionBy(_LANE, topic, qid).orderBy(offset)
        reached = sf.max(timestamp).over(queue.rowsBetween(Window.unboundedPreceding, 0))
        if _is_placed(rows):
            reached = _checked(
                reached, columns, sf.lag(offset).over(queue), sf.lag(timestamp).over(queue)
            )
        messages = messages.withColumn(timestamp, reached)
        columns = [timestamp, topic, qid, offset]
    own = [name for name in messages.columns if name in COLUMNS]
    return messages.sortWithinPartitions(*columns).select(*own)


def _plain(name: str) -> Column:
    """Return a column of keys, trimmed as ``plain_key`` does; null if empty."""
    plain = sf.regexp_replace(sf.col(name).cast("string"), r"^[\x00-\x20]+|[\x00-\x20]+$", "")
    return sf.when(plain != "", plain)


def _order(rows: DataFrame, plan: Plan) -> tuple[list[Column], bool]:
    """Return the columns that order rows, and whether they are those of an archive."""
    if plan.order_by:
        return [sf.col(name) for name in plan.order_by], False
    if missing := [name for name in _PLACE if name not in rows.columns]:
        raise OptionError(
            f"the order of a key's rows is unknown (an archive has a column {missing[0]!r}): name"
            " columns with order_by"
        )
    return [sf.col(name) for name in _PLACE], True


def _is_placed(rows: DataFrame) -> bool:
    """Return whether *rows* have the positions and times of an archive."""
    return all(name in rows.columns for name in _PLACE) and isinstance(
        rows.schema["timestamp"].dataType, TimestampType
    )


def _checked(
    reached: Column, columns: Sequence[str], former: Column, former_time: Column
) -> Column:
    """Return *reached*, the latest time up to a row of a key in the order of offsets, or fail if
    the row seems to be of an earlier life of its topic. *former*: the offset before.
    """
    topic, qid, offset, timestamp = map(sf.col, columns)
    earlier = timestamp < reached - sf.expr(f"INTERVAL {_STEP_BACK_MIN} MINUTES")
    again = (former == offset) & (former_time != timestamp)
    other = sf.when(again, former_time).otherwise(reached)
    said = sf.concat(
        *(sf.lit("OptionError: offset "), offset.cast("string"), sf.lit(" of the queue '"), qid),
        *(sf.lit("' of the topic '"), topic, sf.lit("' was stored at "), timestamp.cast("string")),
        *(sf.lit(", and an offset of the same key that is not higher at "), other.cast("string")),
        sf.lit(
            ": the topic was deleted and created again, or the clock of its broker was set back, so"
            " offsets do not tell the order; send the rows from before and after one after the"
            " other, with where on timestamp, or name the columns of the order with order_by"
        ),
    )
    return sf.when(earlier | again, sf.raise_error(said)).otherwise(reached)


def _found_at(path: str) -> Column:
    def found(value: Any) -> str | None:
        return sharding_key(path, value)

    # With Arrow it would need pandas, which no other part of this package needs.
    return sf.udf(found, "string", useArrow=False)("value")


def _send(
    messages: DataFrame, options: Mapping[str, str], plan: Plan, progress: Progress, day: str
) -> int:
    more = {"jobId": "/".join(filter(None, (progress.job, day)))}
    if plan.rows_per_second is not None:
        more["maxRowsPerSecond"] = f"{plan.rows_per_second / progress.partitions:.6f}"
    counted = Observation()
    messages.observe(counted, sf.count(sf.lit(1)).alias("rows")).write.format("orderlane").options(
        **with_defaults(options, **more)
    ).mode("append").save()
    return int(counted.get["rows"])
