"""``subscribePattern`` matches the topics that exist; Spark's calls without a session."""

from __future__ import annotations

from typing import Any

import pytest
from pyspark.sql.streaming.datasource import ReadAllAvailable

from testkit.spark_site import SparkGateway
from thin_client.errors import Refused
from thin_client.spark.data_source import StreamReader
from thin_client.spark.offsets import flat
from thin_client.spark.options import ReadOptions
from thin_client.spark.records import column_names

ALL = column_names(include_headers=False)


def reader_of(servers: str, group: str, **given: str) -> StreamReader:
    options = {"servers": servers, "group": group, "startingOffsets": "earliest", **given}
    return StreamReader(ReadOptions.parse(options, streaming=True), ALL)


def following(reader: StreamReader, start: Any) -> tuple[Any, list[str]]:
    """Return the end of the next batch, and its tasks."""
    end = reader.latestOffset(start, ReadAllAvailable())
    return end, [str(each.value) for each in reader.partitions(start, end)]


def test_a_pattern_reads_existing_topics_after_a_typing_error_and_a_restart_of_the_proxy(
    gateway: SparkGateway,
) -> None:
    """The group is created on its first use, so that a restarted proxy does not know it."""
    proxy, ready = gateway.start_proxy()
    group = gateway.a_group()
    one, other = f"{group}-one", f"{group}-two"
    for topic in (one, f"not-{group}"):
        gateway.create_topic(topic, queues=1)
        gateway.send(topic, [b"x"] * 3)
    reader = reader_of(ready["thrift"], group, subscribePattern=f"{group}-.*")
    start, tasks = following(reader, reader.initialOffset())
    assert (flat(start), tasks) == ({(one, "broker-a_0"): 0}, [])
    start, tasks = following(reader, start)
    assert tasks == [f"{one}/broker-a_0 [0, 3)"]

    mistaken = reader_of(ready["thrift"], group, subscribe=f"{group}-oen")
    with pytest.raises(Refused, match="oen"):
        mistaken.latestOffset({}, ReadAllAvailable())
    gateway.send(one, [b"y"])
    start, tasks = following(reader, start)
    assert tasks == [f"{one}/broker-a_0 [3, 4)"]

    proxy.kill()
    gateway.start_proxy(thrift_port=int(ready["thrift"].rpartition(":")[2]))
    gateway.send(one, [b"z"])
    gateway.create_topic(other, queues=1)
    gateway.send(other, [b"z"] * 2)
    start, tasks = following(reader, start)
    assert tasks == [f"{one}/broker-a_0 [4, 5)"]
    _, tasks = following(reader, start)
    assert tasks == [f"{other}/broker-a_0 [0, 2)"]
    for each in (reader, mistaken):
        each.stop()
