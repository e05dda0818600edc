"""Parquet to a topic: per-key order, rate limit, and continuation after a failure."""

from __future__ import annotations

import json
import time
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, cast

import pyarrow.parquet as pq
import pytest
from pyspark.sql import functions as sf

from testkit.spark_site import SparkGateway
from tests.spark.lakes import FORMATS, Lake
from tests.spark.test_compaction import archived as archived_batches
from tests.spark.test_lakes import TABLES, Died, died_before, messages, place, wrapped
from thin_client.spark.jobs.backfill import Plan, backfill
from thin_client.spark.jobs.compact import compact
from thin_client.spark.jobs.progress_file import LocalFile, Progress
from thin_client.spark.lake.parquet_merge import ParquetMerge
from thin_client.spark.lake.reading import archived
from thin_client.spark.options import OptionError

DAY = datetime(2026, 1, 31, 23, 59, 59, tzinfo=UTC)
ARCHIVED = "key string, value binary, topic string, qid string, offset long, timestamp timestamp"


def values(spark: Any, gateway: SparkGateway, topic: str) -> dict[str | None, list[str]]:
    """Return the values of each key in *topic*, in the order of its queue."""
    options = {"servers": gateway.servers, "group": "look", "subscribe": topic}
    found: dict[str | None, list[str]] = {}
    for row in (
        spark.read.format("orderlane").options(**options).load().sort("qid", "offset").collect()
    ):
        found.setdefault(row.key, []).append(row.value.decode())
    return found


def send(spark: Any, gateway: SparkGateway, path: Path, topic: str, **plan: Any) -> int:
    options = {"servers": gateway.servers}
    return backfill(spark, options, str(path), topic=topic, plan=Plan(**plan))


def test_a_key_keeps_its_order_across_queues_and_clock_steps(
    spark: Any, gateway: SparkGateway, tmp_path: Path
) -> None:
    def row(key: str | None, value: str, qid: str, offset: int, second: float) -> tuple[Any, ...]:
        return key, value.encode(), "old", qid, offset, DAY + timedelta(seconds=second)

    rows = [
        # k was in queue 1 first, then in queue 0, whose offsets are lower.
        row("k", "k1", "broker-a_1", 900, 0),
        row("k", "k2", "broker-a_1", 901, 1),
        row("k", "k3", "broker-a_0", 5, 2),
        row("k", "k4", "broker-a_0", 6, 2),
        # Between l1 and l2 the broker's clock was set back.
        row("l", "l1", "broker-a_0", 7, 9),
        row("l", "l2", "broker-a_0", 8, 3),
        row("l", "l3", "broker-a_0", 9, 4),
        row(None, "n", "broker-a_0", 10, 5),
    ]
    frame = spark.createDataFrame(list(reversed(rows)), ARCHIVED).repartition(3)
    frame.write.parquet(str(tmp_path / "files"))
    topic = gateway.a_topic(queues=2)
    assert send(spark, gateway, tmp_path / "files", topic) == 8
    assert values(spark, gateway, topic) == {
        "k": ["k1", "k2", "k3", "k4"],
        "l": ["l1", "l2", "l3"],
        None: ["n"],
    }


def archive_row(
    key: str | None, value: str, offset: int, second: float, qid: str = "broker-a_0"
) -> tuple[Any, ...]:
    time = DAY + timedelta(seconds=second)
    return key, value.encode(), "old", qid, offset, time, time.date()


def test_a_clock_that_steps_back_over_midnight_leaves_keys_in_order(
    spark: Any, gateway: SparkGateway, tmp_path: Path
) -> None:
    """The later message of a key is then one of the earlier day."""
    rows = [
        archive_row("k", "k1", 5, -40_000),
        archive_row("k", "k2", 6, 2),  # 00:00:01 of the next day
        archive_row("k", "k3", 7, -3),
        archive_row("k", "k4", 8, 50_000),
        archive_row("k", "k5", 9, 100_000),
    ]
    frame = spark.createDataFrame(rows, f"{ARCHIVED}, date date")
    frame.write.partitionBy("date").parquet(str(tmp_path / "files"))
    topic, progress = gateway.a_topic(), tmp_path / "progress.json"
    assert send(spark, gateway, tmp_path / "files", topic, progress=progress) == 5
    assert values(spark, gateway, topic) == {"k": ["k1", "k2", "k3", "k4", "k5"]}
    done = ["2026-01-31", "2026-02-01", "2026-02-02"]
    assert json.loads(progress.read_text())["done"] == done


