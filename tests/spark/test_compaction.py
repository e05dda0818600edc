"""Merging small files changes no row, whenever its driver dies."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest
from pyspark.sql.types import StructType

from tests.spark.lakes import FORMATS, Lake
from tests.spark.test_lakes import Died, died_after, died_before, messages, place, wrapped
from thin_client.spark.jobs.compact import compact
from thin_client.spark.lake import parquet, parquet_merge, reading
from thin_client.spark.lake.formats import compaction
from thin_client.spark.lake.iceberg_merge import IcebergMerge
from thin_client.spark.lake.names import StoredFile
from thin_client.spark.lake.parquet_merge import ParquetMerge
from thin_client.spark.options import OptionError

QUERY = "3f2b1c4d-0000-4000-8000-00000000000a"


def archived(
    spark: Any,
    lake: Lake,
    *,
    batches: int,
    committed: int | None = None,
    first: int = 1,
    more: tuple[str, ...] = (),
    from_batch: int = 0,
) -> None:
    """Write the batches from *first* to *batches*, each with a message before and one after
    midnight; Spark has *committed* those up to this number, by default all. Those *from_batch* on
    have the columns *more* too.
    """
    there = place(spark, lake)
    there.prepare(messages(spark, 0))
    for number in range(first, batches + 1):
        rows = messages(spark, 0, number)
        there.write(rows.selectExpr("*", *more) if number >= from_batch else rows, QUERY, number)
    commits = lake.root / "_checkpoint" / "commits"
    commits.mkdir(parents=True, exist_ok=True)
    (lake.root / "_checkpoint" / "metadata").write_text(json.dumps({"id": QUERY}))
    (commits / str(batches if committed is None else committed)).write_text("v1\n{}")


def before_and_after(batches: int) -> list[tuple[str, int]]:
    """Return the places of the messages of ``archived``."""
    return sorted([("broker-a_0", 0)] * batches + [("broker-a_0", n + 1) for n in range(batches)])


def live_files(lake: Lake) -> int:
    """Return the number of files that readers of the archive read."""
    if lake.format == "delta":
        from deltalake import DeltaTable

        return len(DeltaTable(lake.path).file_uris())
    if lake.format == "iceberg":
        with lake.table() as table:
            return len(list(table.scan().plan_files()))
    return sum("/." not in str(each.relative_to(lake.folder)) for each in lake.files())


@pytest.mark.parametrize("format", FORMATS)
def test_small_files_become_one_for_each_day_with_the_same_rows(
    spark: Any, tmp_path: Path, format: str
) -> None:
    lake = Lake(format, tmp_path)
    archived(spark, lake, batches=3)
    rows = sorted(lake.rows(spark), key=repr)
    assert live_files(lake) == 6
    done = compact(spark, lake.path, **lake.settings, before="2026-02-01")
    assert (done.before, done.after, live_files(lake)) == (3, 1, 4)
    done = compact(spark, lake.path, **lake.settings)
    assert (done.before, done.after, live_files(lake)) == (3, 1, 2)
    found = lake.rows(spark)
    drop = {"batch"}  # of Parquet folders, which names the merge now
    assert [{k: v for k, v in row.items() if k not in drop} for row in sorted(found, key=repr)] == [
        {k: v for k, v in row.items() if k not in drop} for row in rows
    ]
    assert compact(spark, lake.path, **lake.settings).before == 0
    # A batch that is written again is recognized still.
    if format != "parquet":
        place(spark, lake).write(messages(spark, 0, 3), QUERY, 3)
        assert lake.places(spark) == before_and_after(3)


@pytest.mark.parametrize("format", ["delta", "iceberg"])
def test_files_of_no_version_are_deleted_after_the_retention(
    spark: Any, tmp_path: Path, format: str
) -> None:
    lake = Lake(format, tmp_path)
    archived(spark, lake, batches=2)
    assert compact(spark, lake.path, **lake.settings, retention_hours=24).deleted == 0
    assert compaction(spark, lake.path, **lake.settings, checkpoint=None).clean(0) > 0
    assert lake.places(spark) == before_and_after(2)
    assert (lake.root / "_checkpoint" / "metadata").exists()


def test_the_retention_is_the_same_in_each_time_zone_of_the_driver(
    spark: Any, tmp_path: Path
) -> None:
    lake = Lake("iceberg", tmp_path)
    archived(spark, lake, batches=2)
    there = compaction(spark, lake.path, **lake.settings, checkpoint=None)
    with in_zone("EAST-14"):  # 14 hours ahead of UTC
        assert there.clean(13) == 0
    assert there.clean(0) > 0


@contextmanager
def in_zone(name: str) -> Iterator[None]:
    """Set the time zone of the process."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("TZ", name)
        time.tzset()
        try:
            yield
        finally:
            patch.undo()
            time.tzset()


