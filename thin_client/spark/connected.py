"""Operations of jobs, in forms for a classic session and for one of Spark Connect.

The client of Spark Connect has no SparkContext, no RDDs and no Java objects: it sends plans to a
server. Functions of a plan run there, so the server's Python needs this package. Paths, too, are
those of the server.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator
from typing import Any

from pyspark.sql import DataFrame, Row, SparkSession
from pyspark.sql import functions as sf
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import StructType

#: What a function makes of the rows of a partition: tuples with the columns of a schema.
Mapped = Callable[[Iterable[Row]], Iterator[tuple[Any, ...]]]

#: Spark's name for the property with the id of a query.
_QUERY = "sql.streaming.queryId"
#: More numbers than a cluster has cores: Spark splits a range into as many parts as run at a time.
_MANY = 100_000
#: Rows of a mapped batch.
_BATCH = 10_000


def is_connected(spark: SparkSession) -> bool:
    """Return whether *spark* is a session of Spark Connect."""
    return type(spark).__module__.startswith("pyspark.sql.connect.")


def parallelism(spark: SparkSession) -> int:
    """Return the number of tasks that run at the same time, Spark's default parallelism."""
    if not is_connected(spark):
        return int(spark.sparkContext.defaultParallelism)
    parts = spark.range(_MANY).select(sf.spark_partition_id()).distinct()
    return int(parts.count())


def query_id(batch: DataFrame, checkpoint: str) -> str:
    """Return the id of the query that passed *batch* to ``foreachBatch``, which *checkpoint*
    keeps.
    """
    spark = batch.sparkSession
    if not is_connected(spark):
        return str(spark.sparkContext.getLocalProperty(_QUERY))
    (written,) = spark.read.text(f"{checkpoint.rstrip('/')}/metadata").collect()
    return str(json.loads(written[0])["id"])


def map_partitions(rows: DataFrame, function: Mapped, schema: str) -> DataFrame:
    """Return what *function* yields for each partition of *rows*; *schema*: its columns as DDL.

    Columns of *rows* are numbers, texts, binaries or maps.
    """
    spark = rows.sparkSession
    if not is_connected(spark):
        return spark.createDataFrame(rows.rdd.mapPartitions(function), schema, verifySchema=False)
    # Spark needs pandas for this, as the client of Spark Connect does anyway.
    columns = to_arrow_schema(StructType.fromDDL(schema), timezone="UTC")

    def batches(given: Iterable[Any]) -> Iterator[Any]:
        return record_batches(function(_rows(given)), columns)

    return rows.mapInArrow(batches, schema)


def _rows(batches: Iterable[Any]) -> Iterator[Row]:
    for batch in batches:
        row = Row(*batch.schema.names)
        columns = (each.to_pylist(maps_as_pydicts="strict") for each in batch.columns)
        yield from (row(*values) for values in zip(*columns, strict=True))


def record_batches(rows: Iterable[tuple[Any, ...]], columns: Any) -> Iterator[Any]:
    """Yield *rows* as Arrow batches with the schema *columns*."""
    import pyarrow as pa

    def batch() -> Any:
        values = zip(*some, strict=True)
        arrays = [pa.array(each, field.type) for each, field in zip(values, columns, strict=True)]
        return pa.RecordBatch.from_arrays(arrays, schema=columns)

    some: list[tuple[Any, ...]] = []
    for row in rows:
        some.append(row)
        if len(some) == _BATCH:
            yield batch()
            some = []
    if some:
        yield batch()
