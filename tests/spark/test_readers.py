"""Which reader Spark gets, without a session."""

from __future__ import annotations

import sys
import time
from types import ModuleType
from typing import Any

import pytest
from pyspark.sql.datasource import InputPartition
from pyspark.sql.pandas.types import from_arrow_schema
from pyspark.sql.streaming.datasource import ReadAllAvailable
from pyspark.sql.types import LongType

from thin_client.errors import ConnectionLost
from thin_client.spark.bulk_client import BulkClient
from thin_client.spark.data_source import BatchReader, OrderlaneDataSource, PruningReader
from thin_client.spark.offsets import QueueState, Slice, Task
from thin_client.spark.option_values import OptionError
from thin_client.spark.records import arrow_schema, column_names

GIVEN = {"servers": "proxy", "group": "lake", "subscribe": "orders"}
ALL = column_names(include_headers=False)


def reader(*columns: str, **options: str) -> Any:
    schema = from_arrow_schema(arrow_schema(columns or ALL))
    return OrderlaneDataSource(GIVEN | options).reader(schema)


def spark_offers_filters(monkeypatch: pytest.MonkeyPatch) -> None:
    """Act as the worker that Spark starts if its setting allows pushdown."""
    name = "pyspark.sql.worker.data_source_pushdown_filters"
    monkeypatch.setitem(sys.modules, name, ModuleType(name))


def test_filters_are_taken_where_spark_offers_them(monkeypatch: pytest.MonkeyPatch) -> None:
    assert type(reader()) is BatchReader
    assert type(reader(filterPushdown="true")) is PruningReader
    spark_offers_filters(monkeypatch)
    assert type(reader()) is PruningReader
    assert type(reader(filterPushdown="false")) is BatchReader


def test_a_schema_chooses_columns() -> None:
    task = InputPartition(Task((Slice("orders", "q", 5, 7), Slice("orders", "r", 0, 1)), ("p",)))
    rows = [row for batch in reader("qid", "offset").read(task) for row in batch.to_pylist()]
    assert rows == [{"qid": qid, "offset": n} for qid, n in (("q", 5), ("q", 6), ("r", 0))]
    wrong = from_arrow_schema(arrow_schema(ALL)).add("amount", LongType())
    with pytest.raises(OptionError, match=r"schema\(\) names the column 'amount'"):
        OrderlaneDataSource(GIVEN).reader(wrong)


def test_a_stream_reads_a_backlog_without_pauses(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its queues do not grow meanwhile, which once made it ask as rarely as an idle stream."""
    pauses: list[float] = []
    monkeypatch.setattr(time, "sleep", pauses.append)
    backlog = QueueState("orders", "q", 0, 50)
    monkeypatch.setattr(BulkClient, "ranges", lambda *_, **__: [backlog])
    monkeypatch.setattr(BulkClient, "report", lambda *_, **__: None)
    schema = from_arrow_schema(arrow_schema(ALL))
    options = {"startingOffsets": "earliest", "maxOffsetsPerTrigger": "10"}
    stream = OrderlaneDataSource(GIVEN | options).streamReader(schema)
    found: list[Any] = [stream.initialOffset()]
    for _ in range(6):
        found.append(stream.latestOffset(found[-1], stream.getDefaultReadLimit()))
    assert [each["orders"]["q"] for each in found[1:]] == [0, 10, 20, 30, 40, 50]
    assert set(pauses) == {0.0}
    assert stream.latestOffset(found[-1], stream.getDefaultReadLimit()) == found[-1]
    assert pauses[-1] > 0, "it has read everything, and waits for more"


def test_an_idle_stream_repeats_a_failed_report(monkeypatch: pytest.MonkeyPatch) -> None:
    """No later batch supersedes it."""
    now_s, fails, reported = 0.0, True, []

    def take(_: BulkClient, offsets: Any, _counts: Any) -> None:
        reported.append(offsets)
        if fails:
            raise ConnectionLost("the proxy restarts")

    monkeypatch.setattr(time, "sleep", lambda _: None)
    monkeypatch.setattr(time, "monotonic", lambda: now_s)
    monkeypatch.setattr(BulkClient, "ranges", lambda *_, **__: [QueueState("orders", "q", 0, 9)])
    monkeypatch.setattr(BulkClient, "report", take)
    schema = from_arrow_schema(arrow_schema(ALL))
    stream = OrderlaneDataSource(GIVEN).streamReader(schema)
    end = {"": {"version": 2}, "orders": {"q": 9}}
    for _ in range(3):
        assert stream.latestOffset(end, ReadAllAvailable()) == end
    assert reported == [end], "not at each trigger"
    now_s, fails = 60.0, False
    for _ in range(3):
        stream.latestOffset(end, ReadAllAvailable())
        now_s += 60.0
    assert reported == [end, end]