@pytest.mark.parametrize("second", [2, 0], ids=["lower", "the same"])
def test_the_lives_of_a_topic_are_not_mixed(
    spark: Any, gateway: SparkGateway, tmp_path: Path, second: int
) -> None:
    """Offsets of a topic that was created again begin at 0 again."""
    rows = [
        archive_row("k", "k1", 2, -40_000),
        archive_row("k", "k2", 9, -40_000 + 300 * second),
        archive_row("k", "k3", 9 - second, -20_000),
        archive_row("l", "l1", 4, -40_000),
        archive_row("l", "l2", 5, -20_000),
    ]
    frame = spark.createDataFrame(rows, f"{ARCHIVED}, date date")
    frame.write.parquet(str(tmp_path / "files"))
    topic = gateway.a_topic()
    with pytest.raises(OptionError, match=r"^offset 9 of the queue .* deleted and created again"):
        send(spark, gateway, tmp_path / "files", topic, partitions=1)
    assert values(spark, gateway, topic) == {}
    for where in ("timestamp < '2026-01-31 18:00:00'", "timestamp >= '2026-01-31 18:00:00'"):
        send(spark, gateway, tmp_path / "files", topic, where=where)
    assert values(spark, gateway, topic) == {"k": ["k1", "k2", "k3"], "l": ["l1", "l2"]}


def test_a_table_becomes_messages_by_sql_ordered_by_a_column(
    spark: Any, gateway: SparkGateway, tmp_path: Path
) -> None:
    rows = [(n, n % 3, -n) for n in range(30)]
    spark.createDataFrame(rows, "id int, customer int, at int").write.parquet(str(tmp_path / "t"))
    topic = gateway.a_topic(queues=4)
    sent = send(
        spark,
        gateway,
        tmp_path / "t",
        topic,
        select=("to_json(struct(id, customer)) AS value",),
        where="id < 27",
        order_by=("at",),
        sharding_path="$.customer",
    )
    assert sent == 27
    (bodies,) = values(spark, gateway, topic).values()
    orders = [json.loads(body) for body in bodies]
    for customer in range(3):
        ids = [each["id"] for each in orders if each["customer"] == customer]
        assert ids == sorted(ids, reverse=True)
        assert len(ids) == 9


def test_a_failed_job_continues_with_the_incomplete_day(
    spark: Any, gateway: SparkGateway, tmp_path: Path
) -> None:
    rows = [
        ("k" * 256 if n == 15 else f"k{n % 2}", b"%d" % n, n, f"2026-01-{1 + n // 10:02}")
        for n in range(30)
    ]
    frame = spark.createDataFrame(rows, "key string, value binary, n int, date string")
    frame.write.partitionBy("date").parquet(str(tmp_path / "bad"))
    frame.where("n <> 15").write.partitionBy("date").parquet(str(tmp_path / "good"))
    source, topic = tmp_path / "files", gateway.a_topic()
    source.symlink_to(tmp_path / "bad")
    plan: dict[str, Any] = {"order_by": ("n",), "progress": tmp_path / "progress.json"}
    with pytest.raises(OptionError, match="a key of 256 characters"):
        send(spark, gateway, source, topic, **plan)
    assert json.loads((tmp_path / "progress.json").read_text())["done"] == ["2026-01-01"]
    source.unlink()
    source.symlink_to(tmp_path / "good")
    assert send(spark, gateway, source, topic, **plan) == 19
    found = values(spark, gateway, topic)
    for which in range(2):
        once = list(dict.fromkeys(found[f"k{which}"]))
        assert once == [str(n) for n in range(30) if n % 2 == which and n != 15]
    assert send(spark, gateway, source, topic, **plan) == 0
    with pytest.raises(OptionError, match=r"holds the progress of .* order_by n, not of"):
        send(spark, gateway, source, topic, **{**plan, "order_by": ("value",)})


def test_a_rate_limits_all_tasks_together(
    spark: Any, gateway: SparkGateway, tmp_path: Path
) -> None:
    rows = [(f"{n}", n) for n in range(100)]
    spark.createDataFrame(rows, "value string, n int").write.parquet(str(tmp_path / "t"))
    began = time.monotonic()
    send(
        *(spark, gateway, tmp_path / "t", gateway.a_topic()),
        order_by=("n",),
        rows_per_second=50.0,
    )
    assert time.monotonic() - began >= 1.8


def test_rows_without_an_order_are_refused(
    spark: Any, gateway: SparkGateway, tmp_path: Path
) -> None:
    spark.createDataFrame([("x",)], "value string").write.parquet(str(tmp_path / "t"))
    with pytest.raises(OptionError, match="the order of a key's rows is unknown"):
        send(spark, gateway, tmp_path / "t", "orders")


