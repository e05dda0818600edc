"""Archives in each format contain every message once, wherever the driver dies."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import UTC, date, datetime
from pathlib import Path
from typing import Any

import pytest

from testkit.spark_site import SparkGateway
from tests.spark.lakes import FORMATS, Lake, expected
from thin_client.spark.jobs.archive import archive
from thin_client.spark.jobs.compact import compact
from thin_client.spark.lake import delta, iceberg, parquet
from thin_client.spark.lake.formats import compaction, destination
from thin_client.spark.lake.reading import archived
from thin_client.spark.options import OptionError

TABLES = ("delta", "iceberg")
MODULES: dict[str, Any] = {"parquet": parquet, "delta": delta, "iceberg": iceberg}
CLASSES: dict[str, type] = {
    "parquet": parquet.ParquetFolders,
    "delta": delta.Delta,
    "iceberg": iceberg.Iceberg,
}
TOPIC = "%RETRY%billing"
NIGHT = datetime(2026, 1, 31, 23, 59, 59, tzinfo=UTC)


class Died(Exception):
    """Stands for the death of a driver."""


def options(gateway: SparkGateway, topic: str, **more: str) -> dict[str, str]:
    return {"servers": gateway.servers, "group": gateway.a_group(), "subscribe": topic, **more}


def messages(spark: Any, *offsets: int) -> Any:
    """Return one message a second since a second before midnight; computed in the Java process,
    since Python workers take seconds to start.
    """
    numbers = ", ".join(f"{n}L" for n in offsets)
    rows = spark.range(1).selectExpr(
        f"explode(CAST(array({numbers}) AS ARRAY<BIGINT>)) AS offset", f"'{TOPIC}' AS topic"
    )
    return rows.selectExpr(
        *(
            "'k' AS key",
            "CAST(CAST(offset AS STRING) AS BINARY) AS value",
            "topic",
            "'broker-a_0' AS qid",
            "offset",
        ),
        f"timestamp_seconds({NIGHT.timestamp():.0f} + offset) AS timestamp",
        "map('a', '1') AS properties",
    )


def place(spark: Any, lake: Lake, *, target: int | None = None) -> Any:
    return destination(spark, lake.path, format=lake.format, catalog=lake.catalog, target=target)


@contextmanager
def wrapped(owner: Any, name: str, around: Callable[..., Any]) -> Iterator[None]:
    """Replace the function *name* of *owner*; *around* gets the original and its arguments."""
    with pytest.MonkeyPatch.context() as patch:
        original = getattr(owner, name)
        patch.setattr(owner, name, lambda *args, **more: around(original, *args, **more))
        yield


def died_before(_original: Any, *_arguments: Any, **_more: Any) -> None:
    raise Died


def died_after(original: Any, *arguments: Any, **more: Any) -> None:
    original(*arguments, **more)
    raise Died


@pytest.mark.parametrize("format", FORMATS)
def test_a_driver_may_die_at_each_step_of_a_batch(
    spark: Any, gateway: SparkGateway, tmp_path: Path, format: str
) -> None:
    lake, topic = Lake(format, tmp_path), gateway.a_topic()
    given = options(gateway, topic)
    steps: list[tuple[Any, str, Callable[..., Any]]] = [
        (CLASSES[format], "write", died_before),
        (CLASSES[format], "write", died_after),  # before Spark's own commit
    ]
    if format in TABLES:
        steps += [
            (MODULES[format], "write_files", died_after),
            (CLASSES[format], "_commit", died_after),
        ]
    for number, (owner, name, around) in enumerate(steps, start=1):
        gateway.send(topic, [b"x"] * 4)
        with wrapped(owner, name, around), pytest.raises(OptionError):
            archive(spark, given, lake.path, **lake.settings)
        found = lake.places(spark)
        assert found in (expected(2 * number, 2 * number), expected(*[2 * number - 2] * 2))
        archive(spark, given, lake.path, **lake.settings)
        assert lake.places(spark) == expected(2 * number, 2 * number)


@pytest.mark.parametrize("format", FORMATS)
def test_an_error_while_a_batch_is_stored_ends_the_archive_with_its_sentence(
    spark: Any, gateway: SparkGateway, tmp_path: Path, format: str
) -> None:
    """Spark passes it on inside a traceback of the function of ``foreachBatch``."""
    lake = Lake(format, tmp_path)

    def full(*_arguments: Any, **_more: Any) -> None:
        raise OSError(28, "No space left on device", "/lake")

    with (
        wrapped(CLASSES[format], "write", full),
        pytest.raises(OptionError, match=r"^\[Errno 28\] No space left on device: '/lake'$"),
    ):
        archive(spark, options(gateway, gateway.a_topic()), lake.path, **lake.settings)


@pytest.mark.parametrize("format", TABLES)
def test_of_two_drivers_with_one_batch_only_one_commits_it(
    spark: Any, tmp_path: Path, format: str
) -> None:
    lake = Lake(format, tmp_path)
    batch = messages(spark, 0, 1)
    first, second = place(spark, lake), place(spark, lake)
    first.prepare(batch)
    first.write(messages(spark, 9), "another-query", 7)
    overtaken: list[bool] = []

    def overtake(original: Any, *arguments: Any) -> None:
        original(*arguments)
        if not overtaken:
            overtaken.append(True)
            second.write(batch, "query", 1)

    with wrapped(MODULES[format], "write_files", overtake):
        first.write(batch, "query", 1)
    assert overtaken
    assert lake.places(spark) == [("broker-a_0", n) for n in (0, 1, 9)]


@pytest.mark.parametrize("format", TABLES)
def test_commits_of_others_do_not_stop_a_batch(spark: Any, tmp_path: Path, format: str) -> None:
    lake = Lake(format, tmp_path)
    first, second = place(spark, lake), place(spark, lake)
    first.prepare(messages(spark, 0))

    def meanwhile(original: Any, *arguments: Any) -> None:
        original(*arguments)
        if "/batch-query-" in arguments[1]:
            second.write(messages(spark, 1), "others", 1)

    with wrapped(MODULES[format], "write_files", meanwhile):
        first.write(messages(spark, 0), "query", 1)
    assert lake.places(spark) == [("broker-a_0", 0), ("broker-a_0", 1)]
    first.write(messages(spark, 0), "query", 1)
    assert len(lake.rows(spark)) == 2


@pytest.mark.parametrize("format", TABLES)
def test_a_commit_that_is_reported_as_failed_counts_once(
    spark: Any, tmp_path: Path, format: str
) -> None:
    """As after a lost answer of the store or the catalog."""
    from deltalake import DeltaTable
    from deltalake.exceptions import CommitFailedError
    from pyiceberg.exceptions import CommitFailedException
    from pyiceberg.table import Transaction

    lake = Lake(format, tmp_path)
    there = place(spark, lake)
    there.prepare(messages(spark, 0))
    owner, name, failure = {
        "delta": (DeltaTable, "create_write_transaction", CommitFailedError),
        "iceberg": (
            Transaction,
            "commit_transaction",
            CommitFailedException,
        ),
    }[format]

    def lost(original: Any, *arguments: Any, **more: Any) -> None:
        original(*arguments, **more)
        raise failure("no answer")

    with wrapped(owner, name, lost):
        there.write(messages(spark, 0, 1), "query", 1)
    assert lake.places(spark) == [("broker-a_0", 0), ("broker-a_0", 1)]


def test_no_job_leaves_a_catalog_open(spark: Any, gateway: SparkGateway, tmp_path: Path) -> None:
    """A continuous archive would keep a connection for each of its batches."""
    from pyiceberg.catalog.sql import SqlCatalog

    lake, topic = Lake("iceberg", tmp_path), gateway.a_topic()
    opened: list[Any] = []
    closed: list[Any] = []

    def noted(original: Any, catalog: Any, *arguments: Any, **more: Any) -> None:
        (closed if original.__name__ == "close" else opened).append(catalog)
        original(catalog, *arguments, **more)

    gateway.send(topic, [b"x"] * 4)
    with wrapped(SqlCatalog, "__init__", noted), wrapped(SqlCatalog, "close", noted):
        given = options(gateway, topic, maxOffsetsPerTrigger="2")
        assert archive(spark, given, lake.path, **lake.settings).batches == 3
        compact(spark, lake.path, **lake.settings)
        archived(spark, lake.path, **lake.settings).rows()
    assert len(opened) >= 6
    assert closed == opened


@pytest.mark.parametrize("format", TABLES)
def test_a_table_has_all_columns_and_is_partitioned_by_day_and_topic(
    spark: Any, tmp_path: Path, format: str
) -> None:
    lake = Lake(format, tmp_path)
    there = place(spark, lake)
    there.prepare(messages(spark, 0))
    there.write(messages(spark, 0, 1), "query", 1)
    there.write(messages(spark), "query", 2)  # an empty batch
    one, other = sorted(lake.rows(spark), key=lambda row: int(row["offset"]))
    assert (one["key"], one["value"], one["topic"]) == ("k", b"0", TOPIC)
    assert (dict(one["properties"]), one["timestamp"]) == ({"a": "1"}, NIGHT)
    if format == "delta":
        from deltalake import DeltaTable

        assert (one["date"], other["date"]) == (date(2026, 1, 31), date(2026, 2, 1))
        found = DeltaTable(lake.path).partitions()
    else:
        with lake.table() as table:
            found = [each["partition"] for each in table.inspect.partitions().to_pylist()]
    assert len(found) == 2
    assert {each["topic"] for each in found} == {TOPIC}


@pytest.mark.parametrize(("format", "other"), [("delta", "parquet"), ("parquet", "delta")])
def test_an_archive_is_refused_to_a_job_of_another_format(
    spark: Any, tmp_path: Path, format: str, other: str
) -> None:
    """The query would continue, and store messages where no reader of the archive finds them."""
    lake = Lake(format, tmp_path)
    there = place(spark, lake)
    there.prepare(messages(spark, 0))
    there.write(messages(spark, 0), "query", 1)
    foreign = destination(spark, lake.path, format=other, catalog={}, target=None)
    words = f"set format to {format}, or choose another folder$"
    with pytest.raises(OptionError, match=words):
        foreign.prepare(messages(spark, 0))
    with pytest.raises(OptionError, match=words):
        compaction(spark, lake.path, format=other, catalog={}, checkpoint=None)
    there.prepare(messages(spark, 0))
    assert lake.places(spark) == [("broker-a_0", 0)]


@pytest.mark.parametrize("format", TABLES)
def test_a_new_column_of_the_source_is_added_to_the_table(
    spark: Any, tmp_path: Path, format: str
) -> None:
    lake = Lake(format, tmp_path)
    there = place(spark, lake)
    there.prepare(messages(spark, 0))
    there.write(messages(spark, 0), "query", 1)
    wider = messages(spark, 1).selectExpr("*", "'v' AS tag")
    there.prepare(wider)
    there.write(wider, "query", 2)
    found = {row["offset"]: row["tag"] for row in lake.rows(spark)}
    assert found == {0: None, 1: "v"}


@pytest.mark.parametrize("format", FORMATS)
def test_small_integers_keep_their_type_in_later_runs(
    spark: Any, tmp_path: Path, format: str
) -> None:
    """Iceberg has none: there all have 32 bits."""
    lake = Lake(format, tmp_path)
    rows = messages(spark, 0).selectExpr(
        *("*", "CAST(7 AS SMALLINT) AS two", "CAST(-7 AS TINYINT) AS one"),
        "array(named_struct('n', CAST(9 AS SMALLINT))) AS deep",
        "map(CAST(1 AS TINYINT), CAST(2 AS TINYINT)) AS by",
    )
    for number in (1, 2):
        there = place(spark, lake)
        there.prepare(rows)
        there.write(rows, "query", number)
    kept = "int" if format == "iceberg" else "smallint"
    found = archived(spark, lake.path, **lake.settings).rows()
    assert dict(found.dtypes)["two"] == kept
    assert dict(found.dtypes)["deep"] == f"array<struct<n:{kept}>>"
    assert [(row.two, row.one, row.deep[0].n, row.by[1]) for row in found.collect()] == [
        (7, -7, 9, 2)
    ] * 2
    assert [(row["two"], row["one"]) for row in lake.rows(spark)] == [(7, -7)] * 2


@pytest.mark.parametrize("format", FORMATS)
def test_a_target_size_decides_how_many_files_a_batch_has(
    spark: Any, tmp_path: Path, format: str
) -> None:
    lake = Lake(format, tmp_path)
    batch = spark.range(0, 4000, numPartitions=8).selectExpr(
        *("'k' AS key", "CAST(sha2(CAST(id AS STRING), 512) AS BINARY) AS value"),
        *("'orders' AS topic", "'broker-a_0' AS qid", "id AS offset"),
        "timestamp_seconds(1769817600) AS timestamp",
    )
    large = place(spark, lake, target=1 << 30)
    large.prepare(batch)
    large.write(batch, "query", 1)
    assert len(lake.files()) == 1
    small = place(spark, lake, target=1 << 16)
    small.write(batch, "query", 2)
    assert len(lake.files()) > 3
    assert len(lake.rows(spark)) == 8000


@pytest.mark.parametrize(
    ("format", "path", "catalog", "sentence"),
    [
        ("orc", "/tmp/x", {}, "^format is 'orc': expected parquet, delta or iceberg"),
        ("delta", "/tmp/x", {"type": "sql"}, "^catalog is for the format iceberg"),
        ("iceberg", "orders", {"type": "sql"}, "expected NAMESPACE.TABLE"),
        ("iceberg", "lake.orders", {"type": "nonsense"}, "^no Iceberg catalog: "),
    ],
)
def test_a_wrong_destination_is_refused_in_a_sentence(
    spark: Any, format: str, path: str, catalog: dict[str, str], sentence: str
) -> None:
    with pytest.raises(OptionError, match=sentence) as refused:
        destination(spark, path, format=format, catalog=catalog, target=None)
    assert "\n" not in str(refused.value)
