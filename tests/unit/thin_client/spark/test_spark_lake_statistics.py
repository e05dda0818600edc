"""Statistics of a Delta table's files, by which readers skip files."""

from __future__ import annotations

import io
import json
from datetime import UTC, datetime, timedelta
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from thin_client.spark.lake.statistics import delta_statistics

NOON = datetime(2026, 1, 31, 12, 0, 0, 123456, tzinfo=UTC)


def of(columns: dict[str, Any], **options: Any) -> Any:
    file = io.BytesIO()
    pq.write_table(pa.table(columns), file, **options)
    return json.loads(delta_statistics(pq.read_metadata(file)))


def test_ranges_and_nulls_are_those_of_all_row_groups() -> None:
    found = of(
        {
            "offset": pa.array([3, 4, 1, 2], pa.int64()),
            "qid": pa.array(["broker-a_0", None, "broker-b_1", "broker-a_1"]),
            "timestamp": pa.array(
                [NOON + timedelta(hours=n) for n in (1, 2, 0, 1)], pa.timestamp("us", tz="UTC")
            ),
        },
        row_group_size=2,
    )
    assert found == {
        "numRecords": 4,
        "minValues": {
            "qid": "broker-a_0",
            "offset": 1,
            "timestamp": "2026-01-31T12:00:00.123456Z",
        },
        "maxValues": {
            "qid": "broker-b_1",
            "offset": 4,
            "timestamp": "2026-01-31T14:00:00.123456Z",
        },
        "nullCount": {"qid": 1, "offset": 0, "timestamp": 0},
    }


def test_times_before_the_year_1000_have_four_digits_for_the_year() -> None:
    """A producer's clock may be anywhere. Readers drop a range that they cannot parse, or the
    file's rows.
    """
    times = [datetime(5, 1, 2, tzinfo=UTC), datetime(999, 12, 31, 23, 59, 59, 1, tzinfo=UTC)]
    found = of({"bornTimestamp": pa.array(times, pa.timestamp("us", tz="UTC"))})
    assert found["minValues"] == {"bornTimestamp": "0005-01-02T00:00:00.000000Z"}
    assert found["maxValues"] == {"bornTimestamp": "0999-12-31T23:59:59.000001Z"}


def test_a_column_of_nulls_has_no_range() -> None:
    found = of({"offset": pa.array([1, 2]), "bornTimestamp": pa.nulls(2, pa.timestamp("us"))})
    assert found["nullCount"] == {"offset": 0, "bornTimestamp": 2}
    assert "bornTimestamp" not in found["minValues"]


def test_columns_without_statistics_are_left_out() -> None:
    found = of(
        {"offset": pa.array([1, 2]), "value": pa.array([b"x", b"y"])}, write_statistics=False
    )
    assert found == {"numRecords": 2, "minValues": {}, "maxValues": {}, "nullCount": {}}
