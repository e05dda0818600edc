"""Messages that retention deletes before they are read fail the query or are skipped, as
configured.
"""

from __future__ import annotations

import json
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from pyspark.errors import AnalysisException, StreamingQueryException
from pyspark.sql.streaming.datasource import ReadAllAvailable

from broker_core.names import Topic
from testkit.spark_site import SparkGateway
from tests.spark.short_memory import ShortMemory, short_memory
from thin_client.spark.bulk_client import DataLost
from thin_client.spark.data_source import BatchReader, StreamReader
from thin_client.spark.offsets import flat
from thin_client.spark.options import ReadOptions
from thin_client.spark.planning import MessagesGone
from thin_client.spark.records import column_names

ALL = column_names(include_headers=False)


@pytest.fixture(scope="module")
def forgetful(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ShortMemory]:
    with short_memory(tmp_path_factory.mktemp("forgetful")) as site:
        yield site


class Lake:
    """A stream into files that runs until no messages are left."""

    def __init__(self, spark: Any, folder: Path, options: dict[str, str]) -> None:
        self._spark = spark
        self._folder = folder
        self._options = {**options, "startingOffsets": "earliest"}

    def run(self, **more: str) -> list[int]:
        """Run the query once more and return its offsets."""
        rows = self._spark.readStream.format("orderlane").options(**self._options, **more).load()
        query = (
            rows.select("offset")
            .writeStream.option("path", str(self._folder / "rows"))
            .option("checkpointLocation", str(self._folder / "checkpoint"))
            .trigger(availableNow=True)
            .start()
        )
        query.awaitTermination()
        found = self._spark.read.parquet(str(self._folder / "rows")).collect()
        return sorted(row.offset for row in found)

    def move(self, position: int) -> None:
        """Pretend that the last run ended at *position*."""
        last = max(
            (self._folder / "checkpoint/offsets").glob("[0-9]*"), key=lambda it: int(it.name)
        )
        *head, offsets = last.read_text().split("\n")
        moved = {  # the topic without a name stores the lives of topics
            topic: dict.fromkeys(queues, position) if topic else queues
            for topic, queues in json.loads(offsets).items()
        }
        last.write_text("\n".join([*head, json.dumps(moved)]))
        last.with_name(f".{last.name}.crc").unlink(missing_ok=True)


def options_of(site: ShortMemory, **more: str) -> dict[str, str]:
    topic = site.a_topic(queues=1)
    return {"servers": site.servers, "group": site.a_group(), "subscribe": topic, **more}


def oldest_of(site: ShortMemory, topic: str) -> int:
    return site.ask(lambda client: _oldest(client, topic))


async def _oldest(client: Any, topic: str) -> int:
    (queue,) = await client.queues(topic)
    return int(await client.min_offset(queue))


def test_a_stream_fails_at_deleted_messages_or_skips_them(
    spark: Any, forgetful: ShortMemory, tmp_path: Path
) -> None:
    options = options_of(forgetful)
    lake = Lake(spark, tmp_path, options)
    forgetful.fill(options["subscribe"], 3)
    assert lake.run() == [0, 1, 2]
    forgetful.fill(options["subscribe"], 20)
    forgetful.forget()
    oldest = oldest_of(forgetful, options["subscribe"])
    assert 3 < oldest < 23

    with pytest.raises(StreamingQueryException) as caught:
        lake.run()
    assert (
        "unread messages are gone: queue 'broker-a_0' of the topic "
        f"'{options['subscribe']}' starts at {oldest}: the broker deleted offsets 3 to "
        f"{oldest - 1} ({oldest - 3} messages); set failOnDataLoss to false to continue with"
    ) in str(caught.value)
    assert "Traceback" not in str(caught.value)

    assert lake.run(failOnDataLoss="false") == [0, 1, 2, *range(oldest, 23)]
    assert lake.run() == [0, 1, 2, *range(oldest, 23)], "a loss is reported once"


def test_a_recreated_topic_fails_the_query_or_is_read_from_its_beginning(
    spark: Any, forgetful: ShortMemory, tmp_path: Path
) -> None:
    options = options_of(forgetful)
    lake = Lake(spark, tmp_path, options)
    forgetful.send(options["subscribe"], [b"a", b"b"])
    assert lake.run() == [0, 1]
    lake.move(500)
    with pytest.raises(StreamingQueryException, match="ends at 2, before 500: it was created"):
        lake.run()
    assert lake.run(failOnDataLoss="false") == [0, 0, 1, 1]


def test_a_batch_reports_the_deleted_part_of_its_range(spark: Any, forgetful: ShortMemory) -> None:
    options = options_of(forgetful)
    topic = options["subscribe"]
    forgetful.fill(topic, 20)
    forgetful.forget()
    oldest = oldest_of(forgetful, topic)
    options["startingOffsets"] = json.dumps({topic: {"broker-a_0": 1}})
    with pytest.raises(AnalysisException, match=f"deleted offsets 1 to {oldest - 1}"):
        spark.read.format("orderlane").options(**options).load().collect()
    options["failOnDataLoss"] = "false"
    rows = spark.read.format("orderlane").options(**options).load().select("offset").collect()
    assert sorted(row.offset for row in rows) == list(range(oldest, 20))


