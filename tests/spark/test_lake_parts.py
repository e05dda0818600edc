"""The files of a day of a table, found in its metadata: no test here needs a session."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from datetime import UTC, date, datetime, timedelta
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyiceberg.types import IntegerType

from thin_client.spark.jobs.compact import compact
from thin_client.spark.lake.delta_parts import parts_of as delta_parts
from thin_client.spark.lake.iceberg_columns import names_of
from thin_client.spark.lake.iceberg_merge import IcebergMerge
from thin_client.spark.lake.iceberg_parts import parts_of as iceberg_parts
from thin_client.spark.lake.parts import days_of
from thin_client.spark.option_values import OptionError

DAYS = (date(2026, 1, 30), date(2026, 1, 31), None)
TOPICS = ("%RETRY%a b", "x|y")
SCHEMA = pa.schema(
    [("timestamp", pa.timestamp("us", tz="UTC")), ("topic", pa.string()), ("offset", pa.int64())]
)


def times(day: date | None) -> list[datetime | None]:
    """Return the first and the last microsecond of *day*."""
    if day is None:
        return [None, None]
    first = datetime(day.year, day.month, day.day, tzinfo=UTC)
    return [first, first + timedelta(days=1, microseconds=-1)]


@pytest.fixture
def options(tmp_path: Path) -> dict[str, str]:
    """Options of a catalog."""
    places = {"uri": f"sqlite:///{tmp_path}/c.db", "warehouse": f"file://{tmp_path}/w"}
    return {"type": "sql", **places}


@pytest.fixture
def catalog(options: dict[str, str]) -> Iterator[Any]:
    from pyiceberg.catalog import load_catalog

    with closing(load_catalog(None, **options)) as opened:
        opened.create_namespace("lake")
        yield opened


def iceberg_table(catalog: Any, folder: Path, *, partitioned: bool) -> Any:
    """Return a table with a file for each day and topic; partitioned as an archive is."""
    from pyiceberg.transforms import DayTransform, IdentityTransform

    table = catalog.create_table("lake.orders", SCHEMA)
    if partitioned:
        with table.update_spec() as spec:
            spec.add_field("timestamp", DayTransform(), "timestamp_day")
            spec.add_field("topic", IdentityTransform(), "topic")
    files = []
    for day in DAYS:
        for number, topic in enumerate(TOPICS):
            file = folder / f"{day}-{number}.parquet"
            columns = {"timestamp": times(day), "topic": [topic] * 2, "offset": [1, 2]}
            pq.write_table(pa.table(columns, schema=SCHEMA), file)
            files.append(f"file://{file}")
    table.add_files(files)
    return catalog.load_table("lake.orders")


def names(files: Any) -> list[str]:
    return sorted(Path(file).name for file in files)


def test_an_iceberg_table_tells_the_day_and_topic_of_each_file(
    catalog: Any, tmp_path: Path
) -> None:
    table = iceberg_table(catalog, tmp_path, partitioned=True)
    found = {
        (part.values["date"], part.values["topic"]): names(part.files)
        for part in iceberg_parts(table, "lake.orders")
    }
    assert found == {
        (day, topic): [f"{day}-{number}.parquet"]
        for day in DAYS
        for number, topic in enumerate(TOPICS)
    }
    assert days_of(iceberg_parts(table, "lake.orders")) == ["", "2026-01-30", "2026-01-31"]


@pytest.mark.parametrize("partitioned", [True, False])
@pytest.mark.parametrize("day", DAYS)
def test_only_files_of_the_day_are_chosen(
    catalog: Any, tmp_path: Path, partitioned: bool, day: date | None
) -> None:
    """The first and the last microsecond of a day belong to it, and no neighbour of them."""
    table = iceberg_table(catalog, tmp_path, partitioned=partitioned)
    parts = iceberg_parts(table, "lake.orders", day="" if day is None else str(day))
    assert names(file for part in parts for file in part.files) == [
        f"{day}-0.parquet",
        f"{day}-1.parquet",
    ]
    assert (days_of(parts) is None) == (not partitioned)


def test_rows_without_a_time_belong_to_no_day_of_a_compaction(
    catalog: Any, options: dict[str, str], tmp_path: Path
) -> None:
    iceberg_table(catalog, tmp_path, partitioned=True)
    session: Any = None  # lists without it
    with closing(IcebergMerge(session, "lake.orders", options)) as lake:
        assert lake.days() == ["2026-01-30", "2026-01-31"]


def test_a_table_with_other_partitions_is_not_compacted(
    options: dict[str, str], catalog: Any, tmp_path: Path
) -> None:
    iceberg_table(catalog, tmp_path, partitioned=False)
    with pytest.raises(OptionError, match="is partitioned by nothing: expected the day of"):
        compact(None, "lake.orders", format="iceberg", catalog=options)


def test_files_from_before_a_table_was_partitioned_belong_to_no_day_of_a_compaction(
    options: dict[str, str], catalog: Any, tmp_path: Path
) -> None:
    from pyiceberg.transforms import DayTransform, IdentityTransform

    with iceberg_table(catalog, tmp_path, partitioned=False).update_spec() as spec:
        spec.add_field("timestamp", DayTransform(), "timestamp_day")
        spec.add_field("topic", IdentityTransform(), "topic")
    with closing(IcebergMerge(None, "lake.orders", options)) as merge:
        assert merge.days() == []


def test_a_column_has_the_names_of_all_files(catalog: Any, tmp_path: Path) -> None:
    table = iceberg_table(catalog, tmp_path, partitioned=True)
    with table.update_schema() as columns:
        columns.rename_column("offset", "place")
    with table.update_schema() as columns:
        columns.rename_column("place", "at")
        columns.add_column("offset", IntegerType())
    names = names_of(catalog.load_table("lake.orders"), "lake.orders")
    # The library and engines take the values of a name for those of its latest column.
    assert names["at"] == ("at", "place")
    assert names["offset"] == ("offset",)


def test_without_a_name_mapping_earlier_schemas_have_the_names(catalog: Any) -> None:
    table = catalog.create_table("lake.orders", SCHEMA)
    with table.update_schema() as columns:
        columns.rename_column("offset", "place")
    assert names_of(table, "lake.orders")["place"] == ("place", "offset")
    with table.update_schema() as columns:
        columns.add_column("offset", IntegerType())
    with pytest.raises(OptionError, match=r"^offset was the name of several columns"):
        names_of(table, "lake.orders")


def test_a_renamed_field_inside_a_column_is_refused(catalog: Any) -> None:
    customer = pa.struct([("id", pa.string())])
    table = catalog.create_table("lake.orders", SCHEMA.append(pa.field("customer", customer)))
    with table.update_schema() as columns:
        columns.rename_column("customer.id", "number")
    with pytest.raises(OptionError, match=r"^a field inside the column customer"):
        names_of(table, "lake.orders")


def test_a_delta_table_tells_the_day_and_topic_of_each_file(tmp_path: Path) -> None:
    """Its log has paths as URLs; also after its files were merged."""
    from deltalake import DeltaTable, write_deltalake

    root = tmp_path / "a b"
    rows = pa.table(
        {
            "date": pa.array([day for day in DAYS for _ in TOPICS], pa.date32()),
            "topic": [*TOPICS] * len(DAYS),
            "offset": range(len(DAYS) * len(TOPICS)),
        }
    )
    for _ in range(2):
        write_deltalake(root, rows, mode="append", partition_by=["date", "topic"])
    table = DeltaTable(root)
    table.optimize.compact(partition_filters=[("date", "=", str(DAYS[1]))])
    parts = delta_parts(table)
    assert days_of(parts) == ["", "2026-01-30", "2026-01-31"]
    assert {tuple(part.values.values()): len(part.files) for part in parts} == {
        (day, topic): 1 if day == DAYS[1] else 2 for day in DAYS for topic in TOPICS
    }
    for part in parts:
        for file in part.files:
            stored = pq.read_table(root / file, partitioning=None)
            at = stored.column("offset").to_pylist()[0]
            assert (rows["date"][at].as_py(), rows["topic"][at].as_py()) == tuple(
                part.values.values()
            )


def test_a_table_without_partitions_has_one_part_whose_day_is_unknown(tmp_path: Path) -> None:
    from deltalake import DeltaTable, write_deltalake

    write_deltalake(tmp_path / "t", pa.table({"offset": [1, 2]}))
    (part,) = delta_parts(DeltaTable(tmp_path / "t"))
    assert (part.values, len(part.files)) == ({}, 1)
    assert days_of([part]) is None