@pytest.mark.parametrize("format", FORMATS)
def test_whole_days_are_deleted(spark: Any, tmp_path: Path, format: str) -> None:
    lake = Lake(format, tmp_path)
    archived(spark, lake, batches=3)
    done = compact(spark, lake.path, **lake.settings, delete_before="2026-02-01")
    assert (done.days, done.before, live_files(lake)) == (1, 3, 1)
    assert lake.places(spark) == [("broker-a_0", n) for n in (1, 2, 3)]
    assert compact(spark, lake.path, **lake.settings, delete_before="2026-02-01").days == 0
    archived(spark, lake, batches=4, first=4)
    assert lake.places(spark) == [("broker-a_0", n) for n in (0, 1, 2, 3, 4)]


def test_the_files_of_a_single_batch_are_merged(spark: Any, tmp_path: Path) -> None:
    lake = Lake("parquet", tmp_path)
    place(spark, lake).write(messages(spark, *([0] * 6)).repartition(3), QUERY, 1)
    archived(spark, lake, batches=1, first=2)  # a checkpoint alone
    files = live_files(lake)
    done = compact(spark, lake.path)
    assert (done.before, done.after, live_files(lake)) == (files, 1, 1)
    assert lake.places(spark) == [("broker-a_0", 0)] * 6
    assert compact(spark, lake.path).before == 0


def test_a_batch_that_spark_may_repeat_is_not_merged(spark: Any, tmp_path: Path) -> None:
    lake = Lake("parquet", tmp_path)
    archived(spark, lake, batches=3, committed=2)
    assert compact(spark, lake.path).before == 4
    place(spark, lake).write(messages(spark, 0, 3), QUERY, 3)
    assert lake.places(spark) == before_and_after(3)


def test_a_merge_of_folders_survives_the_death_of_its_driver_at_each_step(
    spark: Any, tmp_path: Path
) -> None:
    lake = Lake("parquet", tmp_path)
    for step, (name, around) in enumerate(
        (
            ("replace_text", died_before),  # merged files, and no journal
            ("replace_text", died_after),
            ("move", died_before),
            ("move", died_after),  # the first batch is away
            ("move", died_at_target),
        )
    ):
        archived(spark, lake, first=2 * step + 1, batches=2 * step + 2)
        with wrapped(parquet_merge, name, around), pytest.raises(Died):
            compact(spark, lake.path, before="2026-02-01")
        with wrapped(ParquetMerge, "merge", died_before), pytest.raises(Died):
            compact(spark, lake.path)  # only finishes the former run
        assert lake.places(spark) == before_and_after(2 * step + 2), (name, around)
        assert not (lake.root / ".orderlane-compact").exists()
    compact(spark, lake.path)
    assert lake.places(spark) == before_and_after(10)
    assert live_files(lake) == 2


def died_at_target(original: Any, *arguments: Any) -> None:
    """Die after the merged files took the place of the batches."""
    original(*arguments)
    if "-merged-" in arguments[2]:
        raise Died


