"""Tables of Spark's catalog that are topics."""

from __future__ import annotations

from typing import Any

import pytest
from pyspark.errors import AnalysisException

from testkit.spark_site import SparkGateway


def test_a_table_is_read_written_and_followed(spark: Any, gateway: SparkGateway) -> None:
    topic, group = gateway.a_topic(queues=2), gateway.a_group()
    gateway.send(topic, [b"a", b"b"], key="k")
    options = {"servers": gateway.servers, "group": group, "subscribe": topic}
    of = ", ".join(f"{name} '{value}'" for name, value in options.items())

    def bodies(table: str = "lanes") -> list[str]:
        rows = spark.sql(f"SELECT CAST(value AS STRING) AS body FROM {table}").collect()
        return sorted(row.body for row in rows)

    spark.sql(f"CREATE TABLE lanes USING orderlane OPTIONS ({of}, batchSize '7')")
    try:
        assert bodies() == ["a", "b"]
        spark.sql("INSERT INTO lanes (key, value) VALUES ('k', CAST('c' AS BINARY))")
        frame = spark.createDataFrame([("k", b"d")], "key string, value binary")
        frame.write.format("orderlane").mode("append").saveAsTable("lanes")
        frame.writeTo("lanes").append()
        assert bodies() == ["a", "b", "c", "d", "d"]
        spark.sql("INSERT INTO lanes SELECT * FROM lanes WHERE value = CAST('a' AS BINARY)")
        assert bodies() == ["a", "a", "b", "c", "d", "d"]
        queues = spark.sql("SELECT DISTINCT qid FROM lanes WHERE value = CAST('a' AS BINARY)")
        assert queues.count() == 1  # a row keeps its queue
        assert spark.read.option("endingTimestamp", "1").table("lanes").count() == 0
        assert spark.readStream.table("lanes").isStreaming
        spark.catalog.createTable("catalogued", source="orderlane", **options)
        assert bodies("catalogued") == bodies()
        with pytest.raises(AnalysisException, match="a topic cannot be overwritten"):
            spark.sql("INSERT OVERWRITE lanes (value) VALUES (CAST('x' AS BINARY))")
    finally:
        for table in ("lanes", "catalogued"):
            spark.sql(f"DROP TABLE IF EXISTS {table}")


def test_a_table_with_invalid_options_is_not_created(spark: Any) -> None:
    with pytest.raises(AnalysisException, match="did you mean subscribe"):
        spark.sql("CREATE TABLE lanes USING orderlane OPTIONS (servers 'x', subscrib 'y')")
    assert not spark.catalog.tableExists("lanes")


def test_a_table_that_saves_no_options_is_refused_in_a_sentence(
    spark: Any, gateway: SparkGateway
) -> None:
    """Spark asks the source nothing when it creates a table from rows."""
    topic = gateway.a_topic(queues=1)
    words = r"no options: set them in the query, or create the table by CREATE TABLE name USING"
    frame = spark.createDataFrame([("k", b"d")], "key string, value binary")
    to = frame.write.format("orderlane").option("servers", gateway.servers).option("topic", topic)
    to.saveAsTable("saved")
    try:
        with pytest.raises(AnalysisException, match=words):
            spark.table("saved").collect()
        with pytest.raises(AnalysisException, match=words):
            spark.sql("INSERT INTO saved SELECT 'k' AS key, CAST('e' AS BINARY) AS value")
    finally:
        spark.sql("DROP TABLE saved")
    with pytest.raises(AnalysisException, match=words):
        spark.sql(
            f"CREATE TABLE saved USING orderlane OPTIONS (servers '{gateway.servers}', topic"
            f" '{topic}') AS SELECT 'k' AS key, CAST('e' AS BINARY) AS value"
        )
    assert not spark.catalog.tableExists("saved")
