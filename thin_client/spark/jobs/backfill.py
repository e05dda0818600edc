"""Parquet to a topic, at a rate, each key in its order.

All rows of a key go through one task, sorted. An archive says itself in which order: by offset in
each queue, and by the time of storing between the queues that a key has been in. Other files name
their columns for it.

At least once: a task that fails is run again, with the same names of messages (``outgoing.py``).
With a file for its progress a job goes day by day, and run again it begins with the first day that
was not sent whole, whose messages bear the same names again.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pyspark.sql import Column, DataFrame, Observation, SparkSession, Window
from pyspark.sql import functions as sf

from thin_client.delivery import json_path, new_message_id
from thin_client.spark.jobs.archive import DATE
from thin_client.spark.jobs.progress_file import Progress
from thin_client.spark.jobs.session import failing_in_words
from thin_client.spark.jobs.words import with_defaults
from thin_client.spark.options import OptionError, WriteOptions
from thin_client.spark.outgoing import COLUMNS, sharding_key

#: What makes rows those of an archive: their order needs no other word.
_PLACE = ("topic", "qid", "offset", "timestamp")
_LANE, _DAY, _ORDER = "_lane", "_day", "_order"


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """What to send, and how.

    *select*: expressions of SQL that make the columns of messages (default: those that are there).
    *where*: which rows. *order_by*: columns that order the rows of a key (default: as an archive
    has them). *sharding_path*: a JSON path into the value; what it finds chooses the queue, and is
    what keeps its order. *rows_per_second*: of the whole job. *partitions*: tasks (default: as many
    as run at a time). *keep_ids*: messages keep the ids in the column ``messageId``. *progress*:
    file on the driver that makes the job go on, day by day.
    """

    select: Sequence[str] = ()
    where: str | None = None
    order_by: Sequence[str] = ()
    sharding_path: str | None = None
    rows_per_second: float | None = None
    partitions: int | None = None
    keep_ids: bool = False
    progress: Path | None = None

    def about(self) -> dict[str, str]:
        """What of it decides which messages are sent, and in which order: a job that goes on has to
        be told the same.
        """
        said = {
            "select": ", ".join(self.select),
            "where": self.where,
            "order_by": ", ".join(self.order_by),
            "sharding_path": self.sharding_path,
            "keep_ids": "yes" if self.keep_ids else None,
        }
        return {name: text for name, text in said.items() if text}


def backfill(
    spark: SparkSession, options: Mapping[str, str], path: str, *, topic: str, plan: Plan
) -> int:
    """Send the rows at *path* to *topic*, with *options* of the sink; how many were sent.

    Raises OptionError with the sentence of whatever ended it.
    """
    given = {**options, "topic": topic}
    WriteOptions.parse(given, streaming=False)  # before Spark reads anything
    _check(plan)
    progress = Progress.read(
        plan.progress,
        {"path": path, "topic": topic, **plan.about()},
        partitions=plan.partitions or spark.sparkContext.defaultParallelism,
        job=new_message_id(),
    )
    progress.keep()
    sent = 0
    with failing_in_words():
        rows = spark.read.parquet(path)
        if plan.where is not None:
            rows = rows.where(plan.where)
        for day, some in _days(rows, progress):
            sent += _send(_messages(some, plan, progress.partitions), given, plan, progress, day)
            progress.add(day)
    return sent


def _check(plan: Plan) -> None:
    if plan.rows_per_second is not None and not plan.rows_per_second > 0:
        raise OptionError(
            f"the rate is {plan.rows_per_second:g}: expected more than 0 rows a second"
        )
    if plan.sharding_path is not None:
        try:
            json_path(plan.sharding_path)
        except ValueError as error:
            raise OptionError(str(error)) from None


def _days(rows: DataFrame, progress: Progress) -> Iterator[tuple[str, DataFrame]]:
    """What is still to be sent, in turn, by day; all at once where no progress is kept."""
    if progress.path is None:
        yield "", rows
        return
    if DATE not in rows.columns:
        raise OptionError(
            f"progress is kept by the column {DATE!r}, which is not there: go without progress"
        )
    text = sf.col(DATE).cast("string")
    days = sorted(row[0] or "" for row in rows.select(text).distinct().collect())
    for day in days:
        if day not in progress.done:
            yield day, rows.where(sf.coalesce(text, sf.lit("")) == day)


def _messages(rows: DataFrame, plan: Plan, partitions: int) -> DataFrame:
    """The messages, each key in one partition and in its order."""
    wanted = [sf.expr(each) for each in plan.select] or [
        sf.col(name)
        for name in COLUMNS
        if name in rows.columns and name != "topic" and (name != "messageId" or plan.keep_ids)
    ]
    order, by_place = _order(rows, plan)
    messages = rows.select(*wanted, *(each.alias(f"{_ORDER}{i}") for i, each in enumerate(order)))
    if "value" not in messages.columns:
        raise OptionError(
            "there is no column 'value', which becomes the message's body: make one with select, as"
            " in to_json(struct(*)) AS value"
        )
    if plan.sharding_path is not None:
        messages = messages.withColumn("shardingKey", _found_at(plan.sharding_path))
    columns = [f"{_ORDER}{i}" for i in range(len(order))]
    lane = [_plain(name) for name in ("shardingKey", "key") if name in messages.columns]
    # What has no key has no order: it goes wherever there is room.
    spread = sf.xxhash64(*columns).cast("string")
    messages = messages.withColumn(_LANE, sf.coalesce(*lane, spread))
    messages = messages.repartition(partitions, _LANE)
    if by_place:
        # A broker's clock may step back, offsets do not: inside a queue they count alone.
        topic, qid, offset, timestamp = columns
        queue = Window.partitionBy(_LANE, topic, qid).orderBy(offset)
        reached = sf.max(timestamp).over(queue.rowsBetween(Window.unboundedPreceding, 0))
        messages = messages.withColumn(timestamp, reached)
        columns = [timestamp, topic, qid, offset]
    own = [name for name in messages.columns if name in COLUMNS]
    return messages.sortWithinPartitions(*columns).select(*own)


def _plain(name: str) -> Column:
    """A column of keys, as ``plain_key`` has them; null where nothing is left."""
    plain = sf.regexp_replace(sf.col(name), r"^[\x00-\x20]+|[\x00-\x20]+$", "")
    return sf.when(plain != "", plain)


def _order(rows: DataFrame, plan: Plan) -> tuple[list[Column], bool]:
    """By what rows are ordered, and whether that is the place of an archived message."""
    if plan.order_by:
        return [sf.col(name) for name in plan.order_by], False
    if missing := [name for name in _PLACE if name not in rows.columns]:
        raise OptionError(
            "nothing says in which order the rows of a key go (an archive would have a column"
            f" {missing[0]!r}): name columns with order_by"
        )
    return [sf.col(name) for name in _PLACE], True


def _found_at(path: str) -> Column:
    def found(value: Any) -> str | None:
        return sharding_key(path, value)

    # With Arrow it would want pandas, which nothing else here needs.
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
