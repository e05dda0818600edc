"""The size of micro-batches: limits that Spark enforces, and the end of AvailableNow."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path
from typing import Any

from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadMaxRows, ReadMinRows

from testkit.processes import wait_until
from testkit.spark_site import SparkGateway
from thin_client.spark.data_source import StreamReader
from thin_client.spark.offsets import ABOUT
from thin_client.spark.options import ReadOptions
from thin_client.spark.records import column_names

ALL = column_names(include_headers=False)


def options_of(gateway: SparkGateway, topic: str, **more: str) -> dict[str, str]:
    basic = {"servers": gateway.servers, "group": gateway.a_group(), "subscribe": topic}
    return {**basic, "startingOffsets": "earliest", **more}


def stream(spark: Any, options: dict[str, str]) -> Any:
    return spark.readStream.format("orderlane").options(**options).load().select("qid", "offset")


def test_available_now_reads_its_snapshot_once_in_limited_batches(
    spark: Any, gateway: SparkGateway, tmp_path: Path
) -> None:
    """Messages sent during the run are left for the next run."""
    topic = gateway.a_topic(queues=2)
    options = options_of(gateway, topic, maxOffsetsPerTrigger="10")
    gateway.send(topic, [b"x"] * 30, queue=0)
    gateway.send(topic, [b"x"] * 6, queue=1)
    batches: list[Counter[str]] = []
    places: list[tuple[str, int]] = []

    def take(rows: Any, number: int) -> None:
        found = [(row.qid, row.offset) for row in rows.collect()]
        batches.append(Counter(qid for qid, _ in found))
        places.extend(found)
        gateway.send(topic, [b"later"] * 2, queue=number % 2)

    def run() -> None:
        writer = stream(spark, options).writeStream.foreachBatch(take)
        writer = writer.option("checkpointLocation", str(tmp_path)).trigger(availableNow=True)
        query = writer.start()
        assert query.awaitTermination(120), "the query did not end"

    run()
    assert [each.total() for each in batches] == [0, 10, 10, 10, 6]
    assert all(len(each) == 2 for each in batches[1:]), "the small queue has a part in each"
    assert Counter(qid for qid, _ in places) == {"broker-a_0": 30, "broker-a_1": 6}
    run()
    assert [each.total() for each in batches[5:]] == [10]
    assert len(set(places)) == len(places) == 46


def test_a_micro_batch_waits_for_its_minimum(
    spark: Any, gateway: SparkGateway, tmp_path: Path
) -> None:
    topic = gateway.a_topic(queues=1)
    options = options_of(gateway, topic, minOffsetsPerTrigger="5", maxOffsetsPerTrigger="6")
    gateway.send(topic, [b"x"] * 4)
    sizes: list[int] = []

    def take(rows: Any, _number: int) -> None:
        if size := rows.count():  # a new query starts with an empty batch
            sizes.append(size)

    writer = stream(spark, options).writeStream.foreachBatch(take)
    query = writer.option("checkpointLocation", str(tmp_path)).start()
    try:
        wait_until(
            lambda: query.status["message"] == "Waiting for data to arrive",
            within_s=60,
            what="the query to find too few messages",
        )
        gateway.send(topic, [b"x"] * 3)
        wait_until(lambda: sizes, within_s=60, what="a micro-batch")
        assert sizes == [6], "not the four that were there first"
    finally:
        query.stop()


def test_spark_receives_the_limit_and_may_request_all(gateway: SparkGateway) -> None:
    topic = gateway.a_topic(queues=1)
    gateway.send(topic, [b"x"] * 9)
    for given, limit in (
        ({"maxOffsetsPerTrigger": "4", "minOffsetsPerTrigger": "2"}, ReadMaxRows(4)),
        ({"minOffsetsPerTrigger": "12"}, ReadMinRows(12)),
        ({}, ReadAllAvailable()),
    ):
        options = options_of(gateway, topic, **given)
        reader = StreamReader(ReadOptions.parse(options, streaming=True), ALL)
        assert reader.getDefaultReadLimit() == limit
        start = reader.latestOffset(reader.initialOffset(), limit)
        assert start[topic] == {"broker-a_0": 0}, "the first batch records the start"
        assert reader.partitions(reader.initialOffset(), start) == []
        taken = reader.latestOffset(start, limit)[topic]["broker-a_0"]
        assert taken == {ReadMaxRows: 4, ReadMinRows: 0, ReadAllAvailable: 9}[type(limit)]
        assert reader.latestOffset(start, ReadAllAvailable())[topic] == {"broker-a_0": 9}
        assert json.dumps(reader.reportLatestOffset()) == json.dumps({topic: {"broker-a_0": 9}})
        reader.stop()


def test_topics_may_be_added_and_removed_between_runs(gateway: SparkGateway) -> None:
    """As after a restart: the checkpoint's offsets with changed options."""

    def places(found: dict[str, Any]) -> dict[str, Any]:
        return {topic: queues for topic, queues in found.items() if topic != ABOUT}

    old, new = gateway.a_topic(queues=1), gateway.a_topic(queues=1)
    group = gateway.a_group()

    def latest(subscribe: str, start: dict[str, Any]) -> tuple[dict[str, Any], list[str]]:
        options = {**options_of(gateway, subscribe), "group": group}
        reader = StreamReader(ReadOptions.parse(options, streaming=True), ALL)
        found, tasks = start, []
        for _ in range(2):  # the first batch records the start of a new topic
            before, found = found, reader.latestOffset(found, ReadAllAvailable())
            tasks += [str(each.value) for each in reader.partitions(before, found)]
        reader.stop()
        return found, tasks

    gateway.send(old, [b"x"] * 3)
    gateway.send(new, [b"x"] * 4)
    first, _ = latest(old, {old: {"broker-a_0": 0}})
    assert places(first) == {old: {"broker-a_0": 3}}
    both, tasks = latest(f"{old},{new}", first)
    assert places(both) == {old: {"broker-a_0": 3}, new: {"broker-a_0": 4}}
    assert tasks == [f"{new}/broker-a_0 [0, 4)"]
    gateway.send(old, [b"x"] * 2)
    gateway.send(new, [b"x"] * 2)
    without, tasks = latest(new, both)
    assert places(without) == {old: {"broker-a_0": 3}, new: {"broker-a_0": 6}}
    assert tasks == [f"{new}/broker-a_0 [4, 6)"]
    again, tasks = latest(f"{old},{new}", without)
    assert tasks == [f"{old}/broker-a_0 [3, 5)"]
    assert places(again) == {old: {"broker-a_0": 5}, new: {"broker-a_0": 6}}