@pytest.mark.parametrize("format", FORMATS)
def test_an_archive_of_each_format_is_sent_with_progress_on_shared_storage(
    spark: Any, gateway: SparkGateway, tmp_path: Path, format: str
) -> None:
    lake, topic = Lake(format, tmp_path), gateway.a_topic(queues=1)
    there = place(spark, lake)
    there.prepare(messages(spark, 0))
    there.write(messages(spark, 0, 1), "query", 1)
    there.write(messages(spark, 2), "query", 2)
    plan = Plan(**lake.settings, progress=f"file://{tmp_path}/progress.json")
    sent = [
        backfill(spark, {"servers": gateway.servers}, lake.path, topic=topic, plan=plan)
        for _ in range(2)
    ]
    assert sent == [3, 0]
    assert values(spark, gateway, topic) == {"k": ["0", "1", "2"]}
    kept = json.loads((tmp_path / "progress.json").read_text())
    assert kept["done"] == ["2026-01-31", "2026-02-01"]
    one_day = Plan(**lake.settings, where="date = '2026-02-01'")
    assert backfill(spark, {"servers": gateway.servers}, lake.path, topic=topic, plan=one_day) == 2


@pytest.mark.parametrize("format", FORMATS)
def test_a_day_is_read_without_the_files_of_other_days(
    spark: Any, tmp_path: Path, format: str
) -> None:
    """Their files are deleted here, so that reading one fails."""
    lake = Lake(format, tmp_path)
    there = place(spark, lake)
    there.prepare(messages(spark, 0))
    there.write(messages(spark, 0, 1), "query", 1)
    there.write(messages(spark, 2), "query", 2)
    stored = archived(spark, lake.path, **lake.settings)
    assert stored.days() == ["2026-01-31", "2026-02-01"]
    for file in lake.files():
        if pq.read_table(file, columns=["offset"], partitioning=None)["offset"][0].as_py():
            file.unlink()
    only = "date = '2026-01-31'"
    for rows in (stored.rows_of("2026-01-31"), stored.rows_of("2026-01-31", "offset < 9")):
        assert [row.offset for row in rows.collect()] == [0]
    assert [row.offset for row in stored.rows(only).collect()] == [0]
    assert stored.rows_of("2026-01-31", "offset > 9").collect() == []
    if format in TABLES:
        assert stored.days(only) == ["2026-01-31"]
        assert stored.days("offset < 0") == ["2026-01-31", "2026-02-01"], "no file is read for it"


def test_a_condition_with_chance_is_applied_to_rows_once(spark: Any, tmp_path: Path) -> None:
    """Not to days as well, of which it would leave some out."""
    lake = Lake("delta", tmp_path)
    there = place(spark, lake)
    there.prepare(messages(spark, 0))
    there.write(messages(spark, 0, 1), "query", 1)
    stored = archived(spark, lake.path, **lake.settings)
    assert stored.days("date > '2026-01-01' AND rand() < 0") == ["2026-01-31", "2026-02-01"]


def test_a_table_whose_files_have_other_names_for_columns_is_refused(
    spark: Any, gateway: SparkGateway, tmp_path: Path
) -> None:
    """Its rows would be sent as messages without a value. Spark has mapped the columns of a table
    of reader version 2 if one was renamed.
    """
    names = {"delta.columnMapping.id": 1, "delta.columnMapping.physicalName": "col-1"}
    field = {"name": "value", "type": "string", "nullable": True, "metadata": names}
    table = {
        "id": "t",
        "format": {"provider": "parquet", "options": {}},
        "schemaString": json.dumps({"type": "struct", "fields": [field]}),
        "partitionColumns": [],
        "configuration": {
            "delta.columnMapping.mode": "name",
            "delta.columnMapping.maxColumnId": "1",
        },
        "createdTime": 0,
    }
    protocol = {"minReaderVersion": 2, "minWriterVersion": 5}
    log = [json.dumps({"protocol": protocol}), json.dumps({"metaData": table})]
    (tmp_path / "t" / "_delta_log").mkdir(parents=True)
    (tmp_path / "t" / "_delta_log" / f"{0:020}.json").write_text("\n".join(log))
    with pytest.raises(OptionError, match="uses columnMapping, which this job cannot read"):
        send(spark, gateway, tmp_path / "t", "orders", format="delta", order_by=("value",))


