"""The sink: content, order and names of the messages made of rows."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import pytest

from testkit.spark_site import SparkGateway
from thin_client.key_hash import key_hash

SCHEMA = "value binary, key string, tag string, properties map<string,string>"


def stored(spark: Any, gateway: SparkGateway, topic: str) -> list[Any]:
    """Return the messages of *topic*, queue by queue in order."""
    options = {"servers": gateway.servers, "group": "look", "subscribe": topic}
    found = spark.read.format("orderlane").options(**options).load().collect()
    return sorted(found, key=lambda row: (row.qid, row.offset))


def save(rows: Any, gateway: SparkGateway, **options: str) -> None:
    sink = rows.write.format("orderlane").mode("append")
    sink.options(servers=gateway.servers, **options).save()


def test_rows_become_messages_in_the_queues_of_their_keys(
    spark: Any, gateway: SparkGateway
) -> None:
    topic = gateway.a_topic(queues=3)
    keys = [f"key-{n % 5}" for n in range(40)]
    rows = [(b"%d" % n, key, "t", {"n": str(n)}) for n, key in enumerate(keys)]
    save(spark.createDataFrame(rows, SCHEMA).coalesce(1), gateway, topic=topic, batchSize="7")
    found = stored(spark, gateway, topic)
    assert {row.qid for row in found} == {f"broker-a_{abs(key_hash(key)) % 3}" for key in keys}
    for key in set(keys):
        bodies = [int(row.value) for row in found if row.key == key]
        assert bodies == [n for n, each in enumerate(keys) if each == key]
    assert {row.tag for row in found} == {"t"}
    assert all(row.properties["n"] == row.value.decode() for row in found)
    assert len({row.messageId for row in found}) == 40


def test_rows_written_again_under_the_same_job_name_are_recognized_as_repeats(
    spark: Any, gateway: SparkGateway
) -> None:
    topic = gateway.a_topic()
    rows = spark.createDataFrame([(f"{n}",) for n in range(10)], "value string").coalesce(2)
    for _ in range(2):
        save(rows, gateway, topic=topic, jobId="nightly/2026-01-31", batchIdProperty="came-by")
    found = stored(spark, gateway, topic)
    names = {row.properties["came-by"] for row in found}
    assert (len(found), len({row.messageId for row in found}), len(names)) == (20, 10, 10)
    assert all(name.startswith("nightly/2026-01-31/") for name in names)


def test_a_repeated_batch_gives_its_messages_the_same_names(
    spark: Any, gateway: SparkGateway, tmp_path: Path
) -> None:
    """A crash between a batch and Spark's commit of it makes Spark run the batch again."""
    here, there = gateway.a_topic(), gateway.a_topic()
    gateway.send(here, [b"%d" % n for n in range(10)], key="k")
    source = {"servers": gateway.servers, "group": gateway.a_group(), "subscribe": here}

    def copy() -> str:
        rows = spark.readStream.format("orderlane").options(**source, startingOffsets="earliest")
        sink = rows.load().select("value", "key").writeStream.format("orderlane")
        sink = sink.options(servers=gateway.servers, topic=there, checkpointLocation=str(tmp_path))
        query = sink.trigger(availableNow=True).start()
        query.awaitTermination()
        return str(query.id)

    query = copy()
    shutil.rmtree(tmp_path / "commits")
    assert copy() == query
    found = stored(spark, gateway, there)
    names = {row.properties["sparkBatchId"] for row in found}
    assert (len(found), len({row.messageId for row in found}), len(names)) == (20, 10, 10)
    assert all(name.startswith(f"{query}/1/") for name in names)


def test_rows_that_were_read_can_be_written(spark: Any, gateway: SparkGateway) -> None:
    """All columns of the source, with a binary key, headers, and rows without a value."""
    topic, copy = gateway.a_topic(queues=3), gateway.a_topic(queues=3)
    rows = [
        (b"k1", b"body", "broker-a_2", [("h", b"1")]),
        (b"k1", None, None, None),
        (None, b"", "broker-a_1", []),
    ]
    schema = "key binary, value binary, qid string, headers array<struct<key:string,value:binary>>"
    save(spark.createDataFrame(rows, schema).coalesce(1), gateway, topic=topic)
    options = {"servers": gateway.servers, "group": "look", "includeHeaders": "true"}
    read = spark.read.format("orderlane").options(**options, subscribe=topic).load()
    save(read.withColumn("extra", read["offset"]), gateway, topic=copy, extraColumns="ignore")
    copied = spark.read.format("orderlane").options(**options, subscribe=copy).load()
    kept = ["key", "value", "qid", "tag", "messageId"]
    of_first, of_copy = (
        sorted((tuple(row[name] for name in kept) for row in each.collect()), key=repr)
        for each in (read, copied)
    )
    assert of_first == of_copy
    values = {(row.key, row.value): row for row in copied.collect()}
    assert values["k1", b"body"].qid == "broker-a_2"
    assert ("h", b"1") in [(each.key, each.value) for each in values["k1", b"body"].headers]
    assert set(values) == {("k1", b"body"), ("k1", None), (None, b"")}


@pytest.mark.parametrize(
    ("columns", "options", "sentence"),
    [
        ("1 AS id", {"topic": "orders"}, "column 'id' cannot be written"),
        ("1 AS value", {"topic": "orders"}, "column 'value' is int: cast it to string or binary"),
        ("'x' AS value", {}, "set the option topic, or add the column 'topic'"),
        ("'x' AS value", {"topic": "orders", "group": "g"}, "group does not apply to write"),
        ("'x' AS value", {"topic": "no spaces"}, "cannot be sent to the topic 'no spaces'"),
    ],
)
def test_invalid_writes_are_refused_before_any_task(
    spark: Any, gateway: SparkGateway, columns: str, options: dict[str, str], sentence: str
) -> None:
    with pytest.raises(Exception, match=sentence):
        save(spark.range(1).selectExpr(columns), gateway, **options)


def test_a_topic_is_not_overwritten(spark: Any, gateway: SparkGateway) -> None:
    sink = spark.range(1).selectExpr("'x' AS value").write.format("orderlane")
    with pytest.raises(Exception, match=r"a topic cannot be overwritten: write with mode\('append"):
        sink.options(servers=gateway.servers, topic="orders").mode("overwrite").save()


def test_a_row_without_a_required_value_ends_the_job_and_names_its_place(
    spark: Any, gateway: SparkGateway
) -> None:
    topic = gateway.a_topic()
    rows = spark.createDataFrame([(b"a",), (b"\xff",)], "key binary").coalesce(1)
    rows = rows.selectExpr("key", "'x' AS value")
    with pytest.raises(Exception, match="RowRefused: row 1 of partition 0 has the key") as refused:
        save(rows, gateway, topic=topic)
    assert "Traceback" not in str(refused.value)
