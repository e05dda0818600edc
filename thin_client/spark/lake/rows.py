"""How the rows of a micro-batch are divided into files."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import pyarrow as pa
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as sf
from pyspark.sql.pandas.types import to_arrow_schema

from thin_client.spark.lake.names import DATE, FOLDERS, TOPIC, encodings

DAY_MS = 86_400_000
#: The order of rows of a topic in a file.
ORDER = ("qid", "offset")


def day() -> Column:
    """Return the UTC day of the column ``timestamp``, also before 1970."""
    time = "unix_millis(timestamp)"
    return sf.expr(
        f"date_from_unix_date(CAST(({time} - pmod({time}, {DAY_MS})) DIV {DAY_MS} AS INT))"
    )


def folders(rows: DataFrame) -> DataFrame:
    """Add the columns FOLDERS, under which the tasks divide *rows*."""
    topic = sf.col(TOPIC)
    for character, text in encodings().items():
        topic = sf.replace(topic, sf.lit(character), sf.lit(text))
    return rows.withColumns({FOLDERS[0]: day(), FOLDERS[1]: topic})


def write_files(rows: DataFrame, folder: str, target: int | None) -> None:
    """Write *rows*, which have the columns FOLDERS, as Parquet files below *folder*."""
    with as_lake_files(rows.sparkSession, target):
        gathered(rows, FOLDERS, target).sortWithinPartitions(*FOLDERS, *ORDER).write.partitionBy(
            *FOLDERS
        ).parquet(folder)


def gathered(rows: DataFrame, within: tuple[str, ...], target: int | None) -> DataFrame:
    """Return *rows* in tasks of about *target* bytes, each with few values of *within*; as they are
    without a *target*.
    """
    return rows if target is None else rows.hint("rebalance", *within)


@contextmanager
def as_lake_files(spark: SparkSession, target: int | None) -> Iterator[None]:
    """Set what the files of a table need inside the context."""
    settings = {
        # Spark's older type has no time zone.
        "spark.sql.parquet.outputTimestampType": "TIMESTAMP_MICROS",
    }
    if target is not None:
        settings |= sized(target)
    with settings_of(spark, settings):
        yield


def sized(target: int) -> dict[str, str]:
    """Return the settings by which Spark gives a task about *target* bytes.

    It measures rows between tasks, compressed: about the size of their Parquet files.
    """
    return {
        "spark.sql.adaptive.enabled": "true",
        "spark.sql.adaptive.coalescePartitions.enabled": "true",
        "spark.sql.adaptive.advisoryPartitionSizeInBytes": str(target),
        # Fewer tasks than the machine could run at a time, rather than small files.
        "spark.sql.adaptive.coalescePartitions.parallelismFirst": "false",
    }


@contextmanager
def settings_of(spark: SparkSession, settings: dict[str, str]) -> Iterator[None]:
    """Change *settings* of the session inside the context."""
    before = {name: spark.conf.get(name, None) for name in settings}
    for name, value in settings.items():
        spark.conf.set(name, value)
    try:
        yield
    finally:
        for name, former in before.items():
            if former is None:
                spark.conf.unset(name)
            else:
                spark.conf.set(name, former)


def arrow_schema(rows: DataFrame, *, dated: bool, small_integers: bool = True) -> pa.Schema:
    """Return the columns of a table for *rows*; *dated*: with ``date``.

    None is required, and no part of one either: files that Spark has read and written again have
    only optional columns. Without *small_integers* all have 32 bits or more.
    """
    least_bits = 8 if small_integers else 32
    fields = [_stored(field, least_bits) for field in to_arrow_schema(rows.schema, timezone="UTC")]
    return pa.schema([*fields, pa.field(DATE, pa.date32())] if dated else fields)


def _stored(field: pa.Field, least_bits: int) -> pa.Field:
    kind = field.type
    if pa.types.is_map(kind):
        keys, items = (_stored(each, least_bits) for each in (kind.key_field, kind.item_field))
        kind = pa.map_(keys.type, items)
    elif pa.types.is_list(kind):
        kind = pa.list_(_stored(kind.value_field, least_bits))
    elif pa.types.is_struct(kind):
        kind = pa.struct([_stored(kind.field(n), least_bits) for n in range(kind.num_fields)])
    elif pa.types.is_integer(kind) and kind.bit_width < least_bits:
        kind = pa.int32()
    return pa.field(field.name, kind, nullable=True)