@pytest.mark.parametrize("format", FORMATS)
def test_rows_from_before_1970_belong_to_their_day(spark: Any, tmp_path: Path, format: str) -> None:
    """A day that counts to zero from both sides has rows that a job by days never reads."""
    lake = Lake(format, tmp_path)
    there = place(spark, lake)
    rows = messages(spark, -1, 0).withColumn("timestamp", sf.timestamp_seconds("offset"))
    there.prepare(rows)
    there.write(rows, "query", 1)
    stored = archived(spark, lake.path, **lake.settings)
    assert stored.days() == ["1969-12-31", "1970-01-01"]
    assert [row["offset"] for row in stored.rows_of("1969-12-31").collect()] == [-1]


def test_an_archive_whose_folders_change_places_is_refused(spark: Any, tmp_path: Path) -> None:
    """Its rows would be left out, and a progress file would name their day as done."""
    lake = Lake("parquet", tmp_path / "a b")
    archived_batches(spark, lake, batches=2)
    with wrapped(ParquetMerge, "_rows", died_before), pytest.raises(Died):
        compact(spark, lake.path)
    with pytest.raises(OptionError, match=r"^a compaction of .* is under way or was interrupted"):
        archived(spark, lake.path, **lake.settings)
    compact(spark, lake.path)
    assert archived(spark, lake.path, **lake.settings).rows().count() == 4


@pytest.mark.parametrize(
    ("plan", "options", "sentence"),
    [
        ({"partitions": 8}, {}, r"p\.json is of a job with 4 partitions.*, not with 8"),
        ({"partitions": 4}, {"JobId": "x"}, r"p\.json is of a job with the jobId 'job', not 'x'"),
        (
            {"partitions": 4, "rows_per_second": 5.0},
            {"maxRowsPerSecond": "1"},
            "^maxRowsPerSecond limits each task, and the rate",
        ),
    ],
)
def test_what_contradicts_a_progress_file_or_an_option_is_refused(
    tmp_path: Path, plan: dict[str, Any], options: dict[str, str], sentence: str
) -> None:
    """The names of messages contain the first partitions and ID. No session is needed."""
    about = {"path": "/nowhere", "topic": "orders"}
    Progress(LocalFile(tmp_path / "p.json"), about, "job", 4).keep()
    with pytest.raises(OptionError, match=sentence):
        backfill(
            cast(Any, None),
            {"servers": "proxy", **options},
            "/nowhere",
            topic="orders",
            plan=Plan(progress=tmp_path / "p.json", **plan),
        )


def test_the_days_of_a_job_with_an_id_have_names_of_their_own(
    spark: Any, gateway: SparkGateway, tmp_path: Path
) -> None:
    """Equal rows of two days would be taken for repeats, and dropped."""
    rows = [("k", "ping", 1, f"2026-01-0{day}") for day in (1, 2)]
    frame = spark.createDataFrame(rows, "key string, value string, n int, date string")
    frame.write.partitionBy("date").parquet(str(tmp_path / "files"))
    topic = gateway.a_topic()
    given = {"servers": gateway.servers, "jobId": "again"}
    plan = Plan(order_by=("n",), progress=tmp_path / "p.json", partitions=1)
    assert backfill(spark, given, str(tmp_path / "files"), topic=topic, plan=plan) == 2
    look = {"servers": gateway.servers, "group": "look", "subscribe": topic}
    found = spark.read.format("orderlane").options(**look).load().collect()
    assert len({row.messageId for row in found}) == 2
    names = {row.properties["sparkBatchId"].rpartition("/")[0] for row in found}
    assert names == {"again/2026-01-01/0/0", "again/2026-01-02/0/0"}


def test_progress_in_an_unknown_file_system_is_refused_in_a_sentence(spark: Any) -> None:
    plan = Plan(progress="nowhere://a/progress.json")
    with pytest.raises(OptionError, match=r'^Spark failed: .*No FileSystem for scheme "nowhere"'):
        backfill(spark, {"servers": "127.0.0.1:1"}, "/nowhere", topic="orders", plan=plan)


@pytest.mark.parametrize(
    ("format", "path", "sentence"),
    [
        ("delta", "/nowhere/at/all", "^there is no Delta table at"),
        ("csv", "/nowhere/at/all", "^format is 'csv'"),
    ],
)
def test_a_source_that_cannot_be_read_is_refused_in_a_sentence(
    spark: Any, gateway: SparkGateway, format: str, path: str, sentence: str
) -> None:
    with pytest.raises(OptionError, match=sentence):
        backfill(
            spark, {"servers": gateway.servers}, path, topic="orders", plan=Plan(format=format)
        )