@pytest.mark.parametrize("day", ["2026-01-31", "2026-02-01"])
@pytest.mark.parametrize("died", [False, True])
def test_two_merges_at_a_time_lose_and_double_no_row(
    spark: Any, tmp_path: Path, day: str, died: bool
) -> None:
    """The second one begins when the first has written its files, and ends or dies meanwhile."""
    lake = Lake("parquet", tmp_path)
    archived(spark, lake, batches=2)
    begun: list[str] = []

    def overtaken(original: Any, *arguments: Any) -> Any:
        found = original(*arguments)
        if not begun:
            begun.append(day)
            second = compaction(spark, lake.path, **lake.settings, checkpoint=None)
            if died:
                with wrapped(parquet_merge, "replace_text", died_before), pytest.raises(Died):
                    second.merge(day, 1 << 27)
            else:
                second.merge(day, 1 << 27)
        return found

    words = "so the merge was undone: run one compaction of an archive at a time$"
    with (
        wrapped(ParquetMerge, "_rewrite", overtaken),
        pytest.raises(OptionError, match=words),
    ):
        compact(spark, lake.path, before="2026-02-01")
    assert lake.places(spark) == before_and_after(2)
    compact(spark, lake.path)
    assert (lake.places(spark), live_files(lake)) == (before_and_after(2), 2)
    assert not (lake.root / ".orderlane-compact").exists()


def test_a_merge_does_not_take_batches_that_another_has_merged(spark: Any, tmp_path: Path) -> None:
    lake = Lake("parquet", tmp_path)
    archived(spark, lake, batches=2)
    other = compaction(spark, lake.path, **lake.settings, checkpoint=None)
    overtook: list[bool] = []

    def overtaken(original: Any, *arguments: Any) -> None:
        if not overtook:
            overtook.append(True)
            other.merge("2026-01-31", 1 << 27)
        original(*arguments)

    with (
        wrapped(parquet_merge, "replace_text", overtaken),
        pytest.raises(OptionError, match="run one compaction of an archive at a time"),
    ):
        compact(spark, lake.path, before="2026-02-01")
    assert lake.places(spark) == before_and_after(2)


def test_a_merge_of_a_table_is_repeated_after_commits_of_others(spark: Any, tmp_path: Path) -> None:
    lake = Lake("iceberg", tmp_path)
    archived(spark, lake, batches=2)

    def meanwhile(original: Any, *arguments: Any) -> None:
        place(spark, lake).write(messages(spark, 0, 3), QUERY, 3)
        original(*arguments)

    with wrapped(IcebergMerge, "_replace", meanwhile):
        compact(spark, lake.path, **lake.settings, before="2026-02-01")
    assert lake.places(spark) == before_and_after(3)


def test_renamed_and_dropped_columns_of_a_table_are_merged_and_read(
    spark: Any, tmp_path: Path
) -> None:
    """The files have the names that the columns had when they were written."""
    lake = Lake("iceberg", tmp_path)
    archived(spark, lake, batches=2)
    with lake.table() as table, table.update_schema() as columns:
        columns.rename_column("value", "body")
        columns.rename_column("key", "Key")
        columns.delete_column("properties")
    rows = sorted(lake.rows(spark), key=repr)
    assert {row["body"] for row in rows} == {b"0", b"1", b"2"}

    def values(found: Any) -> list[Any]:
        return sorted((row["body"], row["Key"], row["offset"]) for row in found.collect())

    expected = sorted((row["body"], row["Key"], row["offset"]) for row in rows)
    stored = reading.archived(spark, lake.path, **lake.settings)
    assert values(stored.rows()) == expected
    assert compact(spark, lake.path, **lake.settings).after == 2
    assert sorted(lake.rows(spark), key=repr) == rows
    assert values(stored.rows()) == expected


def test_a_table_whose_columns_change_during_its_merge_stays_as_it_was(
    spark: Any, tmp_path: Path
) -> None:
    lake = Lake("iceberg", tmp_path)
    archived(spark, lake, batches=2)

    def meanwhile(original: Any, *arguments: Any) -> None:
        with lake.table() as table, table.update_schema() as columns:
            columns.rename_column("value", "body")
        original(*arguments)

    with (
        wrapped(IcebergMerge, "_replace", meanwhile),
        pytest.raises(OptionError, match=r"^the Iceberg table lake\.orders was changed: "),
    ):
        compact(spark, lake.path, **lake.settings)
    assert lake.places(spark) == before_and_after(2)