@pytest.mark.parametrize("fails", [True, False])
def test_a_task_reports_messages_deleted_after_planning(
    forgetful: ShortMemory, fails: bool
) -> None:
    given = options_of(forgetful, failOnDataLoss=str(fails))
    topic = given["subscribe"]
    reader = BatchReader(ReadOptions.parse(given, streaming=False), ALL)
    forgetful.fill(topic, 20)
    (task,) = reader.partitions()
    forgetful.fill(topic, 5)
    forgetful.forget()
    oldest = oldest_of(forgetful, topic)
    if fails:
        with pytest.raises(DataLost, match=f"offsets 0 to {oldest - 1} of queue broker-a_0"):
            list(reader.read(task))
        return
    found = [offset for batch in reader.read(task) for offset in batch.to_pydict()["offset"]]
    assert found == list(range(oldest, 20))


def test_a_replanned_micro_batch_reports_messages_deleted_meanwhile(
    forgetful: ShortMemory,
) -> None:
    given = options_of(forgetful, startingOffsets="earliest")
    topic = given["subscribe"]
    forgetful.fill(topic, 20)
    start, end = {topic: {"broker-a_0": 0}}, {topic: {"broker-a_0": 20}}
    strict = StreamReader(ReadOptions.parse(given, streaming=True), ALL)
    assert [each.value.size for each in strict.partitions(start, end)] == [20]
    forgetful.fill(topic, 5)
    forgetful.forget()
    oldest = oldest_of(forgetful, topic)
    with pytest.raises(MessagesGone, match=f"deleted offsets 0 to {oldest - 1}"):
        strict.partitions(start, end)
    lenient = StreamReader(
        ReadOptions.parse({**given, "failOnDataLoss": "false"}, streaming=True), ALL
    )
    (task,) = lenient.partitions(start, end)
    assert [(each.start, each.end) for each in task.value.parts] == [(oldest, 20)]
    for reader in (strict, lenient):
        reader.stop()


def test_a_retried_first_batch_reports_messages_deleted_meanwhile(
    forgetful: ShortMemory,
) -> None:
    """On a retry Spark asks for the start again, since its log contains only the ends of
    batches.
    """
    given = options_of(forgetful, startingOffsets="earliest")
    topic = given["subscribe"]
    forgetful.fill(topic, 20)
    killed, again = (StreamReader(ReadOptions.parse(given, streaming=True), ALL) for _ in range(2))
    start = killed.initialOffset()
    end = killed.latestOffset(start, ReadAllAvailable())
    killed.partitions(start, end)
    killed.stop()

    forgetful.fill(topic, 5)
    forgetful.forget()
    oldest = oldest_of(forgetful, topic)
    assert oldest < 20
    assert again.partitions(again.initialOffset(), end) == []
    with pytest.raises(MessagesGone, match=f"deleted offsets 0 to {oldest - 1}"):
        again.latestOffset(end, ReadAllAvailable())
    again.stop()


def test_lost_and_repeated_messages_are_in_the_metrics_and_in_warnings(
    gateway: SparkGateway, caplog: pytest.LogCaptureFixture
) -> None:
    """A topic is created again, larger and with fewer queues, after its batch was planned."""
    topic, group = gateway.a_topic(queues=2), gateway.a_group()
    given = {"servers": gateway.servers, "group": group, "subscribe": topic}
    given |= {"startingOffsets": "earliest", "failOnDataLoss": "false"}
    gateway.send(topic, [b"x"] * 6)
    killed, again = (StreamReader(ReadOptions.parse(given, streaming=True), ALL) for _ in range(2))
    start = killed.latestOffset({}, ReadAllAvailable())
    end = killed.latestOffset(start, ReadAllAvailable())
    assert [str(each.value) for each in killed.partitions(start, end)] == [
        f"{topic}/broker-a_{number} [0, 3)" for number in range(2)
    ]
    killed.stop()

    assert len(again.partitions(start, end)) == len(again.partitions(start, end)) == 2
    assert again.latestOffset(end, ReadAllAvailable()) == end
    gateway.send(topic, [b"y"] * 4)
    gateway.ask(lambda client: client.deletions.delete_topic(Topic(topic)))
    gateway.create_topic(topic, queues=1)
    gateway.send(topic, [b"z"] * 9)
    anew = again.latestOffset(end, ReadAllAvailable())
    assert flat(anew) == {(topic, "broker-a_0"): 0}
    assert again.partitions(end, anew) == []
    last = again.latestOffset(anew, ReadAllAvailable())
    assert [str(each.value) for each in again.partitions(anew, last)] == [
        f"{topic}/broker-a_0 [0, 9)"
    ]
    again.latestOffset(last, ReadAllAvailable())
    again.stop()

    query = f"query of group {group!r} and topics {topic!r}: "
    # The broker refuses progress that reaches it after the deletion.
    usual = ("waiting", "did not take the query's progress")
    repeated, gone = (each for each in caplog.messages if not any(map(each.__contains__, usual)))
    assert repeated == (
        f"{query}an unfinished batch is repeated: '{topic}/broker-a_0 [0, 3)',"
        f" '{topic}/broker-a_1 [0, 3)'"
    )
    assert gone.startswith(f"{query}unread messages are gone: queue 'broker-a_0' of the topic")
    assert "was read up to 3; its topic was deleted and created again since" in gone
    assert "broker's log, with at least" in gone
    assert "again since without this queue" in gone
    with urllib.request.urlopen(f"http://{gateway.http}/metrics", timeout=30) as answer:
        metrics = answer.read().decode()
    label = f'{{group="{group}"}}'
    assert f"orderlane_bulk_repeated_messages_total{label} 6.0" in metrics