@pytest.mark.parametrize(
    ("path", "settings", "sentence"),
    [
        ("lake.orders", {"type": "sql"}, "^no Iceberg catalog: URI missing"),
        (
            "lake.orders",
            {"type": "rest", "uri": "http://me:SECRET@127.0.0.1:1"},
            "^pyiceberg failed: ",
        ),
        ("nowhere://lake/orders", {}, '^Spark failed: .*No FileSystem for scheme "nowhere"'),
    ],
)
def test_an_unknown_store_or_catalog_is_an_error_of_one_line(
    spark: Any, path: str, settings: dict[str, str], sentence: str
) -> None:
    format = "iceberg" if settings else "parquet"
    with pytest.raises(OptionError, match=sentence) as refused:
        compact(spark, path, format=format, catalog=settings)
    assert "\n" not in str(refused.value)
    assert "SECRET" not in str(refused.value)


def test_an_error_of_a_delta_table_is_one_line(spark: Any, tmp_path: Path) -> None:
    from deltalake import DeltaTable
    from deltalake.exceptions import DeltaError

    def failed(*_: Any) -> None:
        raise DeltaError("Kernel error\n  \x1b[31m↳\x1b[0m no such file")

    lake = Lake("delta", tmp_path)
    archived(spark, lake, batches=1)
    with (
        wrapped(DeltaTable, "delete", failed),
        pytest.raises(OptionError, match=r"archive: Kernel error\Z"),
    ):
        compact(spark, lake.path, **lake.settings, delete_before="2026-02-01")


@pytest.mark.parametrize(
    ("given", "sentence"),
    [
        ({"before": "yesterday"}, "^before is 'yesterday': expected a day"),
        ({"before": "20260131"}, "^before is '20260131': expected a day"),
        ({"delete_before": "2026-1-1"}, "^delete_before is '2026-1-1': expected a day"),
        ({"delete_before": "9999-01-01"}, "^delete_before is 9999-01-01: expected today, "),
        ({"retention_hours": 23}, "^the retention is 23 hours: expected at least 24$"),
        ({"retention_hours": 24}, "^the retention is for the formats delta and iceberg"),
        ({"target_file_size": "big"}, "^target_file_size is 'big'"),
        ({}, "is not the checkpoint of an archive"),
        ({"format": "delta"}, "there is no Delta table"),
        ({"format": "delta", "checkpoint": "x"}, "^checkpoint is for the format parquet"),
    ],
)
def test_what_cannot_be_compacted_is_refused_in_a_sentence(
    spark: Any, tmp_path: Path, given: dict[str, Any], sentence: str
) -> None:
    with pytest.raises(OptionError, match=sentence):
        compact(spark, str(tmp_path / "nothing"), **given)


def test_a_damaged_checkpoint_or_record_is_named_in_a_sentence(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """As after a copy that was cut short. No session is needed."""
    commits = [StoredFile("0", 1, 1)]
    for module in (parquet, parquet_merge):
        monkeypatch.setattr(module, "refuse_table", lambda *_: None)
        monkeypatch.setattr(module, "children", lambda *_: commits)
    session = cast(Any, None)
    for text in ("", "[]", '{"ID": "x"}'):
        monkeypatch.setattr(parquet_merge, "read_text", lambda *_, text=text: text)
        with pytest.raises(OptionError, match=r"^/a/_checkpoint/metadata: "):
            parquet_merge.ParquetMerge(session, "/a", "/a/_checkpoint")
    rows = cast(Any, SimpleNamespace(schema=StructType([])))
    for line in ("", "[]", "{"):
        monkeypatch.setattr(parquet, "read_lines", lambda *_, line=line: [line])
        with pytest.raises(OptionError, match=r"^/a/_columns does not have the columns of the"):
            parquet.ParquetFolders(session, "/a", None).prepare(rows)
